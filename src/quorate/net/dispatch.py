"""Dispatches decoded requests to their handlers, and answers the requests that every listener serves.

A handler is a function `(RequestContext, Request) -> Response | Awaitable[Response | None] | None`:

- A plain function runs as soon as its request has been decoded, before the next request of the
  connection. Work that depends on the order of requests, such as appending, belongs there. It may
  return a future or coroutine for the rest.
- A coroutine function begins in the next turn of the loop (at once from Python 3.12 on), in the order
  of arrival.
- None, or an awaitable of None, means that no response is sent (acks=0).
- A `KafkaError`, raised at once or later, becomes Kafka's response for that request and error.
"""

from __future__ import annotations

import asyncio
import logging
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from quorate.dataclass import dataclass
from quorate.lazy import lazy_module
from quorate.net.errors import ProtocolViolation
from quorate.protocol.api import REGISTRY, ApiKey, decode_request
from quorate.protocol.errors import DecodeError, ErrorCode, KafkaError
from quorate.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from quorate.protocol import error_response as error_responses
    from quorate.protocol.messages import api_versions
    from quorate.protocol.schema import Request, Response
else:
    # Not needed until a client connects, or a handler fails.
    error_responses = lazy_module("quorate.protocol.error_response")
    api_versions = lazy_module("quorate.protocol.messages.api_versions")

logger = logging.getLogger(__name__)

ANONYMOUS = "User:ANONYMOUS"

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""The format of a client's software name and version (KIP-511)."""

CANCELLABLE_APIS = frozenset({ApiKey.FETCH})
"""APIs whose handlers only wait. Their futures are cancelled when the connection is lost. Otherwise a
Fetch would wait for all of the `max_wait_ms` of its request, and be checked at each append."""

OVERLAPPING_APIS = frozenset({ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.CREATE_TOPICS})
"""APIs of which a broker starts a request while earlier ones of the same connection and the same API are
unanswered. They are carried out in their order, and no response tells of the state that an earlier one
changes. So clients that pipeline them only see that they are faster than in Apache Kafka."""

_HEAD = struct.Struct(">hhi")


class ListenerKind(IntEnum):
    """The set of APIs that a listener serves."""

    BROKER = 1
    CONTROLLER = 2


class SecurityProtocol(IntEnum):
    """The security protocols, with Kafka's ids, which brokers register."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class RequestCounter(Protocol):
    """A connection that counts its requests."""

    requests: int
    """The number of requests so far, with the one that is handled."""


class ClientConnection(RequestCounter, Protocol):
    """The members of a connection that handlers use."""

    software_name: str
    software_version: str

    def on_close(self, callback: Callable[[], None]) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class RequestContext:
    """The origin of a request: its header, its client, its connection and the time of its arrival."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    listener: str
    principal: str = ANONYMOUS
    client_host: str = ""
    client_port: int = 0
    connection_id: str = ""
    software_name: str = "unknown"
    software_version: str = "unknown"
    security_protocol: int = SecurityProtocol.PLAINTEXT
    received_at: float = 0.0
    """The loop time (monotonic seconds) at which the request had arrived completely."""
    frame_size: int = 0
    """Bytes after the length prefix."""
    forwarded: bool = False
    """Whether a broker has forwarded the request in an Envelope."""
    token_authenticated: bool = False
    frame: memoryview | None = None
    """The request as received, with its header, for an Envelope."""
    connection: ClientConnection | None = None
    """The connection that the request arrived on; None for a request in an Envelope."""
    request_id: bytes = ZERO_UUID
    """An id that all tries of one forwarded request share; zeros if unknown."""
    unanswered_attempts: int = 0
    """The number of earlier tries without a usable response, which may have been carried out."""
    is_large: bool = False
    """Whether the request is decoded, and its response encoded, in a thread."""


Handler = Callable[[RequestContext, Any], Any]
"""`Callable[[RequestContext, Request], Response | Awaitable[Response | None] | None]`. Declared with Any, so
that a handler may annotate the one request class that it takes."""


class FrameSource(RequestCounter, Protocol):
    """The members of a connection that frame handlers use."""

    @property
    def listener_name(self) -> str: ...

    def decode(self, frame: memoryview) -> tuple[RequestContext, Any]:
        """The context and the message of a request that is known to be well formed."""
        ...


FrameAnswer = bytes | asyncio.Future[bytes] | None
"""The complete response to a request, with its length, now or later. None if the API's handler must
answer."""

