"""Envelope (KIP-590): a broker forwards a client's request with the client's principal and address.

The checks and their order are Kafka's: principal (97), address (42), inner header (35), forwardable (42),
inner body (35). If the inner error is NOT_CONTROLLER, the envelope has this error and no data, and the
broker tries another controller. The response also has the offset that it depends on: the broker answers
its client when it has applied the metadata up to this offset.
"""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from quorate.controller.changes.purgatory import Answer
from quorate.controller.requests.routes import WRITES
from quorate.net.dispatch import RequestContext, failure
from quorate.protocol.api import REGISTRY, ApiKey, decode_request_body, decode_request_header, encode_response
from quorate.protocol.errors import DecodeError, EncodeError, ErrorCode, KafkaError
from quorate.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from quorate.protocol.messages.principal_data import DefaultPrincipalData
from quorate.protocol.schema import Request, Response
from quorate.threads import in_thread

if TYPE_CHECKING:
    from quorate.raft.runtime.client import RaftClient

_RAFT_KEYS = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER})
_VERSION = struct.Struct(">h")
_CACHED_CLIENTS = 256
"""The number of principals and of addresses whose decoded form is kept."""


def open_envelope(
    raft: RaftClient, submit: Callable[..., Any], ctx: RequestContext, request: EnvelopeRequest
) -> EnvelopeResponse | asyncio.Future[EnvelopeResponse]:
    """Handles the inner request. `submit` handles the requests in `WRITES`. The records of the inner
    request are appended when this function returns, unless it is large; the future waits until they are
    committed."""
    if ctx.is_large:
        return asyncio.ensure_future(_open_large(raft, submit, ctx, request))
    try:
        inner_ctx, inner = _decode(ctx, request)
    except KafkaError as error:
        return EnvelopeResponse(error_code=error.code)
    if not _is_handled(inner_ctx):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        outcome = _submitted(raft, submit, inner_ctx, inner)
    except Exception as error:
        return _failed(inner_ctx, inner, error)
    if not inspect.isawaitable(outcome):
        return _enclosed(inner_ctx, inner, outcome)
    answer = asyncio.get_running_loop().create_future()

    def done(future: asyncio.Future[Any]) -> None:
        if answer.done():
            return
        if future.cancelled():
            answer.cancel()
            return
        try:
            answer.set_result(_opened(inner_ctx, inner, future))
        except Exception as error:  # an exception raised here would leave the broker without a response
            answer.set_exception(error)

    asyncio.ensure_future(outcome).add_done_callback(done)
    return answer


async def _open_large(
    raft: RaftClient, submit: Callable[..., Any], ctx: RequestContext, request: EnvelopeRequest
) -> EnvelopeResponse:
    """Does the same, but decodes the inner request and encodes its response in a thread, as those of a large
    request without an envelope."""
    try:
        inner_ctx, inner = await in_thread(_decode, ctx, request)
    except KafkaError as error:
        return EnvelopeResponse(error_code=error.code)
    if not _is_handled(inner_ctx):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        outcome = _submitted(raft, submit, inner_ctx, inner)
        result = await outcome if inspect.isawaitable(outcome) else outcome
    except Exception as error:
        return await in_thread(_failed, inner_ctx, inner, error)
    return await in_thread(_enclosed, inner_ctx, inner, result)


def _is_handled(ctx: RequestContext) -> bool:
    return ctx.api_key in WRITES or ctx.api_key in _RAFT_KEYS


def _submitted(raft: RaftClient, submit: Callable[..., Any], ctx: RequestContext, request: Request) -> Any:
    """The response of the inner request, or an awaitable of it."""
    if ctx.api_key in WRITES:
        return submit(ctx, request, with_offset=True)
    return raft.handle(ctx, request)


def _opened(ctx: RequestContext, request: Request, future: asyncio.Future[Any]) -> EnvelopeResponse:
    """The response in its envelope, from the completed future of the inner request."""
    error = future.exception()
    return _enclosed(ctx, request, future.result()) if error is None else _failed(ctx, request, error)


def _decode(ctx: RequestContext, request: EnvelopeRequest) -> tuple[RequestContext, Request]:
    """Decodes the inner request, with the context that it would have at the broker."""
    principal, token_authenticated = _principal(request.request_principal)
    client_host = _host(request.client_host_address)
    try:
        header, body = decode_request_header(request.request_data)
    except KafkaError:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The header inside cannot be read.") from None
    spec = REGISTRY[header.request_api_key]
    if not spec.forwardable:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{spec.name} is not forwarded.")
    try:
        inner = decode_request_body(request.request_data, header, body)
    except KafkaError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, error.message) from None
    inner_ctx = RequestContext(
        api_key=header.request_api_key,
        api_version=header.request_api_version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        listener=ctx.listener,
        principal=principal,
        client_host=client_host,
        connection_id=ctx.connection_id,
        security_protocol=ctx.security_protocol,
        received_at=ctx.received_at,
        frame_size=len(request.request_data),
        forwarded=True,
        request_id=request.request_id,
        unanswered_attempts=request.unanswered_attempts,
        token_authenticated=token_authenticated,
        is_large=ctx.is_large,
    )
    return inner_ctx, inner


@lru_cache(_CACHED_CLIENTS)
def _principal(data: bytes | None) -> tuple[str, bool]:
    """The client's principal, and whether a delegation token authenticated it.

    Raises PRINCIPAL_DESERIALIZATION_FAILURE.
    """
    try:
        if data is None or len(data) < _VERSION.size:
            raise DecodeError("no principal")
        (version,) = _VERSION.unpack_from(data)
        principal = DefaultPrincipalData.decode(memoryview(data)[_VERSION.size :], version)
    except KafkaError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, error.message) from None
    return f"{principal.type}:{principal.name}", principal.token_authenticated


@lru_cache(_CACHED_CLIENTS)
def _host(address: bytes) -> str:
    """The client's IP address as text. Raises INVALID_REQUEST."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "The client's address has neither 4 nor 16 bytes."
        ) from None


def _enclosed(ctx: RequestContext, request: Request, result: Response | Answer) -> EnvelopeResponse:
    """The response of the inner request in its envelope.

    A response may not be encodable: its error message may be too long for the strings of an old version.
    It is replaced by an error, since the broker would otherwise wait until its request times out.
    """
    response, offset = (result.response, result.offset) if isinstance(result, Answer) else (result, -1)
    if ctx.api_key == ApiKey.DESCRIBE_QUORUM and _is_not_leader(response):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        return _encoded(ctx, response, offset)
    except EncodeError as error:
        replacement = failure(ctx, request, RuntimeError(str(error)))
        assert replacement is not None  # every forwardable request is answered
        return _encoded(ctx, replacement, offset)


def _encoded(ctx: RequestContext, response: Response, offset: int) -> EnvelopeResponse:
    parts = encode_response(ctx.correlation_id, ctx.api_key, ctx.api_version, response)
    data = b"".join(
        part if isinstance(part, bytes | bytearray | memoryview) else part.read() for part in parts
    )
    return EnvelopeResponse(response_data=data, committed_offset=offset)


def _is_not_leader(response: Any) -> bool:
    return any(
        partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        for topic in response.topics
        for partition in topic.partitions
    )


def _failed(ctx: RequestContext, request: Request, error: BaseException) -> EnvelopeResponse:
    if isinstance(error, KafkaError) and error.code == ErrorCode.NOT_CONTROLLER:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    response = failure(ctx, request, error)
    assert response is not None  # every forwardable request is answered
    return _enclosed(ctx, request, response)
