"""The responses to the requests in flight on one connection, in the order of the requests."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_module
from quorate.net.connections.output import Part
from quorate.net.dispatch import CANCELLABLE_APIS, Dispatcher, RequestContext
from quorate.protocol.api import ApiKey, encode_response
from quorate.protocol.file_region import FileRegion

if TYPE_CHECKING:
    from quorate.net.connections import produce_frames
else:  # only large requests need it
    produce_frames = lazy_module("quorate.net.connections.produce_frames")

_JOIN_BYTES = 65_536
"""Responses up to this size are copied into one buffer: one system call costs more than the copy."""

_PREFIX = struct.Struct(">i")

INLINE_BYTES = 65_536
"""Requests up to this size are decoded in the event loop: 2,000 partitions of a Fetch take 2 to 3 ms.
The smallest possible elements, topics with names of one letter, would take 15 ms."""

INLINE_PRODUCE_BYTES = 16 << 20
"""The same for Produce, whose records are not decoded one by one. Far above the 1 MiB that clients send
by default. Requests of very many partitions are excepted."""


def is_large(context: RequestContext) -> bool:
    """Whether a request is decoded, and its response encoded, in a thread."""
    if context.frame_size <= INLINE_BYTES:
        return False
    if context.api_key != ApiKey.PRODUCE or context.frame_size > INLINE_PRODUCE_BYTES:
        return True
    return context.frame is not None and produce_frames.has_many_partitions(context.frame)


class PendingResponse:
    """The response to one request, until it is written."""

    __slots__ = ("context", "future", "held_bytes", "parts", "request")

    def __init__(self, context: RequestContext, request: Any, future: asyncio.Future[Any] | None) -> None:
        self.context = context
        self.request = request
        """None if a frame handler has taken the request without decoding it."""
        self.future = future
        """The handler's result; None if the response was there at once."""
        self.parts: list[Part] | None = None
        """The encoded response, which waits for those of earlier requests. None until the handler has
        finished."""
        self.held_bytes = 0
        """The bytes of `parts` that are held in memory."""

    def response(self, dispatcher: Dispatcher) -> Any:
        """The result of the finished handler, or the response for its error."""
        future = self.future
        assert future is not None
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is None:
            return future.result()
        if self.request is None and self.context.frame is not None:
            self.request = dispatcher.decode(self.context.frame, self.context)
        return dispatcher.failure(self.context, self.request, error)

    def take_messages(self) -> list[Any]:
        """Forgets the handler's result, or its error, and the request. Returns them, the request last."""
        future, request = self.future, self.request
        self.future = self.request = None
        if future is None:
            return [None, request]
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        return [future.result() if error is None else error, request]


class ResponseQueue:
    """Holds responses back until those of all earlier requests can be written."""

    __slots__ = ("held_bytes", "pending", "ready", "ready_bytes", "request_bytes")

    def __init__(self) -> None:
        self.pending: deque[PendingResponse] = deque()
        self.ready: list[Part] = []
        """The responses before the pending ones, to be written in one call."""
        self.ready_bytes = 0
        self.held_bytes = 0
        """Bytes of encoded responses in memory, with those of `ready`."""
        self.request_bytes = 0
        """Bytes of requests whose handlers have not finished."""

    def hold(self, response: PendingResponse, parts: list[Part]) -> None:
        """Keeps an encoded response until it can be written. Those that are next in order become ready."""
        response.parts = parts
        for part in parts:
            if not isinstance(part, FileRegion):
                response.held_bytes += len(part)
        self.held_bytes += response.held_bytes
        pending = self.pending
        while pending and pending[0].parts is not None:
            first = pending.popleft()
            self.ready += first.parts or ()
            self.ready_bytes += first.held_bytes

    @property
    def next_finishes_now(self) -> bool:
        """Whether the callback of the first pending response is scheduled already, unless many bytes are
        ready before it."""
        if not self.ready or not self.pending or self.ready_bytes > _JOIN_BYTES:
            return False
        response = self.pending[0]
        return response.future is not None and response.future.done() and not response.context.is_large

    def take_ready(self) -> list[Part]:
        """Removes the responses that are ready. Returns their parts, joined if they are small."""
        out, self.ready = self.ready, []
        self.held_bytes -= self.ready_bytes
        self.ready_bytes = 0
        if (
            len(out) > 1
            and not any(isinstance(p, FileRegion) for p in out)
            and sum(map(len, out)) <= _JOIN_BYTES
        ):
            out = [b"".join(out)]  # type: ignore[arg-type]
        return out

    @property
    def only_waits(self) -> bool:
        """Whether all handlers only wait, and no response is held back."""
        return not self.ready and all(
            response.parts is None and response.context.api_key in CANCELLABLE_APIS
            for response in self.pending
        )

    def abandon(self) -> None:
        """Forgets all responses, and cancels the handlers that only wait to be able to answer."""
        abandoned = list(self.pending)
        self.pending.clear()
        self.ready.clear()
        self.ready_bytes = self.held_bytes = self.request_bytes = 0
        for response in abandoned:
            if response.future is not None and response.context.api_key in CANCELLABLE_APIS:
                response.future.cancel()


def encode_frame(context: RequestContext, response: Any) -> list[Part]:
    """Encodes a response with its header and length prefix, in one buffer if it is small. None has no
    bytes. The response of a frame handler is encoded already."""
    if response is None:
        return []
    if isinstance(response, bytes):
        return [response]
    parts = encode_response(context.correlation_id, context.api_key, context.api_version, response)
    if len(parts) == 1 and isinstance(parts[0], bytearray) and len(parts[0]) <= _JOIN_BYTES:
        return [_PREFIX.pack(len(parts[0])) + parts[0]]
    size = 0
    for part in parts:
        size += len(part)
    prefix = _PREFIX.pack(size)
    if size <= _JOIN_BYTES and not any(isinstance(p, FileRegion) for p in parts):
        return [b"".join([prefix, *parts])]  # type: ignore[list-item]
    return [prefix, *parts]
