"""When and where fsync runs: in the loop while it is quick, in one thread when the disk is slow.

A failed fsync is never tried again: what the kernel has dropped is lost, so the caller must stop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

SAMPLES = 100  # p99 of so many: the second slowest
STALL_S = 0.02  # one that takes this long delays heartbeats and elections: it is not risked again inline for a while


class Syncer:
    """Runs `flush`, notes how long it takes."""

    def __init__(
        self,
        flush: Callable[[], None],
        inline_limit_s: float,
        *,
        durable: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._flush = flush
        self._clock = clock
        self._limit = inline_limit_s
        self._durable = durable  # an observer appends without fsync, as in Kafka
        self._took: deque[float] = deque(maxlen=SAMPLES)
        self._slow = 0
        self._stalls = 0
        self._executor: ThreadPoolExecutor | None = None
        self._future: Future[None] | None = None

    @property
    def running(self) -> bool:
        """Whether the thread is at it."""
        return self._future is not None

    @property
    def inline(self) -> bool:
        """Whether the next one should run in the loop."""
        if not self._durable:
            return True
        return not self._stalls and self._slow <= max(1, len(self._took) // 100)

    def now(self) -> None:
        """In the caller's thread. Raises OSError."""
        if self._durable:
            self._timed()

    def in_thread(self, done: Callable[[BaseException | None], None]) -> None:
        """`done` is called in the loop with the error, if any. One at a time."""
        if self._future is not None:
            raise RuntimeError("an fsync is running")
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "raft-fsync")
        loop = asyncio.get_running_loop()
        future = self._future = self._executor.submit(self._timed)

        def finished() -> None:
            if self._future is future:
                self._future = None
            done(future.exception())

        def notify(_: Future[None]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(finished)

        future.add_done_callback(notify)

    def wait(self) -> None:
        """Blocks until the thread is idle: the log is about to be cut."""
        if self._future is not None:
            self._future.exception()

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True)

    def _timed(self) -> None:
        started = self._clock()
        self._flush()
        took = self._clock() - started
        if len(self._took) == SAMPLES:
            self._slow -= self._took[0] > self._limit
            self._stalls -= self._took[0] > STALL_S
        self._took.append(took)
        self._slow += took > self._limit
        self._stalls += took > STALL_S
