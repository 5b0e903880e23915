"""A TCP proxy in front of a listener that resets its connections on request."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator


class _End(asyncio.Protocol):
    """One end of a proxied connection. Bytes that arrive before the other end is connected wait."""

    def __init__(self, proxy: ResettingProxy) -> None:
        self.proxy = proxy
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None
        self.early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.proxy.ends.add(self)

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.early += data
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.proxy.ends.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def reset(self) -> None:
        assert self.transport is not None
        sock: socket.socket = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class ResettingProxy:
    """Listens on `port` of 127.0.0.1 in a thread of its own, for `upstream_port`."""

    def __init__(self, port: int, upstream_port: int) -> None:
        self.port = port
        self.ends: set[_End] = set()
        self.resets = 0
        self._upstream_port = upstream_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._joining: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def running(self) -> Iterator[ResettingProxy]:
        self._thread.start()
        self.listen()
        try:
            yield self
        finally:
            self.refuse()
            self.reset()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    def listen(self) -> None:
        """Accepts connections again."""

        async def serve() -> None:
            self._server = await self._loop.create_server(self._accept, "127.0.0.1", self.port)

        asyncio.run_coroutine_threadsafe(serve(), self._loop).result(10)

    def refuse(self) -> None:
        """Closes the listening socket, so that new connections are refused. Established ones continue."""

        async def close() -> None:
            if self._server is not None:
                self._server.close()

        asyncio.run_coroutine_threadsafe(close(), self._loop).result(10)

    def reset(self) -> None:
        """Resets all connections, in both directions."""

        async def reset_all() -> None:
            ends = tuple(self.ends)
            self.resets += bool(ends)
            for end in ends:
                end.reset()

        asyncio.run_coroutine_threadsafe(reset_all(), self._loop).result(10)

    def _accept(self) -> _End:
        end = _End(self)
        task = self._loop.create_task(self._join(end))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)
        return end

    async def _join(self, end: _End) -> None:
        try:
            _, upstream = await self._loop.create_connection(
                lambda: _End(self), "127.0.0.1", self._upstream_port
            )
        except OSError:
            upstream = None
        if upstream is None or end not in self.ends:
            for left in (end, upstream):
                if left is not None and left.transport is not None:
                    left.transport.abort()
            return
        end.other, upstream.other = upstream, end
        assert end.transport is not None and upstream.transport is not None
        upstream.transport.write(end.early)
        end.transport.write(upstream.early)
