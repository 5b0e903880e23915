"""`ServerConnection`: one accepted connection. `quorate.net.connections` lists what it guarantees."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from quorate.net.connections.output import SocketOutput, TransportOutput
from quorate.net.connections.response_queue import INLINE_BYTES, is_large
from quorate.net.connections.response_writer import ResponseWriter
from quorate.net.dispatch import ANONYMOUS, FrameHandler, RequestContext
from quorate.net.errors import ProtocolViolation
from quorate.net.framing import FrameReader
from quorate.net.turns import SLICE_S
from quorate.protocol.api import ApiKey

if TYPE_CHECKING:
    from quorate.net.connections.connection_owner import ConnectionOwner

logger = logging.getLogger("quorate.net.connection")

_KEY = struct.Struct(">h")
_KEY_AND_VERSION = struct.Struct(">hh")


class ServerConnection(ResponseWriter, asyncio.BufferedProtocol):
    """One accepted connection. See the guarantees of its package."""

    def __init__(self, listener: ConnectionOwner) -> None:
        super().__init__(listener)
        self._limits = listener.limits
        self._reader = FrameReader(self._check_length, self._on_frame)
        self._input_ended = self._decoding = self._held = self._resuming = False
        self.requests = 0
        self._slice_started = self._frame_started_at = 0.0
        self._close_callbacks: list[Callable[[], None]] = []
        self.peer_host = ""
        self.peer_port = 0
        self.principal = ANONYMOUS
        self.software_name = self.software_version = "unknown"

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self._last_active = self._loop.time()
        sock = transport.get_extra_info("socket")
        peer = transport.get_extra_info("peername") or ("", 0)
        local = transport.get_extra_info("sockname") or ("", 0)
        self.peer_host, self.peer_port = str(peer[0]).removeprefix("::ffff:"), int(peer[1])
        self.id = f"{local[0]}:{local[1]}-{self.peer_host}:{self.peer_port}-{self._listener.next_number()}"
        if not self._listener.accept(self, sock.fileno()):
            self._transport.abort()
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._listener.tls:
            self._output = TransportOutput(self._transport, self._output_emptied)
            return
        try:
            self._output = SocketOutput(self._loop, sock.fileno(), self._output_emptied, self._write_failed)
        except OSError as e:
            logger.warning("[Listener %s] closing connection %s: %s", self._listener.name, self.id, e)
            self.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._last_active = self._loop.time()
        now = time.monotonic()
        if now - self._slice_started > SLICE_S:
            self._slice_started = now
        if not self._reader.started:
            self._frame_started_at = self._last_active
        try:
            self._reader.received(nbytes)
        except ProtocolViolation as e:
            self._on_violation(e)
            return
        self._update_reading()

    def eof_received(self) -> bool:
        """The peer has closed its sending direction. True keeps the other direction open."""
        if self._listener.tls or self._closing:
            return False
        self._input_ended = True
        self._run_close_callbacks()
        return self._has_unfinished() and not self._closing

    def pause_writing(self) -> None:
        if isinstance(self._output, TransportOutput):
            self._output.paused()

    def resume_writing(self) -> None:
        if isinstance(self._output, TransportOutput):
            self._output.resumed()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        if self._output is not None:
            self._output.close()
        self._responses.abandon()
        self._listener.remove(self)
        self._run_close_callbacks()

    def _run_close_callbacks(self) -> None:
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                text = "[Listener %s] a callback on the end of connection %s failed"
                logger.exception(text, self._listener.name, self.id)

    # -- called by handlers (`dispatch.ClientConnection`, `dispatch.FrameSource`)

    @property
    def listener_name(self) -> str:
        return self._listener.name

    def decode(self, frame: memoryview) -> tuple[RequestContext, Any]:
        """The context and the message of a request. Raises ProtocolViolation."""
        context = self._context(frame)
        return context, self._dispatcher.decode(frame, context)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once, when the connection is closed or its peer has closed its sending direction.
        If this has already happened, the call follows in the next turn of the event loop."""
        if self._closing or self._input_ended:
            self._loop.call_soon(callback)
        else:
            self._close_callbacks.append(callback)

    @property
    def ended(self) -> bool:
        """Whether the peer has closed its sending direction. Responses may still be pending."""
        return self._input_ended

    # -- reading

    def _check_length(self, length: int, head: memoryview) -> None:
        limits = self._limits
        if length < 8 or length > limits.max_frame_bytes:
            raise ProtocolViolation(
                f"a request of {length} bytes; this listener takes {limits.max_frame_bytes} "
                "(socket.request.max.bytes, and on a controller the room for an Envelope)"
            )
        if not self.requests and length > limits.first_frame_bytes:
            key, version = _KEY_AND_VERSION.unpack_from(head)
            if key == ApiKey.API_VERSIONS or not self._dispatcher.serves(key, version):
                raise ProtocolViolation(
                    f"a first request of {length} bytes for an API that this listener does not serve"
                )

    def _on_frame(self, frame: memoryview) -> bool:
        self._frame_started_at = self._last_active
        is_small = len(frame) <= INLINE_BYTES
        if self._pending:
            (key,) = _KEY.unpack_from(frame)
            if not self._dispatcher.may_overlap(key, self._pending[-1].context):
                self._reader.put_back(frame)
                return False
        elif is_small:
            answer_frame = self._dispatcher.frame_routes.get(frame[1])  # no key has more than one byte
            if answer_frame is not None and not frame[0] and self._answer_frame(answer_frame, frame):
                return self._may_continue()
        context = self._context(frame)
        if not is_small:
            context.is_large = is_large(context)
            if context.is_large:
                self._decode_in_thread(frame, context)
                return False
        self._handle(context, self._dispatcher.decode(frame, context))
        return self._may_continue()

    def _answer_frame(self, handler: FrameHandler, frame: memoryview) -> bool:
        """Returns whether the frame handler answers the request."""
        self.requests += 1
        try:
            answer = self._dispatcher.answer_frame(handler, frame, self)
        except Exception:  # it is unknown what was done
            logger.exception("[Listener %s] closing connection %s", self._listener.name, self.id)
            self.close()
            return True
        if answer is None:
            self.requests -= 1
            return False
        if not isinstance(answer, bytes):
            self._add_pending(self._context(frame), None, answer)
        elif self._output is not None and not self._closing:
            self._output.write_buffer(answer)
        return True

    def _context(self, frame: memoryview) -> RequestContext:
        (key,) = _KEY.unpack_from(frame)
        client = (self.peer_host, self.peer_port, self.id, self.software_name, self.software_version)
        received = (self._last_active, len(frame), False, False, frame, self)
        fields: tuple[Any, ...] = (self.principal, *client, self._listener.security_protocol, *received)
        return RequestContext(key, 0, 0, None, self._listener.name, *fields)  # `decode` sets the zeros

    def _decode_in_thread(self, frame: memoryview, context: RequestContext) -> None:
        """Decodes a request in a thread, as millions of elements take seconds. Nothing is read meanwhile."""
        self._decoding = True
        future = self._loop.run_in_executor(self._listener.decoder(), self._dispatcher.decode, frame, context)
        future.add_done_callback(partial(self._decoded, context))

    def _decoded(self, context: RequestContext, future: asyncio.Future[Any]) -> None:
        self._decoding = False
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if self._closing:
            return
        if isinstance(error, ProtocolViolation):
            self._on_violation(error)
            return
        if error is not None:
            logger.error("[Listener %s] closing connection %s", self._listener.name, self.id, exc_info=error)
            self.close()
            return
        self._slice_started = time.monotonic()
        self._handle(context, future.result())
        self._update_reading()
        if self._draining:
            self._listener.check_drained()

    def _handle(self, context: RequestContext, request: Any) -> None:
        """Runs the handler of a request, which is None for ApiVersions of an unknown version."""
        self.requests += 1
        if request is None:
            context.api_version = 0
            self._answer(context, request, self._dispatcher.unsupported_api_versions())
            return
        try:
            result = self._dispatcher.dispatch(context, request)
        except Exception as e:
            if context.is_large:
                self._encode_in_thread(self._add_pending(context, None, None), [e, request])
            else:
                self._answer(context, request, self._dispatcher.failure(context, request, e))
            return
        if result is not None and hasattr(result, "__await__"):
            self._add_pending(context, request, asyncio.ensure_future(result, loop=self._loop))
        elif result is None or not context.is_large:
            self._answer(context, request, result)
        else:
            self._encode_in_thread(self._add_pending(context, None, None), [result, request])

    def _may_continue(self) -> bool:
        """Whether the next request may be handled at once."""
        return not (self._closing or self._must_wait() or time.monotonic() - self._slice_started > SLICE_S)

    def _must_wait(self) -> bool:
        """Whether no request may be handled until responses are written or a large request is decoded."""
        limits, output = self._limits, self._output
        if output is None:
            return False
        if self._decoding or self._held:
            return True
        if not self._pending:
            return output.buffered_bytes > limits.write_high_bytes
        responses = self._responses
        return (
            self._reader.has_put_back
            or len(self._pending) >= limits.max_in_flight
            or responses.request_bytes >= limits.max_in_flight_bytes
            or responses.held_bytes + output.buffered_bytes > limits.write_high_bytes
        )

    def _update_reading(self) -> None:
        """Resumes or pauses reading according to the requests in flight."""
        transport, output = self._transport, self._output
        if self._closing or transport is None or output is None:
            return
        if self._input_ended:
            if not self._has_unfinished():
                self.close()
            elif self._reader.stopped and not (self._draining or self._must_wait()):
                self._take_turn()
            return
        if self._draining or self._must_wait():
            if transport.is_reading():
                transport.pause_reading()
            return
        if self._reader.stopped and not self._reader.has_backlog:
            self._reader.resume()
        if self._reader.stopped:
            # The bytes after the last request of this turn wait for a later turn.
            if transport.is_reading():
                transport.pause_reading()
            self._take_turn()
        elif not transport.is_reading():
            self._frame_started_at = self._loop.time()  # the peer could not send its request until now
            transport.resume_reading()

    def _has_unfinished(self) -> bool:
        """Whether any request is still unhandled or any response unwritten."""
        output = self._output
        unwritten = output is not None and output.pending
        return bool(self._pending) or self._decoding or self._reader.has_backlog or unwritten

    def _take_turn(self) -> None:
        """Schedules, for a later turn of the loop, the requests that have already been read."""
        if not self._resuming:
            self._resuming = True
            self._listener.turns.add(self._resume)

    def _resume(self) -> None:
        self._resuming = False
        if self._closing or self._draining or self._must_wait():
            return  # `_update_reading` schedules the next turn when there is room again
        self._slice_started = time.monotonic()
        try:
            self._reader.resume()
        except ProtocolViolation as e:
            self._on_violation(e)
            return
        except Exception:
            self.close()
            raise
        self._update_reading()

    def _on_violation(self, violation: ProtocolViolation) -> None:
        logger.warning("[Listener %s] closing connection %s: %s", self._listener.name, self.id, violation)
        self._input_ended = True
        self._reader.discard()
        self._run_close_callbacks()
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()
        self._update_reading()

    # -- called by the listener

    def hold(self, held: bool) -> None:
        """Lets the requests of a new connection wait, or ends that."""
        self._held, self._last_active = held, self._loop.time()
        self._reader.stop()  # for a later turn, too, when it may begin
        self._update_reading()

    def check(self, now: float) -> None:
        """Closes the connection if it has been idle or without progress for too long."""
        reason = None
        limits, output, transport = self._limits, self._output, self._transport
        if output is not None and output.pending:
            if now - output.progressed_at > limits.max_idle_s:
                reason = f"read none of its response for {limits.max_idle_s:g} s"
        elif self._input_ended:
            if now - self._last_active > limits.max_idle_s:
                reason = f"half closed for {limits.max_idle_s:g} s"
        elif self._reader.started and transport is not None and transport.is_reading():
            allowed = limits.frame_stall_s + self._reader.expected / limits.frame_min_rate
            if now - self._frame_started_at > allowed:
                reason = f"sent no complete request within {allowed:g} s"
        elif not self._decoding and not self._held:  # a peer whose request waits may be gone for good
            if not self.requests and now - self._last_active > limits.first_request_s:
                reason = f"sent no request for {limits.first_request_s:g} s"
            elif now - self._last_active > limits.max_idle_s:
                reason = f"idle for {limits.max_idle_s:g} s"
        if reason is not None:
            logger.info("[Listener %s] closing connection %s: %s", self._listener.name, self.id, reason)
            self.close()

    def drain(self) -> bool:
        """Stops reading. Returns True if the listener need not wait for any request in flight. The
        connection calls the listener's `check_drained` after each response.

        The listener does not wait for a Fetch that itself waits for records, because the client decides
        how long such a Fetch takes. Apache Kafka closes these connections at once.
        """
        self._draining = True
        self._update_reading()
        return not self._decoding and self._responses.only_waits
