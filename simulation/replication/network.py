"""Connections between simulated processes: in memory, with Kafka's frames as bytes.

A connection carries its frames in order, each with a delay of its own. A cut link holds them back; when it
heals they arrive late, or the connection is reset. So a request can be carried out although its response
never arrives, and a response can arrive long after the state that it describes is gone.

`NetworkLoop.create_connection` opens a connection, so brokers and clients use the real `Connection` and
`NodeChannel`. The accepting end is `AcceptedConnection`, which runs the real dispatcher: the real
`ServerConnection` writes to a file descriptor of the kernel.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from quorate.net.connections.response_queue import encode_frame
from quorate.net.dispatch import CANCELLABLE_APIS, Dispatcher, RequestContext, failure
from quorate.net.errors import NetError, ProtocolViolation
from quorate.protocol.file_region import FileRegion
from simulation.nodes.loop import CALLBACK_OWNER, CallbackOwner, VirtualLoop

Address = tuple[str, int]
_PREFIX = 4


class Server(Protocol):
    """A process that accepts connections while it has a dispatcher."""

    dispatcher: Dispatcher | None
    context: contextvars.Context
    alive: bool


class Surroundings(Protocol):
    """The part of the environment that the network uses."""

    @property
    def now(self) -> float: ...
    def message_delay(self) -> float: ...
    def resets_message(self) -> bool: ...
    def resets_held_connection(self) -> bool: ...
    def schedule(self, at: float, action: Callable[[], object]) -> None: ...


class NetworkLoop(VirtualLoop):
    """The event loop of all processes, which opens connections on the simulated network."""

    network: Network

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error of a request that its sender no longer waits for is none of a process."""
        if not isinstance(context.get("exception"), NetError):
            super()._unhandled(loop, context)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> tuple[Any, Any]:
        return await self.network.connect(protocol_factory, (host, port))


class _End:
    """One end of a connection: who owns it, and what is on the way to it."""

    __slots__ = ("arrives_at", "context", "held", "host", "inbox", "open", "receive", "receive_end")

    def __init__(self, host: str, context: contextvars.Context) -> None:
        self.host = host
        self.context = context
        self.arrives_at = 0.0
        self.inbox: deque[bytes | None] = deque()
        """Frames that are under way, in order; None is the end of the stream."""
        self.held: list[bytes | None] = []
        """Frames that a cut holds back. They are older than those in `inbox`."""
        self.open = True
        self.receive: Callable[[bytes], None]
        self.receive_end: Callable[[], None]


class Link:
    """One connection, from `ends[0]`, which opened it, to `ends[1]`."""

    __slots__ = ("_network", "ends")

    def __init__(self, network: Network, opener: _End, acceptor: _End) -> None:
        self._network = network
        self.ends = (opener, acceptor)

    def send(self, to: int, frame: bytes | None) -> None:
        """Sends a frame, or the end of the stream, to `ends[to]`."""
        network, end = self._network, self.ends[to]
        if network.is_cut(self.ends[1 - to].host, end.host) or end.held:
            end.held.append(frame)
            return
        if frame is not None and network.surroundings.resets_message():
            self.reset()
            return
        end.inbox.append(frame)
        self._schedule_arrival(to)

    def _schedule_arrival(self, to: int) -> None:
        network, end = self._network, self.ends[to]
        end.arrives_at = max(end.arrives_at, network.surroundings.now + network.surroundings.message_delay())
        network.loop.call_at(end.arrives_at, self._arrive, to, context=end.context)

    def _arrive(self, to: int) -> None:
        end = self.ends[to]
        if not end.open or not end.inbox:
            return
        frame = end.inbox.popleft()
        if end.held or self._network.is_cut(self.ends[1 - to].host, end.host):
            end.held.append(frame)
        elif frame is None:
            self._end_of(end)
        else:
            end.receive(frame)

    def _end_of(self, end: _End) -> None:
        if end.open:
            end.open = False
            end.receive_end()
        if not any(end.open for end in self.ends):
            self._network.links.pop(self, None)

    def close(self, closer: int) -> None:
        """Closes one end. The other one learns of it after a delay."""
        if self.ends[closer].open:
            self.ends[closer].open = False
            self.send(1 - closer, None)

    def reset(self) -> None:
        """Ends the connection for both ends, with all that is on the way."""
        for to in (0, 1):
            end = self.ends[to]
            if end.open:
                end.held.clear()
                end.inbox.clear()
                at = self._network.surroundings.now + self._network.surroundings.message_delay()
                self._network.loop.call_at(at, self._end_of, end, context=end.context)

    def heal(self) -> None:
        """Delivers what a cut has held back."""
        for to in (0, 1):
            end = self.ends[to]
            held, end.held = end.held, []
            end.inbox.extendleft(reversed(held))
            for _ in held:
                self._schedule_arrival(to)


