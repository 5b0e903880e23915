"""The driver's timers, and how it waits for something to become true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quorate.raft.runtime.ports import Clock

NEVER = float("inf")


class DeadlineTimer:
    """Goes off at the earliest time it was set to; whoever hears it looks for itself whether it was too
    early."""

    def __init__(self, clock: Clock, goes_off: Callable[[], None]) -> None:
        self._clock = clock
        self._goes_off = goes_off
        self._timer: asyncio.TimerHandle | None = None
        self._at = NEVER

    def set(self, at: float) -> None:
        """at: in the clock's seconds."""
        if at >= self._at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        delay = max(0.0, at - self._clock.now())
        self._timer = asyncio.get_running_loop().call_later(delay, self._off)

    def _off(self) -> None:
        self._timer = None
        self._at = NEVER
        self._goes_off()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class PeriodicTimer:
    """Does something every so many seconds, until it is cancelled. What an action raises goes to the
    loop's exception handler, and the next one comes all the same."""

    def __init__(self, every_s: float, action: Callable[[], None]) -> None:
        self._every_s = every_s
        self._action = action
        self._timer: asyncio.TimerHandle | None = None
        self._cancelled = False

    def start(self, *, now: bool = False) -> None:
        if now:
            self._again()
        else:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._again)

    def _again(self) -> None:
        try:
            self._action()
        finally:
            if not self._cancelled:
                self._timer = asyncio.get_running_loop().call_later(self._every_s, self._again)

    def cancel(self) -> None:
        self._cancelled = True
        if self._timer is not None:
            self._timer.cancel()


class ConditionWaiter:
    """Lets somebody wait for a condition that is looked at after every change."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed: asyncio.Future[None] | None = None

    def notice(self) -> None:
        """Something has changed."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Returns when the condition holds or the time is over."""
        deadline = self._clock.now() + timeout_s
        while not condition():
            left = deadline - self._clock.now()
            if left <= 0:
                return
            self._changed = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._changed], timeout=left)
