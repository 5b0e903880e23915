"""One accepted connection.

Rules of a connection, which the code below keeps:

1. A request's handler starts when its bytes are whole and all earlier ones of the connection have started.
2. Answers leave in the order of their requests, whatever the order in which handlers finish.
3. Nothing is read while too many requests are in flight, while too many bytes of answers wait for an
   earlier one, or while the peer does not take its answers.
4. Handlers of one connection run for a few milliseconds in one turn of the event loop (see `turns`).
5. What is not Kafka's protocol ends the connection without an answer to it, and only this connection.
6. A peer that sends no more gets the answers that are due, then the connection ends. Apache Kafka does
   so because it reads the end of the stream behind the last request. With TLS the answers that are not
   written yet are lost: asyncio's TLS transports close both directions together.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from quorate.net.dispatch import ANONYMOUS, WAITS_ONLY, RequestContext, failure
from quorate.net.errors import ProtocolViolation
from quorate.net.framing import FrameReader
from quorate.net.output import Part, SocketOutput, TransportOutput
from quorate.net.turns import SLICE_S
from quorate.protocol.api import ApiKey, encode_response
from quorate.protocol.regions import FileRegion

if TYPE_CHECKING:
    from quorate.net.server import Listener

log = logging.getLogger(__name__)

_JOIN_BYTES = 65_536
"""Answers up to this size are copied into one buffer: one system call costs more than the copy."""

_INLINE_BYTES = 65_536
"""Requests up to this size are decoded in the event loop: 2,000 partitions of a Fetch take 2 to 3 ms.
The smallest elements that there are, topics named by one letter, would take 15 ms."""

_INLINE_PRODUCE_BYTES = 16 << 20
"""The same for Produce, whose records are not looked at one by one. Far above what clients send by
default (1 MiB)."""

_PREFIX = struct.Struct(">i")
_KEY = struct.Struct(">h")
_PREFIX_AND_HEAD = struct.Struct(">hh")


def _is_large(context: RequestContext) -> bool:
    """Whether a request is decoded, and its answer encoded, in a thread."""
    return context.frame_size > (
        _INLINE_PRODUCE_BYTES if context.api_key == ApiKey.PRODUCE else _INLINE_BYTES
    )


class _Slot:
    """A request whose answer is not written yet."""

    __slots__ = ("context", "future", "held_bytes", "parts", "request")

    def __init__(self, context: RequestContext, request: Any, future: asyncio.Future[Any] | None) -> None:
        self.context = context
        self.request = request
        self.future = future
        self.parts: list[Part] | None = None
        """The encoded answer, which waits for those of earlier requests; None while the handler has not
        finished."""
        self.held_bytes = 0
        """Bytes in memory of `parts`."""


class ServerConnection(asyncio.BufferedProtocol):
    """One accepted connection."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._dispatcher = listener.dispatcher
        self._limits = listener.limits
        self._loop = listener.loop
        self._reader = FrameReader(self._allow, self._deliver)
        self._slots: deque[_Slot] = deque()
        self._held_bytes = 0
        self._request_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._output: SocketOutput | TransportOutput | None = None
        self._draining = False
        self._ended = False
        self._decoding = False
        self._closing = False
        self._slice_started = 0.0
        self._resuming = False
        self._valid_requests = 0
        self._frame_started_at = 0.0
        self._last_active = 0.0
        self._close_callbacks: list[Callable[[], None]] = []
        self.peer_host = ""
        self.peer_port = 0
        self.id = ""
        self.principal = ANONYMOUS
        self.software_name = "unknown"
        self.software_version = "unknown"

    # -- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by name
        self._last_active = self._loop.time()
        sock = transport.get_extra_info("socket")
        peer = transport.get_extra_info("peername") or ("", 0)
        local = transport.get_extra_info("sockname") or ("", 0)
        self.peer_host, self.peer_port = str(peer[0]).removeprefix("::ffff:"), int(peer[1])
        self.id = f"{local[0]}:{local[1]}-{self.peer_host}:{self.peer_port}-{self._listener.next_number()}"
        if not self._listener.accepted(self):
            self._transport.abort()
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._listener.tls:
            self._output = TransportOutput(self._transport, self._drained)
            return
        try:
            self._output = SocketOutput(self._loop, sock.fileno(), self._drained, self._write_failed)
        except OSError as e:
            log.warning("[Listener %s] closing connection %s: %s", self._listener.name, self.id, e)
            self.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._last_active = self._loop.time()
        now = time.monotonic()
        if now - self._slice_started > SLICE_S:
            self._slice_started = now
        was_started = self._reader.started
        try:
            self._reader.received(nbytes)
        except ProtocolViolation as e:
            self._refuse(e)
            return
        if not was_started:
            self._frame_started_at = self._last_active
        self._regulate()

    def eof_received(self) -> bool:
        """The peer has closed its direction. True keeps ours open."""
        if self._listener.tls or self._closing:
            return False
        self._ended = True
        self._call_back()
        return self._owes() and not self._closing

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
        self._abandon()
        self._listener.lost(self)
        self._call_back()

    def _call_back(self) -> None:
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                log.exception(
                    "[Listener %s] a callback on the end of connection %s failed",
                    self._listener.name,
                    self.id,
                )

    # -- for handlers

    def on_close(self, callback: Callable[[], None]) -> None:
        """Calls back once, when this connection is gone or its peer sends no more (at once if it is so
        already)."""
        if self._closing or self._ended:
            self._loop.call_soon(callback)
        else:
            self._close_callbacks.append(callback)

    @property
    def closed(self) -> bool:
        return self._closing

    @property
    def ended(self) -> bool:
        """Whether nothing more is read; answers may still be due."""
        return self._ended

    def close(self) -> None:
        """Drops the connection now."""
        self._closing = True
        if self._output is not None:
            self._output.close()
        if self._transport is not None:
            self._transport.abort()

    # -- reading

    def _allow(self, length: int, head: memoryview) -> None:
        limits = self._limits
        if length < 8 or length > limits.max_frame_bytes:
            raise ProtocolViolation(
                f"a request of {length} bytes; socket.request.max.bytes is {limits.max_frame_bytes}"
            )
        if not self._valid_requests and length > limits.first_frame_bytes:
            key, version = _PREFIX_AND_HEAD.unpack_from(head)
            if key == ApiKey.API_VERSIONS or not self._dispatcher.serves(key, version):
                raise ProtocolViolation(f"a first request of {length} bytes that is none of this listener's")

    def _deliver(self, frame: memoryview) -> bool:
        self._frame_started_at = self._last_active
        context = RequestContext(
            0,
            0,
            0,
            None,
            self._listener.name,
            self.principal,
            self.peer_host,
            self.peer_port,
            self.id,
            self.software_name,
            self.software_version,
            self._listener.security_protocol,
            self._last_active,
            len(frame),
            False,
            False,
            frame,
            self,
        )
        size = len(frame)
        if size > _INLINE_BYTES:
            (context.api_key,) = _KEY.unpack_from(frame)
            if _is_large(context):
                self._decode_in_thread(frame, context)
                return False
        self._handle(context, self._dispatcher.decode(frame, context))
        return self._may_go_on()

    def _decode_in_thread(self, frame: memoryview, context: RequestContext) -> None:
        """Millions of elements take seconds to decode, in which the loop must go on. Nothing is read
        meanwhile."""
        self._decoding = True
        future = self._loop.run_in_executor(self._listener.decoder(), self._dispatcher.decode, frame, context)
        future.add_done_callback(partial(self._decoded, context))

    def _decoded(self, context: RequestContext, future: asyncio.Future[Any]) -> None:
        self._decoding = False
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if self._closing:
            return
        if isinstance(error, ProtocolViolation):
            self._refuse(error)
            return
        if error is not None:
            log.error("[Listener %s] closing connection %s", self._listener.name, self.id, exc_info=error)
            self.close()
            return
        self._slice_started = time.monotonic()
        self._handle(context, future.result())
        self._regulate()
        if self._draining:
            self._listener.drained(self)

    def _handle(self, context: RequestContext, request: Any) -> None:
        """Runs the handler of a request; None stands for an ApiVersions request of an unknown version."""
        self._valid_requests += 1
        if request is None:
            response = self._dispatcher.unsupported_api_versions()
            context.api_version = 0
            self._answer(context, request, response)
            return
        try:
            result = self._dispatcher.dispatch(context, request)
        except Exception as e:
            self._answer(context, request, failure(context, request, e))
            return
        if result is None or not hasattr(result, "__await__"):
            if result is None or not _is_large(context):
                self._answer(context, request, result)
                return
            slot = _Slot(context, request, None)
            self._slots.append(slot)
            self._request_bytes += context.frame_size
            self._encode_in_thread(slot, result)
        else:
            future = self._start(result)
            slot = _Slot(context, request, future)
            self._slots.append(slot)
            self._request_bytes += context.frame_size
            future.add_done_callback(partial(self._finished, slot))

    def _may_go_on(self) -> bool:
        """Whether the next request may be started at once."""
        return not (self._closing or self._full() or time.monotonic() - self._slice_started > SLICE_S)

    def _full(self) -> bool:
        """Whether no further request may be started until answers have been written."""
        limits, output = self._limits, self._output
        if output is None:
            return False
        if self._decoding:
            return True
        if not self._slots:
            return output.buffered_bytes > limits.write_high_bytes
        return (
            len(self._slots) >= limits.max_in_flight
            or self._request_bytes >= limits.max_in_flight_bytes
            or self._held_bytes + output.buffered_bytes > limits.write_high_bytes
        )

    def _start(self, awaitable: Any) -> asyncio.Future[Any]:
        if isinstance(awaitable, asyncio.Future):
            return awaitable
        future: asyncio.Future[Any] = asyncio.ensure_future(awaitable, loop=self._loop)
        return future

    def _regulate(self) -> None:
        """Reads on, or not, by what is in flight."""
        transport, output = self._transport, self._output
        if self._closing or transport is None or output is None:
            return
        if self._ended:
            if not self._owes():
                self.close()
            elif self._reader.stopped and not (self._draining or self._full()):
                self._take_turn()
            return
        if self._draining or self._full():
            if transport.is_reading():
                transport.pause_reading()
            return
        if self._reader.stopped and not self._reader.has_backlog:
            self._reader.resume()
        if self._reader.stopped:
            # The bytes behind the request that was the last of this turn wait for a later one.
            if transport.is_reading():
                transport.pause_reading()
            self._take_turn()
        elif not transport.is_reading():
            self._frame_started_at = (
                self._loop.time()
            )  # the peer could not send the rest of its request until now
            transport.resume_reading()

    def _owes(self) -> bool:
        """Whether requests wait to be handled, or answers to be taken by the peer."""
        output = self._output
        return (
            bool(self._slots)
            or self._decoding
            or self._reader.has_backlog
            or (output is not None and output.pending)
        )

    def _take_turn(self) -> None:
        """Goes on with what has been read in a later turn of the loop."""
        if not self._resuming:
            self._resuming = True
            self._listener.turns.add(self._resume)

    def _resume(self) -> None:
        self._resuming = False
        if self._closing or self._draining or self._full():
            return  # `_regulate` comes back here when there is room again
        self._slice_started = time.monotonic()
        try:
            self._reader.resume()
        except ProtocolViolation as e:
            self._refuse(e)
            return
        except Exception:
            self.close()
            raise
        self._regulate()

    def _refuse(self, violation: ProtocolViolation) -> None:
        log.warning("[Listener %s] closing connection %s: %s", self._listener.name, self.id, violation)
        self._ended = True
        self._reader.discard()
        self._call_back()
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()
        self._regulate()

    # -- answering

    def _answer(self, context: RequestContext, request: Any, response: Any) -> None:
        """An answer that is there at once."""
        if self._closing or (response is None and not self._slots):
            return
        try:
            parts = self._encode(context, response)
        except Exception as e:
            self._no_answer(context, e)
            return
        if self._slots:
            slot = _Slot(context, request, None)
            self._hold(slot, parts)
            self._slots.append(slot)
        elif parts:
            assert self._output is not None
            self._output.write(parts)

    def _encode(self, context: RequestContext, response: Any) -> list[Part]:
        """The answer with its length; nothing for None. Raises what keeps it from being encoded."""
        if response is None:
            return []
        parts = encode_response(context.correlation_id, context.api_key, context.api_version, response)
        size = 0
        for part in parts:
            size += len(part)
        prefix = _PREFIX.pack(size)
        if size <= _JOIN_BYTES and not any(isinstance(p, FileRegion) for p in parts):
            return [b"".join([prefix, *parts])]  # type: ignore[list-item]
        return [prefix, *parts]

    def _hold(self, slot: _Slot, parts: list[Part]) -> None:
        """Keeps an answer until those of earlier requests are there."""
        slot.parts = parts
        for part in parts:
            if not isinstance(part, FileRegion):
                slot.held_bytes += len(part)
        self._held_bytes += slot.held_bytes

    def _finished(self, finished: _Slot, future: asyncio.Future[Any]) -> None:
        """A handler has finished: writes every answer that is ready and whose turn it is, at one go."""
        if self._closing:
            if not future.cancelled():
                future.exception()  # asyncio reports an exception that nobody has looked at
            return
        try:
            response = self._result(finished)
            if response is not None and _is_large(finished.context):
                self._encode_in_thread(finished, response)
                return
            parts = self._encode(finished.context, response)
        except Exception as e:
            self._no_answer(finished.context, e)
            return
        self._ready(finished, parts)

    def _encode_in_thread(self, slot: _Slot, response: Any) -> None:
        """The answer to a request of very many elements has as many: see `_decode_in_thread`."""
        future = self._loop.run_in_executor(self._listener.decoder(), self._encode, slot.context, response)
        future.add_done_callback(partial(self._encoded, slot))

    def _encoded(self, slot: _Slot, future: asyncio.Future[list[Part]]) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if self._closing:
            return
        if error is not None:
            self._no_answer(slot.context, error)
            return
        self._ready(slot, future.result())

    def _no_answer(self, context: RequestContext, error: BaseException) -> None:
        """The answers behind one that cannot be given cannot be sent any more."""
        log.error(
            "[Listener %s] the answer to %s version %d from %s cannot be encoded; closing the connection",
            self._listener.name,
            ApiKey(context.api_key).name,
            context.api_version,
            self.id,
            exc_info=error,
        )
        self.close()

    def _ready(self, finished: _Slot, parts: list[Part]) -> None:
        """An answer is encoded."""
        self._request_bytes -= finished.context.frame_size
        self._hold(finished, parts)
        slots = self._slots
        if finished is not slots[0]:
            self._regulate()
            return
        out: list[Part] = []
        while slots and slots[0].parts is not None:
            slot = slots.popleft()
            out.extend(slot.parts or ())
            self._held_bytes -= slot.held_bytes
        if out and self._output is not None and not self._closing:
            self._last_active = self._loop.time()
            if (
                len(out) > 1
                and not any(isinstance(p, FileRegion) for p in out)
                and sum(map(len, out)) <= _JOIN_BYTES
            ):
                out = [b"".join(out)]  # type: ignore[arg-type]
            self._output.write(out)
        self._regulate()
        if self._draining:
            self._listener.drained(self)

    def _result(self, slot: _Slot) -> Any:
        assert slot.future is not None
        if slot.future.cancelled():
            return failure(slot.context, slot.request, asyncio.CancelledError())
        error = slot.future.exception()
        return slot.future.result() if error is None else failure(slot.context, slot.request, error)

    def _abandon(self) -> None:
        """Forgets the answers that are due, and ends the handlers that only wait for something to answer."""
        slots = list(self._slots)
        self._slots.clear()
        self._held_bytes = self._request_bytes = 0
        for slot in slots:
            if slot.future is not None and slot.context.api_key in WAITS_ONLY:
                slot.future.cancel()

    def _drained(self) -> None:
        self._last_active = self._loop.time()
        self._regulate()

    def _write_failed(self, error: OSError) -> None:
        log.debug("[Listener %s] writing to %s ended: %s", self._listener.name, self.id, error)
        self.close()

    # -- the listener's calls

    def check(self, now: float) -> None:
        """Ends the connection when it has been idle, or has not moved, for too long."""
        limits = self._limits
        reason = None
        output, transport = self._output, self._transport
        if output is not None and output.pending:
            if now - output.progressed_at > limits.max_idle_s:
                reason = f"took none of its answer for {limits.max_idle_s:g} s"
        elif self._ended:
            if now - self._last_active > limits.max_idle_s:
                reason = f"half closed for {limits.max_idle_s:g} s"
        elif self._reader.started and transport is not None and transport.is_reading():
            allowed = limits.frame_stall_s + self._reader.expected / limits.frame_min_rate
            if now - self._frame_started_at > allowed:
                reason = f"sent less than its request within {allowed:g} s"
        elif not self._slots and not self._decoding:
            if not self._valid_requests and now - self._last_active > limits.first_request_s:
                reason = f"sent no request for {limits.first_request_s:g} s"
            elif now - self._last_active > limits.max_idle_s:
                reason = f"idle for {limits.max_idle_s:g} s"
        if reason is not None:
            log.info("[Listener %s] closing connection %s: %s", self._listener.name, self.id, reason)
            self.close()

    def drain(self) -> bool:
        """Reads no more; True when nothing is in flight that is worth a wait. The listener hears of the
        end by `drained`.

        A Fetch that waits for records may do so for as long as its client likes, and has nothing to
        tell. Apache Kafka closes such connections at once.
        """
        self._draining = True
        self._regulate()
        return not self._decoding and all(
            slot.parts is None and slot.context.api_key in WAITS_ONLY for slot in self._slots
        )