FrameHandler = Callable[[memoryview, FrameSource], FrameAnswer]
"""Answers a request of the most common form from its bytes, because to decode a small request and to encode
its response takes longer than to carry it out. If it returns None, the request is unchanged and nothing was
done. A future may fail with a KafkaError, which is answered as that of the API's handler. Called only if no
earlier response of the connection is pending."""


class RequestObserver(Protocol):
    """Counts and measures requests (`RequestMetrics`)."""

    def handle(self, handler: Handler, context: RequestContext, request: Any) -> Any:
        """Runs the handler of a request and returns its result."""
        ...

    def handle_frame(self, handler: FrameHandler, frame: memoryview, source: FrameSource) -> FrameAnswer:
        """Runs a frame handler and returns its result."""
        ...

    def failed(self, api_key: int, error: BaseException) -> None:
        """Counts a request whose handler has raised an error."""
        ...


class FeatureRange(NamedTuple):
    name: str
    min: int
    max: int


class FeatureLevel(NamedTuple):
    name: str
    level: int


class ServerIdentity(NamedTuple):
    """The cluster and the node that a client may expect behind a listener (KIP-1242)."""

    cluster_id: str
    node_id: int


@dataclass(slots=True, frozen=True)
class FeatureState:
    """The features in an ApiVersions response: supported ranges, and the levels finalised as of a
    metadata offset."""

    supported: Sequence[FeatureRange] = ()
    finalized: Sequence[FeatureLevel] = ()
    epoch: int = -1


