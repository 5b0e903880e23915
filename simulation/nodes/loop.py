"""An asyncio event loop on virtual time: instead of waiting it advances the clock to the next timer.

It uses one thread, no sockets and no executor threads. A callback belongs to the process in whose context
it was scheduled. Callbacks of a dead process never run, and those of a paused or blocked process are
deferred. So a killed process runs no `finally` block, as under a real SIGKILL.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

TICK_S = 1e-9  # the least time between two timers, so that the clock always advances
MAX_CALLBACKS = 10_000  # in one instant: more are an endless loop


class CallbackOwner(Protocol):
    """A simulated process, as far as the loop knows it."""

    alive: bool
    blocked_until: float
    tasks: dict[asyncio.Task[Any], None]

    def failed(self, error: BaseException) -> None: ...


CALLBACK_OWNER: contextvars.ContextVar[CallbackOwner | None] = contextvars.ContextVar("host", default=None)


class CrashError(BaseException):
    """Ends the simulated process at this point. A BaseException, so that no `except Exception` catches it."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop that all processes of a cluster share."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._clock_resolution = 1e-9
        # Owners of the callbacks that ran since this was last emptied.
        self.active_owners: dict[CallbackOwner, None] = {}
        # For callbacks of the simulation itself, which belong to no process.
        self.world_context = contextvars.Context()
        self.executor_delay: Callable[[], float] = lambda: 0.0
        self.set_exception_handler(self._unhandled)

    def time(self) -> float:
        return self._now

    # --- running ----------------------------------------------------------------------------------

    def run_event(self) -> bool:
        """Runs the next timer and all that follows from it in the same instant.

        Returns False if there is no timer.
        """
        handle = self._next_timer()
        if handle is None:
            return False
        self._ready.append(handle)  # type: ignore[attr-defined]
        self.run_ready()
        return True

    def next_at(self) -> float | None:
        """Returns the time of the next timer."""
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
        """Runs the callbacks that are due, and those that become due through them."""
        ready = self._ready  # type: ignore[attr-defined]
        callbacks = 0
        while ready:
            handle: asyncio.Handle = ready.popleft()
            if handle.cancelled():
                continue
            context: contextvars.Context = handle._context  # type: ignore[attr-defined]
            owner = context.get(CALLBACK_OWNER)
            if owner is not None:
                if not owner.alive:
                    continue
                if owner.blocked_until > self._now:
                    self._defer(handle, owner.blocked_until)
                    continue
                self.active_owners[owner] = None
            callbacks += 1
            if callbacks > MAX_CALLBACKS:
                raise RuntimeError(f"{MAX_CALLBACKS} callbacks in one instant, the last is {handle}")
            handle._run()

    def _defer(self, handle: asyncio.Handle, until: float) -> None:
        """Runs a callback later, after those that were deferred before it.

        A timer keeps the handle that its owner may cancel.
        """
        if isinstance(handle, asyncio.TimerHandle):
            handle._when = until  # type: ignore[attr-defined]
            handle._scheduled = True  # type: ignore[attr-defined]
            heapq.heappush(self._scheduled, handle)  # type: ignore[attr-defined]
        else:
            callback, args = handle._callback, handle._args  # type: ignore[attr-defined]
            self.call_at(until, _unless_cancelled, handle, callback, args, context=handle._context)  # type: ignore[attr-defined]

    def advance(self, to: float) -> None:
        """Moves the clock forward without running anything."""
        self._now = max(self._now, to)

    # --- tasks of processes -----------------------------------------------------------------------

    def task_factory(
        self,
        loop: Any,
        coroutine: Any,
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        """Makes a task that is counted among the tasks of its owner. To be set by `set_task_factory`."""
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=self, name=name, context=context)
        owner = CALLBACK_OWNER.get() if context is None else context.get(CALLBACK_OWNER)
        if owner is not None:
            tasks = owner.tasks
            tasks[task] = None
            task.add_done_callback(lambda done: tasks.pop(done, None))
        return task

    def close_tasks(self, owner: CallbackOwner) -> None:
        """Closes the coroutines that a dead process has left suspended."""
        for task in list(owner.tasks):
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                try:
                    task.get_coro().close()
                except BaseException as e:  # its `finally` blocks find files and connections closed
                    if not isinstance(e, OSError | RuntimeError | CrashError):
                        raise
        owner.tasks.clear()

    def clear(self) -> None:
        """Drops all callbacks and timers."""
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Makes this the running loop inside the block."""
        self._thread_id = threading.get_ident()
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)
            self._thread_id = None  # type: ignore[assignment]

    # --- what BaseEventLoop leaves to subclasses --------------------------------------------------

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        pass

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Runs the function a little later in this thread, unless the process has died by then."""
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
        owner = CALLBACK_OWNER.get()
        if isinstance(error, CrashError) or (owner is not None and not owner.alive):
            return
        if owner is not None and error is not None:
            owner.failed(error)
        elif error is not None:
            raise error


def _unless_cancelled(handle: asyncio.Handle, callback: Any, args: Any) -> None:
    if not handle.cancelled():
        callback(*args)
