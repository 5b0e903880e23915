"""`Listener`: a bound address and the connections accepted on it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl as ssl_module
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_module
from quorate.net.accept_throttle import AcceptThrottle
from quorate.net.connections.connection import ServerConnection
from quorate.net.dispatch import Dispatcher, SecurityProtocol
from quorate.net.ip_throttle import IpThrottle
from quorate.net.limits import ConnectionLimits
from quorate.net.sockets import bind_sockets
from quorate.net.turns import TurnQueue

if TYPE_CHECKING:
    from quorate.net.connections import release
else:  # only large requests need it
    release = lazy_module("quorate.net.connections.release")

logger = logging.getLogger(__name__)


class Listener:
    """A listening socket, its connections and the dispatcher that their requests go to."""

    def __init__(self) -> None:
        self.name = ""
        self.host = ""
        self.port = 0
        self.tls = False
        self.security_protocol: int = SecurityProtocol.PLAINTEXT
        self.limits = ConnectionLimits()
        self.dispatcher: Dispatcher
        self.loop: asyncio.AbstractEventLoop
        self.turns: TurnQueue
        self.connections: set[ServerConnection] = set()
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.AbstractServer] = []
        self._by_address: dict[str, int] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self.throttle = AcceptThrottle()
        self.ip_throttle = IpThrottle()
        self._number = 0
        self._drain_waiter: asyncio.Future[None] | None = None
        self._refused_logged_at = -1e9
        self._decoder: ThreadPoolExecutor | None = None

    def bind(self, host: str, port: int, name: str) -> None:
        """Binds the address without accepting connections yet, so that a port in use is known before
        anything else is started.

        Port 0 binds a free port (see `port`). An empty host means every address. Raises ListenerError.
        """
        self.name, self.host = name, host
        self._sockets = bind_sockets(host, port, name)
        self.port = self._sockets[0].getsockname()[1]

    async def start(
        self,
        host: str,
        port: int,
        dispatcher: Dispatcher,
        name: str,
        limits: ConnectionLimits | None = None,
        *,
        security_protocol: int = SecurityProtocol.PLAINTEXT,
        ssl: ssl_module.SSLContext | None = None,
    ) -> None:
        """Accepts connections. Binds first if `bind` was not called. Raises ListenerError."""
        if not self._sockets:
            self.bind(host, port, name)
        self.dispatcher = dispatcher
        self.limits = limits or ConnectionLimits()
        self.security_protocol = security_protocol
        self.tls = ssl is not None
        self.loop = asyncio.get_running_loop()
        self.turns = TurnQueue(self.loop)
        for sock in self._sockets:
            server = await self.loop.create_server(
                lambda: ServerConnection(self), sock=sock, ssl=ssl, backlog=1024
            )
            self._servers.append(server)
        logger.info("[Listener %s] serving on %s:%d", self.name, self.host or "*", self.port)

    async def close(self, grace_s: float = 0.0) -> None:
        """Stops accepting and reading, waits up to `grace_s` seconds for responses in flight, and closes
        the connections."""
        for server in self._servers:
            server.close()
        for sock in self._sockets:
            sock.close()
        self._servers, self._sockets = [], []
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self.throttle.close()
        self.ip_throttle.close()
        busy = [c for c in self.connections if not c.drain()]
        if busy and grace_s > 0:
            self._drain_waiter = self.loop.create_future()
            try:
                async with asyncio.timeout(grace_s):
                    await self._drain_waiter
            except TimeoutError:
                logger.info(
                    "[Listener %s] dropping %d connections with requests in flight", self.name, len(busy)
                )
        for connection in list(self.connections):
            connection.close()
        if self._decoder is not None:
            self._decoder.shutdown(wait=False, cancel_futures=True)

    @property
    def accepted(self) -> int:
        """The number of connections since the start, including those that were refused."""
        return self._number

    @property
    def waiting(self) -> int:
        """The number of connections with requests that were read and not handled yet."""
        return len(self.turns) if self._servers else 0

    # -- called by connections (`ConnectionOwner`)

    def decoder(self) -> ThreadPoolExecutor:
        """The executor that decodes large requests. It has one thread: two would take twice as much time
        from the event loop."""
        if self._decoder is None:
            self._decoder = ThreadPoolExecutor(1, thread_name_prefix=f"decoder-{self.name}")
        return self._decoder

    def release(self, messages: list[Any]) -> None:
        """Frees the messages of a large request, whose connection is closed, in the decoder's thread."""
        with contextlib.suppress(RuntimeError):  # the listener is closed, too
            self.decoder().submit(release.release, messages)

    def next_number(self) -> int:
        """A number for the id of a connection."""
        self._number += 1
        return self._number

    def accept(self, connection: ServerConnection, fd: int) -> bool:
        """Adds a new connection, whose descriptor is `fd`. Returns False if it must be closed now, since a
        limit of connections is reached. One above the rate of its address is not added. It is closed later,
        or now if `MAX_DELAYED` such connections are open."""
        limits, address = self.limits, connection.peer_host
        delay_s = self.ip_throttle.rates.record(address, self.loop.time())
        if delay_s:
            has_room = len(self.connections) + self.ip_throttle.delayed < limits.max_connections
            return has_room and self.ip_throttle.close_later(connection, delay_s, self.loop)
        here = self._by_address.get(address, 0)
        allowed = limits.max_connections_per_ip_overrides.get(address, limits.max_connections_per_ip)
        if len(self.connections) >= limits.max_connections or here >= allowed:
            now = self.loop.time()
            if now - self._refused_logged_at > 1.0:  # a flood of connections must not flood the log
                self._refused_logged_at = now
                logger.warning(
                    "[Listener %s] refusing connections from %s: limit reached", self.name, address
                )
            return False
        if len(self.connections) + self.ip_throttle.delayed >= limits.max_connections:
            self.ip_throttle.close_first()  # its descriptors are those of this connection
        self._by_address[address] = here + 1
        self.connections.add(connection)
        self.throttle.accepted(connection, fd, self.loop)
        if self._sweep is None:
            self._schedule_sweep()
        return True

    def remove(self, connection: ServerConnection) -> None:
        """Removes a connection that has ended."""
        if connection not in self.connections:
            return
        self.connections.remove(connection)
        left = self._by_address.get(connection.peer_host, 1) - 1
        if left:
            self._by_address[connection.peer_host] = left
        else:
            self._by_address.pop(connection.peer_host, None)
        self.check_drained()

    def check_drained(self) -> None:
        """Ends the wait in `close` if no connection has a response in flight."""
        waiter = self._drain_waiter
        if waiter is not None and not waiter.done() and all(c.drain() for c in self.connections):
            waiter.set_result(None)

    def _schedule_sweep(self) -> None:
        limits = self.limits
        shortest = min(limits.max_idle_s, limits.first_request_s, limits.frame_stall_s)
        self._sweep = self.loop.call_later(min(5.0, max(0.02, shortest / 4)), self._check_all)

    def _check_all(self) -> None:
        """Checks all connections with one timer, so that an idle one costs a comparison every few seconds."""
        self._sweep = None
        now = self.loop.time()
        for connection in list(self.connections):
            connection.check(now)
        if self.connections:
            self._schedule_sweep()
