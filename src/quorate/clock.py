"""The clocks of brokers, controllers and Raft. They are passed in, so that tests can control the time."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

NEVER = float("inf")
"""A time that is never reached."""


class Clock(Protocol):
    """The wall clock for timestamps that are stored, and a monotonic clock for timeouts."""

    def now_ms(self) -> int:
        """The wall clock time in milliseconds since the Unix epoch."""
        ...

    def now(self) -> float:
        """The monotonic time in seconds."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now(self) -> float:
        return time.monotonic()


class LoopClock(SystemClock):
    """The wall clock of the system and the time of the running event loop. A simulation controls the
    timers and this clock together."""

    __slots__ = ()

    def now(self) -> float:
        return asyncio.get_running_loop().time()
