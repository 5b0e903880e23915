"""Timers of the driver, and waiting for a condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quorate.clock import Clock
from quorate.raft.core.role_state import NEVER


class DeadlineTimer:
    """Calls back at the earliest time to which it was set.

    A later deadline cannot replace an earlier one, so the callback must check whether it is due.
    """

    def __init__(self, clock: Clock, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._callback = callback
        self._timer: asyncio.TimerHandle | None = None
        self._at = NEVER

    def set(self, at: float) -> None:
        """Sets a deadline in the seconds of the clock, if there is no earlier one."""
        if at >= self._at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        delay = max(0.0, at - self._clock.now())
        self._timer = asyncio.get_running_loop().call_later(delay, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._at = NEVER
        self._callback()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class PeriodicTimer:
    """Runs an action at a fixed interval until it is cancelled.

    An exception of the action goes to the exception handler of the loop, and does not stop the timer.
    """

    def __init__(self, interval_s: float, action: Callable[[], None]) -> None:
        self._interval_s = interval_s
        self._action = action
        self._timer: asyncio.TimerHandle | None = None
        self._cancelled = False

    def start(self, *, now: bool = False) -> None:
        if now:
            self._run()
        else:
            self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._run)

    def _run(self) -> None:
        try:
            self._action()
        finally:
            if not self._cancelled:
                self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._run)

    def cancel(self) -> None:
        self._cancelled = True
        if self._timer is not None:
            self._timer.cancel()


class ConditionWaiter:
    """Waits for conditions, which are checked after every call of `notice`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed: asyncio.Future[None] | None = None

    def notice(self) -> None:
        """Reports that the condition may have changed."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Waits until the condition holds or the timeout has elapsed."""
        deadline = self._clock.now() + timeout_s
        while not condition():
            left = deadline - self._clock.now()
            if left <= 0:
                return
            if self._changed is None or self._changed.done():
                self._changed = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._changed], timeout=left)
