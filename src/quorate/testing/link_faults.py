"""Cuts links between nodes inside their processes. Both ends see the effects of a lost link. It needs no
root.

Each connection between two nodes was opened by one of them with `create_connection` of its event loop, which
is replaced. On a cut link no bytes are sent or received, a connection that is closed stays open for the peer,
and new connections are not established. No bytes are lost: they are sent when the link is restored, as TCP
does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast
from weakref import WeakSet

from quorate.testing.messages import LinkFault


class Links:
    """The outgoing connections of one event loop. Used in that loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, redirects: Iterable[tuple[str, int, int]]) -> None:
        self._loop = loop
        self._connect = loop.create_connection
        self._redirects = {(host, old): new for host, old, new in redirects}
        self._cut: frozenset[int] = frozenset()
        self._changed = asyncio.Event()
        self._transports: WeakSet[CuttableTransport] = WeakSet()

    def apply(self, fault: LinkFault) -> None:
        self._cut = frozenset(fault.cut_ports)
        for transport in list(self._transports):
            transport.set_cut(transport.port in self._cut)
        self._changed.set()
        self._changed = asyncio.Event()

    async def create_connection(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: Any
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Like `loop.create_connection`. It waits while the link is cut, as if the SYN got no answer."""
        port = self._redirects.get((host, port), port)
        while port in self._cut:
            await self._changed.wait()
        opening = _Opening(self, factory, port)
        try:
            await self._connect(lambda: opening, host, port, **options)
        except BaseException:
            # uvloop closes a connection whose opening is cancelled without telling its protocol.
            if opening.transport is not None:
                self._transports.discard(opening.transport)
            raise
        assert opening.transport is not None
        return opening.transport, opening.protocol

    def opened(self, transport: CuttableTransport) -> None:
        self._transports.add(transport)
        transport.set_cut(transport.port in self._cut)


class _Opening(asyncio.Protocol):
    """Receives the connection and gives the actual protocol a transport that can be cut."""

    def __init__(self, links: Links, factory: Callable[[], asyncio.BaseProtocol], port: int) -> None:
        self.transport: CuttableTransport | None = None
        self._links = links
        self._port = port
        self.protocol = factory()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connected = cast(asyncio.Transport, transport)
        connected.set_protocol(self.protocol)
        self.transport = CuttableTransport(connected, self.protocol, self._port)
        self.protocol.connection_made(self.transport)
        self._links.opened(self.transport)


class CuttableTransport(asyncio.Transport):
    """A connection whose link can be cut. Meanwhile, written bytes are held back, and the peer does not
    notice `close`.
    """

    def __init__(self, transport: asyncio.Transport, protocol: asyncio.BaseProtocol, port: int) -> None:
        super().__init__()
        self.port = port
        self._transport = transport
        self._protocol = protocol
        self._cut = False
        self._paused = False
        self._held: list[bytes] = []
        self._end: Callable[[], None] | None = None
        """Closes the connection when the link is restored, if it was closed meanwhile."""

    def set_cut(self, cut: bool) -> None:
        if cut == self._cut or self._transport.is_closing():
            return
        self._cut = cut
        if cut:
            self._transport.pause_reading()
            return
        if self._held:
            self._transport.writelines(self._held)
            self._held = []
        if self._end is not None:
            self._end()
        elif not self._paused:
            self._transport.resume_reading()

    def write(self, data: Any) -> None:
        if not self._cut:
            self._transport.write(data)
        elif self._end is None:
            self._held.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if not self._cut:
            self._transport.writelines(list_of_data)
        elif self._end is None:
            self._held += map(bytes, list_of_data)

    def close(self) -> None:
        self._close(self._transport.close)

    def abort(self) -> None:
        self._close(self._transport.abort)

    def _close(self, end: Callable[[], None]) -> None:
        if not self._cut:
            end()
        elif self._end is None:
            self._end = end
            self._transport.set_protocol(asyncio.Protocol())  # ignores the later end of the real connection
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def pause_reading(self) -> None:
        self._paused = True
        if not self._cut:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if not self._cut:
            self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._end is not None or self._transport.is_closing()

    def is_reading(self) -> bool:
        return not self._paused and not self.is_closing()

    def write_eof(self) -> None:
        self._transport.write_eof()

    def can_write_eof(self) -> bool:
        return False  # a half-closed connection would need to be held as well; no connection of a node is

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + sum(map(len, self._held))

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._transport.get_write_buffer_limits()