class Dispatcher:
    """The handlers of one listener, by API key.

    `features` is called for every ApiVersions request. `narrow` may restrict the advertised versions of
    an API, and returns None to hide it: a broker advertises the APIs that it forwards only in the
    versions that the active controller supports. A client whose ApiVersions request names another
    cluster or node than `identity` must look for the cluster anew; without `identity` this is not
    checked. With `metrics` the requests are counted and measured.
    """

    def __init__(
        self,
        kind: ListenerKind,
        *,
        features: Callable[[], FeatureState] = FeatureState,
        narrow: Callable[[int, int, int], tuple[int, int] | None] | None = None,
        identity: ServerIdentity | None = None,
        metrics: RequestObserver | None = None,
    ) -> None:
        self.kind = kind
        self._metrics = metrics
        self.routes: dict[int, Handler] = {}
        self.frame_routes: Mapping[int, FrameHandler] = {}
        """May be filled later: handlers are imported by their first request."""
        self._features = features
        self._narrow = narrow
        self._identity = identity
        self.register(ApiKey.API_VERSIONS, self._api_versions)
        for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            self.register(key, _no_sasl)

    def register(self, api_key: int, handler: Handler) -> None:
        """Adds the handler of an API. Raises ValueError if there is one already or the API is unknown."""
        if api_key in self.routes:
            raise ValueError(f"{ApiKey(api_key).name} has two handlers")
        spec = REGISTRY.get(api_key)
        if spec is None:
            raise ValueError(f"no API has the key {api_key}")
        self.routes[int(api_key)] = handler

    def register_all(self, routes: Mapping[int, Handler]) -> None:
        for key, handler in routes.items():
            self.register(key, handler)

    def serves(self, api_key: int, api_version: int) -> bool:
        spec = REGISTRY.get(api_key)
        return (
            api_key in self.routes
            and spec is not None
            and spec.served_from <= api_version <= spec.max_version
        )

    def decode(self, frame: memoryview, context: RequestContext) -> Request | None:
        """Decodes a request, and fills the context from its header.

        Returns None for an ApiVersions request of an unknown version, whose response is
        `unsupported_api_versions`. Raises ProtocolViolation for an API or a version that this listener
        does not serve, and for bytes that are not a request; the caller then closes the connection, as
        Kafka does.
        """
        if len(frame) < _HEAD.size:
            raise ProtocolViolation(f"a request of {len(frame)} bytes has no header")
        key, version, correlation_id = _HEAD.unpack_from(frame)
        context.api_key, context.api_version, context.correlation_id = key, version, correlation_id
        if not self.serves(key, version):
            if key == ApiKey.API_VERSIONS:
                return None
            if key not in self.routes:
                raise ProtocolViolation(f"API key {key} is not served on this listener")
            raise ProtocolViolation(f"version {version} of API {ApiKey(key).name} is not served")
        try:
            header, request = decode_request(frame, lenient=True)
        except (DecodeError, KafkaError) as e:
            raise ProtocolViolation(f"{ApiKey(key).name} version {version}: {e}") from e
        context.client_id = header.client_id
        return request

    def may_overlap(self, api_key: int, earlier: RequestContext) -> bool:
        """Whether a request may start while an earlier one of its connection is unanswered.

        Apache Kafka handles the requests of one connection one after the other: SocketServer mutes a
        connection until the response to its last request is sent. So a response never tells of an older
        state than the response before it. A controller's listener has no such order: a broker forwards the
        requests of many clients on one connection, and the controller's queue orders them. A large
        OffsetCommit begins with several turns of the event loop, in which nothing must overtake it.
        """
        if self.kind is ListenerKind.CONTROLLER:
            return True
        if api_key != earlier.api_key or (earlier.is_large and api_key == ApiKey.OFFSET_COMMIT):
            return False
        return api_key in OVERLAPPING_APIS

    def dispatch(self, context: RequestContext, request: Request) -> Any:
        """Runs the handler of a decoded request. The caller answers its exceptions (see `failure`)."""
        handler = self.routes[context.api_key]
        if self._metrics is not None:
            return self._metrics.handle(handler, context, request)
        return handler(context, request)

    def answer_frame(self, handler: FrameHandler, frame: memoryview, source: FrameSource) -> FrameAnswer:
        """Runs a frame handler."""
        if self._metrics is not None:
            return self._metrics.handle_frame(handler, frame, source)
        return handler(frame, source)

    def failure(self, context: RequestContext, request: Request, error: BaseException) -> Response | None:
        """The response for an exception of a handler (see the function `failure`)."""
        self.count_failure(context, error)
        return failure(context, request, error)

    def count_failure(self, context: RequestContext, error: BaseException) -> None:
        """Counts an exception of a handler in the metrics. Called on the event loop."""
        if self._metrics is not None:
            self._metrics.failed(context.api_key, error)

    def unsupported_api_versions(self) -> Response:
        """The response to an ApiVersions request of an unknown version: error 35 and the versions of
        ApiVersions itself. It is encoded in version 0 (KIP-511)."""
        spec = REGISTRY[ApiKey.API_VERSIONS]
        own = api_versions.ApiVersionsResponse.ApiVersion(
            api_key=ApiKey.API_VERSIONS, min_version=spec.min_version, max_version=spec.max_version
        )
        return api_versions.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])

    def advertised(self) -> Iterable[tuple[int, int, int]]:
        """(key, lowest version, highest version) of each served API, by key."""
        for key in sorted(self.routes):
            spec = REGISTRY[key]
            low, high = spec.min_version, spec.max_version
            if self._narrow is not None:
                narrowed = self._narrow(key, low, high)
                if narrowed is None:
                    continue
                low, high = narrowed
            yield key, low, high

    def _api_versions(self, context: RequestContext, request: Any) -> Response:
        if (request.cluster_id is None) is not (request.node_id == -1):
            return api_versions.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if context.api_version >= 3:
            name, version = request.client_software_name, request.client_software_version
            if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
                return api_versions.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            if context.connection is not None:
                context.connection.software_name, context.connection.software_version = name, version
        expected = (request.cluster_id, request.node_id)
        if self._identity is not None and request.cluster_id is not None and expected != self._identity:
            return api_versions.ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        response = api_versions.ApiVersionsResponse(
            api_keys=[
                api_versions.ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, low, high in self.advertised()
            ]
        )
        if context.api_version >= 3:
            state = self._features()
            response.supported_features = [
                api_versions.ApiVersionsResponse.SupportedFeatureKey(
                    name=f.name, min_version=f.min, max_version=f.max
                )
                for f in state.supported
                if f.min > 0 or context.api_version >= 4  # older clients refuse a range that starts at 0
            ]
            response.finalized_features_epoch = state.epoch
            response.finalized_features = [
                api_versions.ApiVersionsResponse.FinalizedFeatureKey(
                    name=f.name, max_version_level=f.level, min_version_level=f.level
                )
                for f in state.finalized
            ]
        return response


def _no_sasl(_context: RequestContext, _request: Any) -> Response:
    """SaslHandshake and SaslAuthenticate are valid only on a SASL listener, before all other requests."""
    raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "SASL is not in use on this listener.")


def failure(context: RequestContext, request: Request, error: BaseException) -> Response | None:
    """The response for an exception of a handler: the error of a KafkaError; UNKNOWN_SERVER_ERROR and a
    log entry for all others."""
    if isinstance(error, KafkaError):
        return error_responses.error_response(request, error.code, error.message, context.api_version)
    logger.error(
        "[Listener %s] %s version %d from %s failed: %r",
        context.listener,
        ApiKey(context.api_key).name,
        context.api_version,
        context.connection_id,
        error,
        exc_info=error,
    )
    return error_responses.error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, None, context.api_version)
