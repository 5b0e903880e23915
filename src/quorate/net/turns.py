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
from collections.abc import Callable

logger = logging.getLogger(__name__)

SLICE_S = 0.003
"""The time of one connection. The last request that is started within it may take longer."""

TURN_S = 0.004
"""The time of all waiting connections in one turn of the loop. No callback should take over 5 ms."""


class TurnQueue:
    """The connections of one listener that have more requests to handle."""

    __slots__ = ("_loop", "_scheduled", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False

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
