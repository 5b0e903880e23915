"""Runs fsync in the event loop while it is fast, and in a thread when the disk is slow.

A failed fsync is never repeated: the kernel may have dropped the data, so the caller must stop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

SAMPLES = 100  # for the 99th percentile, which is the second slowest of them
STALL_S = 0.02  # such an fsync delays heartbeats and elections; the next ones run in the thread


class Syncer:
    """Runs `flush` and measures how long it takes."""

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
        """Whether an fsync is running in the thread."""
        return self._future is not None

    @property
    def inline(self) -> bool:
        """Whether the next fsync should run in the loop."""
        if not self._durable:
            return True
        return not self._stalls and self._slow <= max(1, len(self._took) // 100)

    def now(self) -> None:
        """Runs fsync in the caller's thread. Raises OSError."""
        if self._durable:
            self._timed()

    def in_thread(self, done: Callable[[BaseException | None], None]) -> None:
        """Starts fsync in the thread, one at a time. Calls `done` in the loop with the error, if any."""
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
        """Blocks until the thread is idle, since the log is about to be truncated. Raises OSError if its
        fsync has failed."""
        if self._future is not None:
            self._future.result()

    async def close(self) -> None:
        """Waits for the fsync that is running. A disk that hangs must not stop the event loop."""
        if self._future is not None:
            await asyncio.wait([asyncio.wrap_future(self._future)])
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
