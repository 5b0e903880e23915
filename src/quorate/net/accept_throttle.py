"""Limits the rate at which a listener takes new connections (KIP-612).

A connection above the rate is accepted, and its requests wait until its turn comes. So its client
waits, as it does in Apache Kafka, where such a connection stays in the queue of the socket.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from typing import Protocol

from quorate.net.limits import UNLIMITED
from quorate.net.sampled_rate import SampledRate

WINDOWS, WINDOW_S = 11, 1.0
"""The defaults of quota.window.num and quota.window.size.seconds."""
MAX_DELAY_S = WINDOW_S
"""The longest wait that one connection above the rate causes. So a rate of zero lets one in each second."""


class Held(Protocol):
    """A connection that may have to wait."""

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        ...

    def hold(self, held: bool) -> None:
        """Lets the requests of the connection wait, or ends that."""
        ...


def peer_has_closed(fd: int) -> bool:
    """Whether the peer of a socket has closed its sending direction, even if there is something
    left to read."""
    poll = select.poll()
    poll.register(fd, select.POLLRDHUP)
    return bool(poll.poll(0))


class ConnectionRate:
    """The rate of new connections of one listener, or of all listeners of a role together."""

    def __init__(self) -> None:
        self.limit = UNLIMITED
        """`max.connection.creation.rate`, in connections per second."""
        self._rate = SampledRate(WINDOWS, WINDOW_S)

    def record(self, now: float) -> float:
        """Counts a connection. Returns the seconds that it has to wait."""
        self._rate.record(1, now)
        return min(self._rate.excess_s(self.limit, now), MAX_DELAY_S)


class AcceptThrottle:
    """The connections of one listener that wait for their turn, in the order in which they were accepted."""

    def __init__(self) -> None:
        self.rate = ConnectionRate()
        """The listener's own."""
        self.shared: ConnectionRate | None = None
        """That of all listeners together. None exempts the listener."""
        self._waiting: deque[tuple[Held, int]] = deque()
        """With their descriptors."""
        self._timer: asyncio.TimerHandle | None = None
        self._has_free_turn = False
        """Whether a turn has come when the clients of all that waited had given up."""

    def accepted(self, connection: Held, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        """Counts a new connection, whose descriptor is `fd`. Its requests wait for its turn."""
        if self._timer is None:
            if self._has_free_turn:
                self._has_free_turn = False
                return
            delay_s = self._record(loop.time())
            if not delay_s:
                return
            self._timer = loop.call_later(delay_s, self._next, loop)
        connection.hold(True)
        self._waiting.append((connection, fd))

    def close(self) -> None:
        """Forgets the connections that wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()

    def _record(self, now: float) -> float:
        own = self.rate.record(now)
        return own if self.shared is None else max(own, self.shared.record(now))

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Takes the connection whose wait is over, and those behind it that need not wait.

        One whose client has given up takes no turn. Otherwise clients that give up after a while
        and come again would wait behind what they have left, and none of them would ever be served.
        If no other waits, the turn is that of the next connection: its client may have given up
        just before.
        """
        self._timer = None
        is_counted = True
        while self._waiting:
            connection, fd = self._waiting[0]
            # A connection that is held does not read, and is not told of the end.
            if not (connection.closed or peer_has_closed(fd)):
                delay_s = 0.0 if is_counted else self._record(loop.time())
                if delay_s:
                    self._timer = loop.call_later(delay_s, self._next, loop)
                    return
                is_counted = False
            self._waiting.popleft()
            connection.hold(False)
        self._has_free_turn = is_counted
