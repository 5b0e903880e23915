"""The log manager's one thread for slow work on disks: fsync, renaming of deleted directories, removal
of files.

Each of these takes milliseconds, on a busy disk much longer, and everybody who shares the event loop
would wait. What follows from a job (`done`) runs in the thread of the logs, when it calls `drain`.
"""

from __future__ import annotations

import heapq
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from quorate.log.errors import LogDirFailure

logger = logging.getLogger(__name__)


class Background:
    """Implements `Housekeeping`; the thread begins with the first job."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[Callable[[], None], str, Callable[[], None] | None]] = deque()
        self._removals: list[tuple[float, str]] = []  # heap by time
        self._done: deque[Callable[[], None]] = deque()
        self._failures: deque[LogDirFailure] = deque()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._busy = False

    # --- the log's thread -------------------------------------------------------------------------

    def run_later(
        self, work: Callable[[], None], log_directory: str, done: Callable[[], None] | None = None
    ) -> None:
        with self._wake:
            self._jobs.append((work, log_directory, done))
            self._start()

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Files, or directories with all that is in them."""
        at = time.monotonic() + delay_ms / 1000
        with self._wake:
            for path in paths:
                heapq.heappush(self._removals, (at, path))
            self._start()

    def drain(self) -> None:
        """Runs what finished jobs asked for. Raises LogDirFailure if one of them failed."""
        while self._done:
            self._done.popleft()()
        if self._failures:
            raise self._failures.popleft()

    def wait_idle(self) -> None:
        """Blocks until all jobs are done (removals may be waiting still)."""
        with self._wake:
            self._wake.wait_for(lambda: not self._jobs and not self._busy)

    def close(self) -> None:
        """Finishes the jobs; files whose delay is not over stay, and go at the next start."""
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

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                self._wake.notify_all()
                while not self._jobs and not self._stopping and not self._due():
                    self._wake.wait(self._removals[0][0] - time.monotonic() if self._removals else None)
                if self._jobs:
                    job, path = self._jobs.popleft(), None
                elif self._stopping:
                    return
                else:
                    job, path = None, heapq.heappop(self._removals)[1]
                self._busy = True
            if job is not None:
                self._work(*job)
            elif path is not None:
                self._remove(path)

    def _due(self) -> bool:
        return bool(self._removals) and self._removals[0][0] <= time.monotonic()

    def _work(self, work: Callable[[], None], log_directory: str, done: Callable[[], None] | None) -> None:
        try:
            work()
        except LogDirFailure as failure:
            self._failures.append(failure)
            return
        except OSError as e:
            self._failures.append(
                LogDirFailure(log_directory, f"Error while working on {log_directory}: {e}")
            )
            return
        except (
            Exception
        ):  # of this job: the others go on, and what it was to make durable does not count as durable
            logger.exception("[LogManager] Uncaught exception in a task on %s", log_directory)
            return
        if done is not None:
            self._done.append(done)

    def _remove(self, path: str) -> None:
        try:
            if os.path.isdir(path):
                import shutil  # brings in archive formats: not at start

                shutil.rmtree(path)
            else:
                os.unlink(path)
            logger.info("[LogManager] Deleted %s", path)
        except FileNotFoundError:
            pass
        except OSError as e:
            logger.warning("[LogManager] Could not delete %s: %s", path, e)
