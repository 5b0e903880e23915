"""Detects a core that asks to be woken again and again at the same time."""

from __future__ import annotations

INSTANT_S = 1e-6
MAX_WAKEUPS = 50  # within an instant: more are an endless loop


class WakeupLimit:
    """Counts the wake-ups of a replica within an instant."""

    def __init__(self) -> None:
        self._instant_began_at = 0.0
        self._wakeups = 0

    def admits(self, now: float) -> bool:
        """Counts a wake-up, and returns whether it is within the limit."""
        if now - self._instant_began_at > INSTANT_S:
            self._instant_began_at, self._wakeups = now, 0
        self._wakeups += 1
        return self._wakeups <= MAX_WAKEUPS
