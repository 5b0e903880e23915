"""Time as the controller's driver reads it; handlers get it as an argument."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall clock: milliseconds since the Unix epoch."""
        ...

    def now(self) -> float:
        """Monotonic seconds."""
        ...


class LoopClock:
    """The wall clock, and the running loop's time, so that a simulation moves both the timers and what
    they read."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now(self) -> float:
        return asyncio.get_running_loop().time()
