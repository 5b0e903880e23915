"""Envelope (KIP-590): a request of a broker's client, carried to the controller with the client's name
and address.

Checked in Kafka's order: principal (97), address (42), inner header (35), forwardable (42), inner body
(35). Where the inner answer is NOT_CONTROLLER the envelope itself says so, without data, and the broker
tries elsewhere. The offset that the answer depends on travels beside it, so that the broker can answer
when it has applied it.
"""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import struct
from typing import TYPE_CHECKING, Any

from quorate.controller.purgatory import Answer
from quorate.controller.routes import WRITES
from quorate.net.dispatch import RequestContext
from quorate.protocol.api import REGISTRY, ApiKey, decode_request, decode_request_header, encode_response
from quorate.protocol.errors import DecodeError, EncodeError, ErrorCode, KafkaError
from quorate.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from quorate.protocol.messages.principal_data import DefaultPrincipalData
from quorate.protocol.schema import Request, Response

if TYPE_CHECKING:
    from quorate.controller.driver import QuorumController

_RAFT_KEYS = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER})
_VERSION = struct.Struct(">h")


def open_envelope(
    controller: QuorumController, ctx: RequestContext, request: EnvelopeRequest
) -> EnvelopeResponse | asyncio.Future[EnvelopeResponse]:
    """Runs the request inside; its synchronous part, the append, has happened when this returns."""
    try:
        inner_ctx, inner = _decode(ctx, request)
    except KafkaError as error:
        return EnvelopeResponse(error_code=error.code)
    try:
        if inner_ctx.api_key in WRITES:
            outcome = controller.requests.submit(inner_ctx, inner, with_offset=True)
        elif inner_ctx.api_key in _RAFT_KEYS:
            outcome = controller.raft.handle(inner_ctx, inner)
        else:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    except Exception as error:
        return _failed(inner_ctx, inner, error)
    if isinstance(outcome, Answer):
        return _enclosed(inner_ctx, inner, outcome.response, outcome.offset)
    if not inspect.isawaitable(outcome):
        return _enclosed(inner_ctx, inner, outcome, -1)
    answer = asyncio.get_running_loop().create_future()

    def done(future: asyncio.Future[Any]) -> None:
        if answer.done():
            return
        if future.cancelled():
            answer.cancel()
            return
        try:
            answer.set_result(_opened(inner_ctx, inner, future))
        except Exception as error:  # raised here it would reach nobody, and the broker would wait
            answer.set_exception(error)

    asyncio.ensure_future(outcome).add_done_callback(done)
    return answer


def _opened(ctx: RequestContext, request: Request, future: asyncio.Future[Any]) -> EnvelopeResponse:
    """What the request inside has come to."""
    error = future.exception()
    if error is not None:
        return _failed(ctx, request, error)
    result = future.result()
    response, offset = (result.response, result.offset) if isinstance(result, Answer) else (result, -1)
    return _enclosed(ctx, request, response, offset)


def _decode(ctx: RequestContext, request: EnvelopeRequest) -> tuple[RequestContext, Request]:
    principal = _principal(request.request_principal)
    try:
        address = ipaddress.ip_address(request.client_host_address)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "The client's address has neither 4 nor 16 bytes."
        ) from None
    try:
        header, _ = decode_request_header(request.request_data)
    except KafkaError:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The header inside cannot be read.") from None
    spec = REGISTRY[header.request_api_key]
    if not spec.forwardable:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{spec.name} is not forwarded.")
    try:
        _, inner = decode_request(request.request_data)
    except KafkaError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, error.message) from None
    inner_ctx = RequestContext(
        api_key=header.request_api_key,
        api_version=header.request_api_version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        listener=ctx.listener,
        principal=f"{principal.type}:{principal.name}",
        client_host=str(address),
        connection_id=ctx.connection_id,
        security_protocol=ctx.security_protocol,
        received_at=ctx.received_at,
        frame_size=len(request.request_data),
        forwarded=True,
        request_id=request.request_id,
        lost_tries=request.lost_tries,
        token_authenticated=principal.token_authenticated,
    )
    return inner_ctx, inner


def _principal(data: bytes | None) -> DefaultPrincipalData:
    """Raises PRINCIPAL_DESERIALIZATION_FAILURE."""
    try:
        if data is None or len(data) < _VERSION.size:
            raise DecodeError("no principal")
        (version,) = _VERSION.unpack_from(data)
        return DefaultPrincipalData.decode(memoryview(data)[_VERSION.size :], version)
    except KafkaError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, error.message) from None


def _enclosed(ctx: RequestContext, request: Request, response: Response, offset: int) -> EnvelopeResponse:
    """The response within its envelope; a response that cannot be encoded (a message may quote more
    than a string of an old version holds) is replaced by an error, since the broker would wait for it
    until its request times out."""
    if ctx.api_key == ApiKey.DESCRIBE_QUORUM and _is_not_leader(response):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        return _encoded(ctx, response, offset)
    except EncodeError as error:
        from quorate.net.dispatch import failure

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
    from quorate.net.dispatch import failure

    if isinstance(error, KafkaError) and error.code == ErrorCode.NOT_CONTROLLER:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    response = failure(ctx, request, error)
    assert response is not None  # every forwardable request is answered
    return _enclosed(ctx, request, response, -1)
