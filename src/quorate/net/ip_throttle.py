"""Limits the rate at which one IP address opens connections (KIP-612, client quota
`connection_creation_rate`).

A connection above the rate is not read. It is closed after the time by which its address is ahead, at most
one second later, as in Apache Kafka: a client that connects again at once is slowed down.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Protocol

from quorate.net.accept_throttle import MAX_DELAY_S, WINDOW_S, WINDOWS
from quorate.net.limits import UNLIMITED
from quorate.net.sampled_rate import SampledRate

MAX_DELAYED = 64
"""The limit for connections of a listener that are open until their delay is over. Further ones are closed
at once: an address that is refused must not use up the descriptors of the node."""


class DelayedConnection(Protocol):
    """A connection that is above the rate of its address."""

    def hold(self, held: bool) -> None:
        """Stops to read requests, or continues."""
        ...

    def close(self) -> None:
        """Closes the connection, without an answer to its requests."""
        ...


class IpRates:
    """The rates of all addresses, at the listeners of one role together. Pure: the time is an argument, in
    monotonic seconds."""

    def __init__(self) -> None:
        self._default = UNLIMITED
        self._limits: Mapping[str, int] = {}
        self._rates: OrderedDict[str, SampledRate] = OrderedDict()
        """Of the addresses that have a limit, in the order of their last connections."""
        self._last_at: dict[str, float] = {}
        """The time of the last connection of each of them."""

    def set_limits(self, default: int, limits: Mapping[str, int]) -> None:
        """Changes the limits, in connections per second. `default` is for the addresses that `limits` does
        not have. What was recorded before still counts."""
        self._default, self._limits = default, limits

    def record(self, address: str, now: float) -> float:
        """Counts a connection, unless it is above the rate. Returns the seconds after which it is to be
        closed, 0.0 if it may stay."""
        limit = self._limits.get(address, self._default)
        if limit >= UNLIMITED:
            return 0.0
        rate = self._rates.get(address)
        if rate is None:
            rate = self._rates[address] = SampledRate(WINDOWS, WINDOW_S)
        self._rates.move_to_end(address)
        self._last_at[address] = now
        self._forget(now)
        rate.record(1, now)
        delay_s = min(rate.excess_s(limit, now), MAX_DELAY_S)
        if delay_s:
            rate.record(-1, now)
        return delay_s

    def __len__(self) -> int:
        """The number of addresses whose rate is known."""
        return len(self._rates)

    def _forget(self, now: float) -> None:
        """Forgets the addresses all of whose windows are over."""
        while (oldest := next(iter(self._rates))) and now - self._last_at[oldest] > (WINDOWS + 1) * WINDOW_S:
            del self._rates[oldest], self._last_at[oldest]


class IpThrottle:
    """The connections of one listener that are closed after a delay."""

    def __init__(self) -> None:
        self.rates = IpRates()
        """The listeners of a role share one."""
        self._delayed: dict[DelayedConnection, asyncio.TimerHandle] = {}

    @property
    def delayed(self) -> int:
        """The number of connections that wait for their end."""
        return len(self._delayed)

    def close_later(
        self, connection: DelayedConnection, delay_s: float, loop: asyncio.AbstractEventLoop
    ) -> bool:
        """Keeps a connection open for a time without reading it. Returns False if too many are: then it has
        to be closed at once."""
        if len(self._delayed) >= MAX_DELAYED:
            return False
        connection.hold(True)
        self._delayed[connection] = loop.call_later(delay_s, self._end, connection)
        return True

    def close_first(self) -> None:
        """Closes the connection that has waited longest, if there is one."""
        if self._delayed:
            connection = next(iter(self._delayed))
            self._delayed.pop(connection).cancel()
            connection.close()

    def close(self) -> None:
        """Closes the connections that wait for their end."""
        for connection, timer in self._delayed.items():
            timer.cancel()
            connection.close()
        self._delayed.clear()

    def _end(self, connection: DelayedConnection) -> None:
        del self._delayed[connection]
        connection.close()
