"""Shares the time of the event loop among connections whose requests arrive faster than they are handled.

When its bytes arrive, a connection handles requests for at most `SLICE_S`. It handles the rest in later
turns of the loop, for which this queue gives the order: first come, first served. In one turn, all
connections of a listener together take at most `TURN_S`. A client that pipelines many slow requests
delays others only by a few milliseconds. Apache Kafka has the same effect because it takes one request
of a connection at a time (SocketServer mutes the connection meanwhile).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

logger = logging.getLogger(__name__)

SLICE_S = 0.004
"""The time of one connection. The last request that is started within it may take longer."""

TURN_S = 0.004
"""The time of all waiting connections in one turn of the loop. No callback should take over 5 ms."""


T = TypeVar("T")
R = TypeVar("R")


def run_steps(steps: Iterator[None]) -> None:
    """Runs all steps in this turn of the event loop, as `Rounds.collect` does in several."""
    for _ in steps:
        pass


class Rounds:
    """Divides requests about very many elements into slices, of which one runs in each turn of the event
    loop. Concurrent requests take turns."""

    __slots__ = ("_at_once", "_lock")

    def __init__(self, at_once: int) -> None:
        """`at_once`: the number of elements up to which a request is answered in one turn."""
        self._at_once = at_once
        self._lock = asyncio.Lock()

    def answer(self, count: int, results: Iterator[T], response: Callable[[list[T]], R]) -> R | Awaitable[R]:
        """Returns the response that `response` makes of all results, or an awaitable of it if there are
        many.

        `results` computes one result for each of `count` elements, in some microseconds each.
        """
        if count <= self._at_once:
            return response(list(results))
        return self._in_slices(results, response)

    async def _in_slices(self, results: Iterator[T], response: Callable[[list[T]], R]) -> R:
        return response(await self.collect(results))

    async def collect(self, results: Iterator[T]) -> list[T]:
        """Returns all results, computed in slices."""
        done: list[T] = []
        while True:
            async with self._lock:  # is fair: requests that wait for it continue first
                ends = time.monotonic() + SLICE_S
                for result in results:
                    done.append(result)
                    if time.monotonic() >= ends:
                        break
                else:
                    return done
                await asyncio.sleep(0)


class TurnQueue:
    """The connections of one listener that have more requests to handle."""

    __slots__ = ("_loop", "_scheduled", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        """The number of connections that wait for their turn."""
        return len(self._waiting)

    def add(self, handle_more: Callable[[], None]) -> None:
        """Calls `handle_more` in a later turn. It adds itself again if requests remain."""
        self._waiting.append(handle_more)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        waiting = self._waiting
        end = time.monotonic() + TURN_S
        while waiting:
            handle_more = waiting.popleft()
            try:
                handle_more()
            except Exception:  # an error of one connection must not stop the others
                logger.exception("a connection's turn failed")
            if time.monotonic() >= end:
                break
        self._scheduled = bool(waiting)
        if waiting:
            self._loop.call_soon(self._run)
