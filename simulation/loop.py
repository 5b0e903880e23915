"""An asyncio event loop on virtual time: nothing waits, the next timer is now. One thread, no sockets, no executor threads.

Callbacks belong to the process in whose context they were made. Those of a dead process never run, those of a paused or
blocked one wait. So a killed process runs no `finally`, as in life.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

TICK_S = 1e-9  # at least so much passes between two timers: a clock never stands still
TURNS = 10_000  # callbacks in one instant: more is a loop that burns a processor


class Host(Protocol):
    """A simulated process as the loop knows it."""

    alive: bool
    blocked_until: float
    tasks: dict[asyncio.Task[Any], None]

    def failed(self, error: BaseException) -> None: ...


HOST: contextvars.ContextVar[Host | None] = contextvars.ContextVar("host", default=None)


class CrashError(BaseException):
    """The simulated process ends here. No `except Exception` may stop it."""


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._clock_resolution = 1e-9
        self.touched: dict[Host, None] = {}  # whose callbacks ran since it was last emptied
        self.nobody = contextvars.Context()  # for callbacks of the world itself
        self.executor_delay: Callable[[], float] = lambda: 0.0
        self.set_exception_handler(self._unhandled)

    def time(self) -> float:
        return self._now

    # --- running ----------------------------------------------------------------------------------------------------

    def run_event(self) -> bool:
        """The next timer and all that follows from it in the same instant. False when there is none."""
        handle = self._next_timer()
        if handle is None:
            return False
        self._ready.append(handle)  # type: ignore[attr-defined]
        self.run_ready()
        return True

    def next_at(self) -> float | None:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0].cancelled():
            heapq.heappop(scheduled)._scheduled = False  # type: ignore[attr-defined]
        return scheduled[0].when() if scheduled else None

    def _next_timer(self) -> asyncio.TimerHandle | None:
        at = self.next_at()
        if at is None:
            return None
        handle = heapq.heappop(self._scheduled)  # type: ignore[attr-defined]
        handle._scheduled = False
        self._now = max(self._now + TICK_S, at)
        return handle  # type: ignore[no-any-return]

    def run_ready(self) -> None:
        """Callbacks that are due, and those that they make due."""
        ready = self._ready  # type: ignore[attr-defined]
        turns = 0
        while ready:
            handle: asyncio.Handle = ready.popleft()
            if handle.cancelled():
                continue
            context: contextvars.Context = handle._context  # type: ignore[attr-defined]
            host = context.get(HOST)
            if host is not None:
                if not host.alive:
                    continue
                if host.blocked_until > self._now:
                    self._defer(handle, host.blocked_until)
                    continue
                self.touched[host] = None
            turns += 1
            if turns > TURNS:
                raise RuntimeError(f"{TURNS} callbacks in one instant, the last is {handle}")
            handle._run()

    def _defer(self, handle: asyncio.Handle, until: float) -> None:
        """Later, in the same order. A timer stays the handle that its owner may cancel."""
        if isinstance(handle, asyncio.TimerHandle):
            handle._when = until  # type: ignore[attr-defined]
            handle._scheduled = True  # type: ignore[attr-defined]
            heapq.heappush(self._scheduled, handle)  # type: ignore[attr-defined]
        else:
            callback, args = handle._callback, handle._args  # type: ignore[attr-defined]
            self.call_at(until, _unless_cancelled, handle, callback, args, context=handle._context)  # type: ignore[attr-defined]

    def advance(self, to: float) -> None:
        self._now = max(self._now, to)

    # --- tasks of processes -----------------------------------------------------------------------------------------

    def make_task(
        self, coroutine: Any, *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=self, name=name, context=context)
        host = HOST.get() if context is None else context.get(HOST)
        if host is not None:
            tasks = host.tasks
            tasks[task] = None
            task.add_done_callback(lambda done: tasks.pop(done, None))
        return task

    def bury(self, host: Host) -> None:
        """Closes what a dead process has left suspended."""
        for task in list(host.tasks):
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                try:
                    task.get_coro().close()
                except BaseException as e:  # whatever its `finally` runs into
                    if not isinstance(e, OSError | RuntimeError | CrashError):
                        raise
        host.tasks.clear()

    def forget_all(self) -> None:
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, this is the running loop."""
        self._thread_id = threading.get_ident()
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)
            self._thread_id = None  # type: ignore[assignment]

    # --- what a base loop leaves to its kinds -------------------------------------------------------------------------

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        pass

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Runs a little later, in this thread; never if the process has died until then."""
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except CrashError:
                raise
            except BaseException as e:
                if not future.cancelled():
                    future.set_exception(e)
            else:
                if not future.cancelled():
                    future.set_result(result)

        self.call_later(self.executor_delay(), run)
        return future

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        host = HOST.get()
        if isinstance(error, CrashError) or (host is not None and not host.alive):
            return
        if host is not None and error is not None:
            host.failed(error)
        elif error is not None:
            raise error


def _unless_cancelled(handle: asyncio.Handle, callback: Any, args: Any) -> None:
    if not handle.cancelled():
        callback(*args)
