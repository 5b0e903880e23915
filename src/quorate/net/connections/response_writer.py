"""The half of a connection that writes the responses, in the order of their requests."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_module
from quorate.net.connections.output import Part, SocketOutput, TransportOutput
from quorate.net.connections.response_queue import PendingResponse, ResponseQueue, encode_frame
from quorate.protocol.api import ApiKey

if TYPE_CHECKING:
    from quorate.net.connections import release
    from quorate.net.connections.connection_owner import ConnectionOwner
    from quorate.net.dispatch import RequestContext
else:  # only large requests need it
    release = lazy_module("quorate.net.connections.release")

logger = logging.getLogger("quorate.net.connection")


class ResponseWriter:
    """Encodes and writes the responses of one connection. The other half, `ServerConnection`, reads."""

    def __init__(self, listener: ConnectionOwner) -> None:
        self._listener = listener
        self._dispatcher = listener.dispatcher
        self._loop = listener.loop
        self._responses = ResponseQueue()
        self._pending = self._responses.pending
        self._transport: asyncio.Transport | None = None
        self._output: SocketOutput | TransportOutput | None = None
        self._draining = self._closing = False
        self._last_active = 0.0
        self.id = ""

    def _update_reading(self) -> None:
        """Resumes or pauses reading according to the requests in flight."""
        raise NotImplementedError

    @property
    def closed(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Closes the connection now, without the pending responses."""
        self._closing = True
        if self._output is not None:
            self._output.close()
        if self._transport is not None:
            self._transport.abort()

    def _add_pending(self, context: RequestContext, request: Any, future: Any) -> PendingResponse:
        """Keeps the place of a response, which is written when `future` is done, if there is one."""
        pending = PendingResponse(context, request, future)
        self._pending.append(pending)
        self._responses.request_bytes += context.frame_size
        if future is not None:
            future.add_done_callback(partial(self._finished, pending))
        return pending

    def _answer(self, context: RequestContext, request: Any, response: Any) -> None:
        """Writes a response that is available immediately, or queues it after those of earlier requests."""
        if self._closing or (response is None and not self._pending):
            return
        try:
            parts = encode_frame(context, response)
        except Exception as e:
            self._encoding_failed(context, e)
            return
        if self._pending:
            pending = PendingResponse(context, request, None)
            self._responses.hold(pending, parts)
            self._pending.append(pending)
        elif parts:
            assert self._output is not None
            self._output.write(parts)

    def _finished(self, finished: PendingResponse, future: asyncio.Future[Any]) -> None:
        """A handler has finished: writes all responses that are ready and next in order, in one call."""
        if self._closing:
            if not future.cancelled():
                future.exception()  # otherwise asyncio reports an exception that was never retrieved
            if finished.context.is_large:
                self._listener.release(finished.take_messages())
            return
        if finished.context.is_large:
            self._encode_in_thread(finished, finished.take_messages())
            return
        try:
            parts = encode_frame(finished.context, finished.response(self._dispatcher))
        except Exception as e:
            self._encoding_failed(finished.context, e)
            return
        self._write_in_order(finished, parts)

    def _encode_in_thread(self, pending: PendingResponse, messages: list[Any]) -> None:
        """Encodes the response to a large request in a thread, and frees all of `messages` there."""
        if isinstance(messages[0], BaseException):
            self._dispatcher.count_failure(pending.context, messages[0])
        decoder = self._listener.decoder()
        future = self._loop.run_in_executor(decoder, release.encode_and_release, pending.context, messages)
        future.add_done_callback(partial(self._encoded, pending))

    def _encoded(self, pending: PendingResponse, future: asyncio.Future[list[Part]]) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if self._closing:
            return
        if error is not None:
            self._encoding_failed(pending.context, error)
        else:
            self._write_in_order(pending, future.result())

    def _encoding_failed(self, context: RequestContext, error: BaseException) -> None:
        """Closes the connection, because the responses after this one can no longer be written."""
        text = "[Listener %s] the answer to %s version %d from %s cannot be encoded; closing the connection"
        api = ApiKey(context.api_key).name
        logger.error(text, self._listener.name, api, context.api_version, self.id, exc_info=error)
        self._write_ready()
        self.close()

    def _write_in_order(self, finished: PendingResponse, parts: list[Part]) -> None:
        """Writes an encoded response and the ready ones after it, unless an earlier one is still missing. If
        the handler of the next request has finished too, its callback writes both in one call."""
        responses = self._responses
        responses.request_bytes -= finished.context.frame_size
        responses.hold(finished, parts)
        if not responses.next_finishes_now:
            self._write_ready()
        self._update_reading()
        if self._draining:
            self._listener.check_drained()

    def _write_ready(self) -> None:
        """Writes the responses that are next in order, in one call."""
        out = self._responses.take_ready()
        if out and self._output is not None and not self._closing:
            self._last_active = self._loop.time()
            self._output.write(out)

    def _output_emptied(self) -> None:
        self._last_active = self._loop.time()
        self._update_reading()

    def _write_failed(self, error: OSError) -> None:
        logger.debug("[Listener %s] writing to %s ended: %s", self._listener.name, self.id, error)
        self.close()
