"""Schedules slow disk work of logs: fsync, the renaming of deleted directories, the removal of files.

`InlineScheduler` does the work in the caller's thread. `BackgroundScheduler` has one thread for it,
because each job takes milliseconds, on a busy disk much longer, and all users of the event loop would
wait meanwhile.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from quorate.lazy import lazy_module
from quorate.log.errors import LogDirFailure
from quorate.log.files import OpenFile, fsync_directory, fsync_path
from quorate.metrics import Quantiles, Reservoir, quantiles

if TYPE_CHECKING:
    import shutil
else:
    shutil = lazy_module("shutil")  # it imports the modules of all archive formats

logger = logging.getLogger(__name__)


class FlushTimes:
    """The times that flushes of logs have taken (LogFlushRateAndTimeMs in Kafka)."""

    def __init__(self) -> None:
        self.count = 0
        self._sample = Reservoir(time.monotonic())

    @contextlib.contextmanager
    def measure(self) -> Iterator[None]:
        """Measures one flush. May be called in any thread."""
        began = time.monotonic()
        yield
        now = time.monotonic()
        self.count += 1
        if self._sample.take():
            self._sample.record(((now - began) * 1000,), now)

    def quantiles(self) -> Quantiles:
        """The number of flushes, and the distribution of their times in ms."""
        return quantiles(self.count, [row[0] for row in self._sample.rows(time.monotonic())])


class Scheduler(Protocol):
    """Does work for a log that the log need not wait for."""

    @property
    def flush_times(self) -> FlushTimes: ...

    @property
    def backlog(self) -> int:
        """The number of jobs that have not begun."""
        ...

    def run_later(
        self, work: Callable[[], None], log_directory: str, on_done: Callable[[], None] | None = None
    ) -> None:
        """Runs `work` after all earlier work, possibly in another thread, then `on_done` in the log's
        own thread.

        If `work` raises OSError, the log directory fails and `on_done` is not called. No later work on
        that directory is done.
        """

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Removes files that were renamed to their `.deleted` name, after a delay."""


class InlineScheduler:
    """Does all work at once, in the caller's thread."""

    backlog = 0

    def __init__(self) -> None:
        self.flush_times = FlushTimes()

    def run_later(
        self, work: Callable[[], None], log_directory: str, on_done: Callable[[], None] | None = None
    ) -> None:
        work()
        if on_done is not None:
            on_done()

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


class BackgroundScheduler:
    """Does the work of all logs of a log manager in one thread, which starts with the first job."""

    def __init__(self) -> None:
        self.flush_times = FlushTimes()
        self._jobs: deque[tuple[Callable[[], None], str, Callable[[], None] | None]] = deque()
        self._removals: list[tuple[float, str]] = []  # heap by time
        self._callbacks: deque[Callable[[], None]] = deque()
        self._failures: deque[LogDirFailure] = deque()
        self._failed: set[str] = set()
        self._wake_owner: Callable[[], None] | None = None
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._busy = False

    # --- called in the thread of the logs ---------------------------------------------------------

    @property
    def backlog(self) -> int:
        return len(self._jobs)

    def run_later(
        self, work: Callable[[], None], log_directory: str, on_done: Callable[[], None] | None = None
    ) -> None:
        with self._wake:
            self._jobs.append((work, log_directory, on_done))
            self._start()

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Removes files, and directories with all their content, after a delay."""
        at = time.monotonic() + delay_ms / 1000
        with self._wake:
            for path in paths:
                heapq.heappush(self._removals, (at, path))
            self._start()

    def on_failure(self, wake: Callable[[], None] | None) -> None:
        """Has `wake` called after each failure, in the scheduler's thread. It should lead to a call of
        `run_callbacks`."""
        self._wake_owner = wake

    def run_callbacks(self) -> None:
        """Runs the `on_done` callbacks of finished jobs. Raises LogDirFailure once for each log directory
        in which a job has failed, one with each call."""
        while self._callbacks:
            self._callbacks.popleft()()
        if self._failures:
            raise self._failures.popleft()

    def wait_idle(self) -> None:
        """Blocks until all jobs are done. Delayed removals may still be pending."""
        with self._wake:
            self._wake.wait_for(lambda: not self._jobs and not self._busy)

    def close(self) -> None:
        """Finishes the jobs. Files whose delay has not passed are removed after the next start."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="quorate-log-background", daemon=True)
            self._thread.start()
        self._wake.notify_all()

    # --- called in the scheduler's thread ---------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                self._wake.notify_all()
                while not self._jobs and not self._stopping and not self._removal_is_due():
                    self._wake.wait(self._removals[0][0] - time.monotonic() if self._removals else None)
                if self._jobs:
                    job, path = self._jobs.popleft(), None
                elif self._stopping:
                    return
                else:
                    job, path = None, heapq.heappop(self._removals)[1]
                self._busy = True
            if job is not None:
                self._run_job(*job)
            elif path is not None:
                self._remove(path)

    def _removal_is_due(self) -> bool:
        return bool(self._removals) and self._removals[0][0] <= time.monotonic()

    def _run_job(
        self, work: Callable[[], None], log_directory: str, on_done: Callable[[], None] | None
    ) -> None:
        if log_directory in self._failed:
            return  # a later sync proves nothing: the system reports a lost write only once
        try:
            work()
        except LogDirFailure as failure:
            self._fail(log_directory, failure)
            return
        except OSError as e:
            self._fail(
                log_directory, LogDirFailure(log_directory, f"Error while working on {log_directory}: {e}")
            )
            return
        except Exception:
            # An error of one job does not stop the others. Its callback is not run, so nothing that the
            # job should have synced counts as durable.
            logger.exception("[LogManager] Uncaught exception in a task on %s", log_directory)
            return
        if on_done is not None:
            self._callbacks.append(on_done)

    def _fail(self, log_directory: str, failure: LogDirFailure) -> None:
        self._failed.add(log_directory)
        self._failures.append(failure)
        wake = self._wake_owner
        if wake is not None:
            wake()

    def _remove(self, path: str) -> None:
        try:
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
            logger.info("[LogManager] Deleted %s", path)
        except FileNotFoundError:
            pass
        except OSError as e:
            logger.warning("[LogManager] Could not delete %s: %s", path, e)


Step = Callable[[], None] | None
"""A step that a periodic job yields: disk work, which the driver of the job runs in another thread before
it resumes the job, or None for a pause."""


def run_steps(job: Iterable[Step]) -> None:
    """Runs a periodic job to its end in this thread. Raises LogDirFailure."""
    for step in job:
        if step is not None:
            step()


def sync_files(files: Sequence[OpenFile | str], directory: str) -> None:
    """Makes files and their names in `directory` durable. A file given by its path is opened for that. It
    is ignored if it no longer exists, as is the directory: both were deleted. Raises OSError."""
    for file in files:
        if isinstance(file, OpenFile):
            os.fsync(file.fileno())
        else:
            with contextlib.suppress(FileNotFoundError):
                fsync_path(file)
    with contextlib.suppress(FileNotFoundError):
        fsync_directory(directory)
