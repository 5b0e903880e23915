"""Shares the time of the event loop among connections whose requests have arrived faster than they are
handled.

A connection handles requests for at most `SLICE_S` when its bytes arrive. What is left goes on in a
later turn of the loop, in this queue: first come, first served, at most `TURN_S` of all connections of
a listener together in one turn. So a client that pipelines many slow requests delays the others by a
few milliseconds only. Apache Kafka has the same effect because it takes one request of a connection at
a time (SocketServer mutes the connection meanwhile).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

log = logging.getLogger(__name__)

SLICE_S = 0.003
"""For one connection at a time. The last request that is started within it may take longer."""

TURN_S = 0.004
"""For all waiting connections in one turn of the loop; no callback should take more than 5 ms."""


T = TypeVar("T")


class Rounds:
    """Handlers that look at very many elements take turns: a slice of one of them in a turn of the loop."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def collect(self, results: Iterator[T]) -> list[T]:
        """All of `results`, whose making is the work. Each one should take some microseconds."""
        done: list[T] = []
        while True:
            async with self._lock:  # who waits for it comes first, so that all get on
                ends = time.monotonic() + SLICE_S
                for result in results:
                    done.append(result)
                    if time.monotonic() >= ends:
                        break
                else:
                    return done
                await asyncio.sleep(0)


class TurnQueue:
    """The connections of one listener that have requests left to handle."""

    __slots__ = ("_loop", "_scheduled", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def add(self, handle_more: Callable[[], None]) -> None:
        """Calls `handle_more` in a later turn. It adds itself again if requests are left."""
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
            except Exception:  # a bug in what one connection does must not stop the others
                log.exception("a connection's turn failed")
            if time.monotonic() >= end:
                break
        self._scheduled = bool(waiting)
        if waiting:
            self._loop.call_soon(self._run)