class ClientTransport(asyncio.Transport):
    """The transport of the end that opened a connection."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self._link.send(1, b"".join(bytes(part) for part in list_of_data))

    def write(self, data: Any) -> None:
        self._link.send(1, bytes(data))

    def abort(self) -> None:
        self._link.close(0)

    def close(self) -> None:
        self._link.close(0)


class AcceptedConnection:
    """The end that accepted a connection. It keeps the order of requests and responses as `ServerConnection`
    does."""

    def __init__(self, link: Link, dispatcher: Dispatcher, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self._dispatcher = dispatcher
        self._loop = loop
        self._arrived: deque[bytes] = deque()
        """Requests that wait until those in `_waiting` are answered."""
        self._waiting: deque[tuple[RequestContext, Any, asyncio.Future[Any]]] = deque()
        self._close_callbacks: list[Callable[[], None]] = []
        self._closed = False
        self.software_name = self.software_version = "unknown"
        self.requests = 0

    def on_close(self, callback: Callable[[], None]) -> None:
        if self._closed:
            self._loop.call_soon(callback)
        else:
            self._close_callbacks.append(callback)

    def close(self) -> None:
        self._link.close(1)
        self.ended()

    def ended(self) -> None:
        """Cancels what only waits, and calls back those that wait for the end."""
        if self._closed:
            return
        self._closed = True
        for context, _, future in self._waiting:
            if context.api_key in CANCELLABLE_APIS:
                future.cancel()
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback()

    def receive(self, data: bytes) -> None:
        """Handles a request, at once or after the earlier ones."""
        self._arrived.append(data)
        self._start_arrived()

    def _start_arrived(self) -> None:
        while self._arrived and not self._closed and self._may_start(self._arrived[0]):
            self._handle(self._arrived.popleft())

    def _may_start(self, data: bytes) -> bool:
        if not self._waiting:
            return True
        key = int.from_bytes(data[_PREFIX : _PREFIX + 2], "big", signed=True)
        return self._dispatcher.may_overlap(key, self._waiting[-1][0])

    def _handle(self, data: bytes) -> None:
        frame = memoryview(bytearray(data))[_PREFIX:]
        context = RequestContext(
            0,
            0,
            0,
            None,
            "SIMULATED",
            received_at=self._loop.time(),
            frame_size=len(frame),
            frame=frame,
            connection=self,
        )
        try:
            request = self._dispatcher.decode(frame, context)
        except ProtocolViolation:
            self.close()
            return
        assert request is not None, "both ends know the same versions"
        self.requests += 1
        try:
            result = self._dispatcher.dispatch(context, request)
        except Exception as error:
            result = failure(context, request, error)
        if hasattr(result, "__await__"):
            future = asyncio.ensure_future(result, loop=self._loop)
        else:
            future = self._loop.create_future()
            future.set_result(result)
        self._waiting.append((context, request, future))
        if future.done():
            self._send_finished()
        else:
            future.add_done_callback(self._finished)

    def _finished(self, _: asyncio.Future[Any]) -> None:
        self._send_finished()
        self._start_arrived()

    def _send_finished(self) -> None:
        while self._waiting and self._waiting[0][2].done():
            context, request, future = self._waiting.popleft()
            if future.cancelled():
                continue
            error = future.exception()
            response = failure(context, request, error) if error is not None else future.result()
            if response is not None and not self._closed:
                parts = encode_frame(context, response)
                self._link.send(
                    0,
                    b"".join(part.read() if isinstance(part, FileRegion) else bytes(part) for part in parts),
                )


class Network:
    """All connections of a cluster."""

    def __init__(self, loop: NetworkLoop, surroundings: Surroundings) -> None:
        self.loop = loop
        self.surroundings = surroundings
        self.servers: dict[Address, Server] = {}
        self.unreachable: set[str] = set()
        """Hosts without power: they do not even refuse connections."""
        self.links: dict[Link, None] = {}
        self._cut: set[tuple[str, str]] = set()
        loop.network = self

    # --- links between hosts ----------------------------------------------------------------------

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut

    def cut(self, source: str, target: str) -> None:
        """Holds back all that one host sends to another."""
        self._cut.add((source, target))

    def heal(self, source: str, target: str) -> None:
        """Ends a cut. Some connections have been given up meanwhile."""
        if (source, target) not in self._cut:
            return
        self._cut.discard((source, target))
        for link in list(self.links):
            if {link.ends[0].host, link.ends[1].host} == {source, target} and any(
                end.held for end in link.ends
            ):
                if self.surroundings.resets_held_connection():
                    link.reset()
                else:
                    link.heal()

    def heal_all(self) -> None:
        for source, target in sorted(self._cut):
            self.heal(source, target)

    def died(self, host: str, owner: CallbackOwner, *, silently: bool) -> None:
        """Ends the connections of a process. Those of a host without power end when it is back."""
        for link in list(self.links):
            for side, end in enumerate(link.ends):
                if end.host == host and end.context.get(CALLBACK_OWNER) is owner and end.open:
                    end.open = False
                    if not silently:
                        link.send(1 - side, None)

    def rebooted(self, host: str) -> None:
        """Resets the connections whose other end was lost with the power."""
        self.unreachable.discard(host)
        for link in list(self.links):
            for side, end in enumerate(link.ends):
                if end.host == host and not end.open and link.ends[1 - side].open:
                    link.send(1 - side, None)

    # --- opening ----------------------------------------------------------------------------------

    async def connect(self, factory: Callable[[], Any], address: Address) -> tuple[Any, Any]:
        """Opens a connection for the process that calls. Raises ConnectionRefusedError; hangs if no
        answer arrives."""
        owner: Any = CALLBACK_OWNER.get()
        source, target = owner.host, address[0]
        for ends in ((source, target), (target, source)):
            if self.is_cut(*ends) or target in self.unreachable:
                await self.loop.create_future()
            await asyncio.sleep(self.surroundings.message_delay())
        server = self.servers.get(address)
        if server is None or not server.alive or server.dispatcher is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        link = Link(self, _End(source, contextvars.copy_context()), _End(target, server.context.copy()))
        protocol = factory()
        transport = ClientTransport(link)
        link.ends[0].receive = partial(_give, protocol)
        link.ends[0].receive_end = partial(protocol.connection_lost, None)
        accepted = AcceptedConnection(link, server.dispatcher, self.loop)
        link.ends[1].receive = accepted.receive
        link.ends[1].receive_end = accepted.ended
        self.links[link] = None
        protocol.connection_made(transport)
        return transport, protocol


def _give(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    """Gives bytes to a protocol as a socket does."""
    at = 0
    while at < len(data):
        buffer = memoryview(protocol.get_buffer(len(data) - at))
        size = min(len(buffer), len(data) - at)
        buffer[:size] = data[at : at + size]
        at += size
        protocol.buffer_updated(size)
