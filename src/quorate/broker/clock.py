"""The clocks of a broker. They are passed in, so that tests and the simulation can control the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The wall clock for timestamps that are stored, and the monotonic clock for timeouts."""

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
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def now(self) -> float:
        """Monotonic time in seconds."""
        return time.monotonic()
