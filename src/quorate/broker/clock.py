"""The broker's view of time: handed in, so that tests and the simulation can turn the hands."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock for what is stored, monotonic clock for what is waited for."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...

    def now(self) -> float:
        """Monotonic seconds."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now(self) -> float:
        return time.monotonic()
