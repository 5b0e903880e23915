"""The clocks of the controller's driver. Handlers get the time as an argument."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

NEVER = float("inf")
"""A time that is never reached."""


class Clock(Protocol):
    """A wall clock and a monotonic clock."""

    def now_ms(self) -> int:
        """The wall clock, in milliseconds since the Unix epoch."""
        ...

    def now(self) -> float:
        """The monotonic time in seconds."""
        ...


class LoopClock:
    """The wall clock of the system and the time of the running event loop. A simulation controls the
    timers and this clock together."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now(self) -> float:
        return asyncio.get_running_loop().time()
