"""Connections to peers: pipelined requests, with API versions negotiated at the start.

`Connection` is one TCP connection. `quorate.net.channel` makes them on demand, and again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl as ssl_module
import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from quorate import __version__
from quorate.lazy import lazy_module
from quorate.net.errors import (
    KafkaConnectionError,
    ProtocolViolation,
    RequestTimedOut,
    TlsError,
    UnsupportedVersion,
)
from quorate.net.framing import FrameReader
from quorate.protocol.api import REGISTRY, ApiKey, decode_response, encode_request_parts
from quorate.protocol.errors import DecodeError, EncodeError, ErrorCode
from quorate.protocol.file_region import FileRegion
from quorate.protocol.schema import Request, Response

if TYPE_CHECKING:
    from quorate.net import name_lookup
    from quorate.protocol.messages import api_versions
else:  # not needed until one connects
    name_lookup = lazy_module("quorate.net.name_lookup")
    api_versions = lazy_module("quorate.protocol.messages.api_versions")

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)

SOFTWARE_NAME = "quorate"

MAX_FIRST_RESPONSE_BYTES = 256 << 20
"""The first bytes of TLS (an alert: 336 MiB) and of HTTP would be larger lengths. Later responses
have no limit, as in Apache Kafka: a Fetch response may exceed fetch.max.bytes by one batch of at
most socket.request.max.bytes, and both are settings of the peer."""

_LAST_VERSIONS: dict[int, int] = {ApiKey.API_VERSIONS: 4, ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9}
"""ApiVersions 5 only adds the expected server (KIP-1242); later versions for offsets have no topic names."""

_PREFIX = struct.Struct(">i")


class _Call:
    """A request in flight."""

    __slots__ = ("answers", "api_key", "future", "timer", "version")

    def __init__(self, api_key: int, version: int, future: asyncio.Future[Any], answers: int) -> None:
        self.answers = answers  # received on the connection before this request was sent
        self.api_key = api_key
        self.version = version
        self.future = future
        self.timer: asyncio.TimerHandle | None = None


class Connection(asyncio.BufferedProtocol):
    """One connection. Several requests may be in flight; a Kafka server answers them in order.

    `closed` is done when the connection has ended. Its result is the reason, None if it was closed from
    this end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, client_id: str | None) -> None:
        self._loop = loop
        self._client_id = client_id
        self._reader = FrameReader(self._check_length, self._on_frame)
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, _Call] = {}
        self._correlation_id = 0
        self._answers = 0
        self._ending: Exception | None = None
        self.peer = ""
        self.replace_at: float | None = None
        """When another connection must replace this one, by the clock of the loop. None: never."""
        self.api_versions: dict[int, tuple[int, int]] = {}
        self.supported_features: dict[str, tuple[int, int]] = {}
        self.finalized_features: dict[str, int] = {}
        self.finalized_features_epoch = -1
        self.closed: asyncio.Future[Exception | None] = loop.create_future()
        self._on_lost: Callable[[Exception | None], None] | None = None
        self._close_when_silent = False
        self._on_receiving: Callable[[], None] | None = None
        self._received_at = 0.0
        """When a part of a response arrived last. Only recorded for `on_receiving`."""

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None = None,
        timeout_s: float = 30.0,
        ssl: ssl_module.SSLContext | None = None,
        sasl: Callable[[Connection], Awaitable[None]] | None = None,
        negotiate: bool = True,
        on_lost: Callable[[Exception | None], None] | None = None,
        on_receiving: Callable[[], None] | None = None,
        close_when_silent: bool = False,
        setup_timeout_s: float = 0.0,
    ) -> Connection:
        """Connects, authenticates with `sasl` if given, and requests the peer's API versions. An open
        connection may take until `setup_timeout_s` for the latter, if that is longer than `timeout_s`.

        `on_lost` is called with the result of `closed` when an established connection ends. With
        `close_when_silent`, the connection is closed when a request times out and no response at all
        has arrived since it was sent: the peer is cut off or hangs, and TCP would detect that much
        later. With `on_receiving`, a request times out only when nothing has arrived for its timeout: a
        slow link may need longer than that for one large response. It is called whenever a part of a
        response has arrived, and the rest is still to come.

        Raises KafkaConnectionError (unreachable, refused, closed), RequestTimedOut, TlsError, and what
        `sasl` raises.
        """
        loop = asyncio.get_running_loop()
        where = f"{host}:{port}"

        async def open_it() -> Connection:
            try:
                _, protocol = await name_lookup.connect(
                    lambda: cls(loop, client_id),
                    host.strip("[]"),
                    port,
                    ssl=ssl,
                    server_hostname=host.strip("[]") if ssl else None,
                )
            except OSError as e:
                if _is_tls_error(e):
                    raise TlsError(f"no TLS with {where}: {_tls_text(e)}") from e
                raise KafkaConnectionError(f"cannot connect to {where}: {e.strerror or e}") from e
            except ValueError as e:  # UnicodeError too: a name that cannot be looked up
                raise KafkaConnectionError(
                    f"cannot connect to {where}: {host!r} is not a host name ({e})"
                ) from e
            connection = protocol
            connection.peer = where
            limit.reschedule(began + max(timeout_s, setup_timeout_s))
            try:
                if negotiate:
                    await connection._negotiate()
                if sasl is not None:
                    await sasl(connection)
            except KafkaConnectionError as e:
                connection.close()
                # In TLS 1.3, a client learns only after the handshake that its certificate is refused.
                if _is_tls_error(e.__cause__):
                    raise TlsError(f"no TLS with {where}: {_tls_text(e.__cause__)}") from e
                raise
            except BaseException:
                connection.close()
                raise
            connection._on_lost, connection._close_when_silent = on_lost, close_when_silent
            connection._on_receiving = on_receiving
            return connection

        began = loop.time()
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await open_it()
        except RequestTimedOut:
            raise
        except TimeoutError as e:
            took_s = loop.time() - began
            raise RequestTimedOut(f"{where} did not complete a connection within {took_s:.0f} s") from e

    async def _negotiate(self) -> None:
        version = _LAST_VERSIONS[ApiKey.API_VERSIONS]
        while True:
            request = api_versions.ApiVersionsRequest(
                client_software_name=SOFTWARE_NAME, client_software_version=__version__
            )
            answer = await self.send(request, version)
            assert isinstance(answer, api_versions.ApiVersionsResponse)
            if answer.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
                offered = [k.max_version for k in answer.api_keys if k.api_key == ApiKey.API_VERSIONS]
                version = min([version - 1, *offered])
                continue
            if answer.error_code:
                raise KafkaConnectionError(
                    f"{self.peer} refused ApiVersions: {ErrorCode.of(answer.error_code).name}"
                )
            break
        self.api_versions = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
        self.supported_features = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
        self.finalized_features = {f.name: f.max_version_level for f in answer.finalized_features}
        self.finalized_features_epoch = answer.finalized_features_epoch

    def version_for(self, api_key: int) -> int:
        """The highest version that both ends use. Raises UnsupportedVersion."""
        spec = REGISTRY[api_key]
        last = _LAST_VERSIONS.get(api_key, spec.max_version)
        if not self.api_versions:
            return last
        offered = self.api_versions.get(api_key)
        if offered is None:
            raise UnsupportedVersion(f"{self.peer} does not serve {ApiKey(api_key).name}")
        version = min(last, offered[1])
        if version < max(spec.min_version, offered[0]):
            raise UnsupportedVersion(
                f"{self.peer} serves {ApiKey(api_key).name} in versions {offered[0]} to {offered[1]}, "
                f"this end knows {spec.min_version} to {spec.max_version}"
            )
        return version

    async def call(self, request: Request, timeout_s: float = 30.0, version: int | None = None) -> Any:
        """Sends a request and returns its response. Raises KafkaConnectionError, RequestTimedOut,
        UnsupportedVersion, and EncodeError for a field that the version does not have."""
        return await self.send(request, version, timeout_s=timeout_s)

    def send(
        self,
        request: Request,
        version: int | None = None,
        *,
        timeout_s: float | None = None,
        expect_answer: bool = True,
    ) -> asyncio.Future[Any]:
        """Writes a request at once and returns the future of its response.

        Without `expect_answer` (acks=0) the future is already done, with None. Raises UnsupportedVersion,
        EncodeError, and KafkaConnectionError if the connection has ended; later errors of `call` are
        set on the future.
        """
        if self._transport is None or self._ending is not None or self.closed.done():
            raise KafkaConnectionError(f"connection to {self.peer} is closed")
        key = request.KEY
        if version is None:
            version = self.version_for(key)
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        parts = encode_request_parts(correlation_id, self._client_id, request, version)
        future: asyncio.Future[Any] = self._loop.create_future()
        if expect_answer:
            call = _Call(key, version, future, self._answers)
            self._calls[correlation_id] = call
            if timeout_s is not None:
                call.timer = self._loop.call_later(timeout_s, self._expired, correlation_id, timeout_s)
        else:
            future.set_result(None)
        size = sum([len(part) for part in parts])
        self._transport.writelines(
            [_PREFIX.pack(size), *[p.read() if isinstance(p, FileRegion) else p for p in parts]]
        )
        return future

    def _expired(self, correlation_id: int, timeout_s: float) -> None:
        call = self._calls.get(correlation_id)
        if call is not None and not call.future.done():
            silent_s = self._loop.time() - self._received_at
            if self._on_receiving is not None and self._reader.started and silent_s < timeout_s:
                wait_s = timeout_s - silent_s
                call.timer = self._loop.call_later(wait_s, self._expired, correlation_id, timeout_s)
                return
            name = ApiKey(call.api_key).name
            call.future.set_exception(
                RequestTimedOut(f"{self.peer} did not answer {name} within {timeout_s:g} s")
            )
            if self._close_when_silent and call.answers == self._answers:
                self.close()

    def replace_after(self, seconds: float) -> None:
        """Called by `sasl` if the session has an end.

        After `seconds` another connection must replace this one.
        """
        self.replace_at = self._loop.time() + seconds

    def retire(self) -> None:
        """Closes the connection when the requests in flight have ended. `on_lost` is not called."""
        self._on_lost = None
        waiting = asyncio.gather(*[call.future for call in self._calls.values()], return_exceptions=True)
        waiting.add_done_callback(lambda _: self.close())

    def close(self, error: Exception | None = None) -> None:
        """Closes the connection. Requests in flight fail with KafkaConnectionError."""
        if self._ending is None:
            self._ending = error or KafkaConnectionError(
                f"connection to {self.peer} was closed from this end"
            )
        if self._transport is not None:
            self._transport.abort()
        if error is None:
            self._finish(None)

    def _finish(self, error: Exception | None) -> None:
        if self.closed.done():
            return
        self.closed.set_result(error)
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if call.timer is not None:
                call.timer.cancel()
            if not call.future.done():
                reason = error or KafkaConnectionError(f"connection to {self.peer} was closed from this end")
                call.future.set_exception(reason)
        if self._on_lost is not None:
            self._on_lost(error)

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername")
        if peer and not self.peer:
            self.peer = f"{peer[0]}:{peer[1]}"

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._reader.received(nbytes)
        except ProtocolViolation as e:
            self.close(KafkaConnectionError(f"{self.peer}: {e}"))
            return
        if self._on_receiving is not None and self._reader.started:
            self._received_at = self._loop.time()
            self._on_receiving()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._ending is not None:
            self._finish(self._ending)
        elif exc is not None:
            error = KafkaConnectionError(f"connection to {self.peer} was lost: {exc}")
            error.__cause__ = exc
            self._finish(error)
        else:
            self._finish(KafkaConnectionError(f"{self.peer} closed the connection"))

    # -- frames

    def _check_length(self, length: int, head: memoryview) -> None:
        if length < 4 or (length > MAX_FIRST_RESPONSE_BYTES and not self._answers):
            raise ProtocolViolation(
                f"sent a frame of {length} bytes; this is not a Kafka listener, or not of this protocol"
            )

    def _on_frame(self, frame: memoryview) -> bool:
        (correlation_id,) = _PREFIX.unpack_from(frame)
        call = self._calls.pop(correlation_id, None)
        if call is None:
            raise ProtocolViolation(f"answered a request ({correlation_id}) that was not sent")
        self._answers += 1
        if call.timer is not None:
            call.timer.cancel()
        future = call.future
        if future.done():  # timed out or abandoned meanwhile
            return True
        try:
            response = self._decode(frame, call)
        except DecodeError as e:
            name = ApiKey(call.api_key).name
            raise ProtocolViolation(
                f"sent a {name} version {call.version} answer that does not decode: {e}"
            ) from e
        future.set_result(response)
        return True

    def _decode(self, frame: memoryview, call: _Call) -> Any:
        if call.api_key == ApiKey.API_VERSIONS and call.version > 0:
            # A peer that does not support this version answers with error 35 in version 0.
            (error,) = struct.unpack_from(">h", frame, 4) if len(frame) >= 6 else (0,)
            if error == ErrorCode.UNSUPPORTED_VERSION:
                return decode_response(frame, call.api_key, 0)[1]
        return decode_response(frame, call.api_key, call.version)[1]


def _is_tls_error(error: BaseException | None) -> bool:
    """Whether a handshake failed for a reason that lasts.

    It does not last if the peer has only closed the connection.
    """
    gone = (ssl_module.SSLEOFError, ssl_module.SSLZeroReturnError, ssl_module.SSLSyscallError)
    return isinstance(error, ssl_module.SSLError) and not isinstance(error, gone)


def _tls_text(error: BaseException | None) -> str:
    """OpenSSL's reason for a failed handshake, in its words."""
    if isinstance(error, ssl_module.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl_module.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error)


__all__ = [
    "Connection",
    "EncodeError",
    "KafkaConnectionError",
    "RequestTimedOut",
    "UnsupportedVersion",
]
