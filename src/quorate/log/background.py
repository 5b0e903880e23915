"""The log room's one thread: fsync of rolled segments, and removal of files whose delay is over.

Fsync and unlink of a large file take milliseconds, and readers would wait. The thread touches files alone, never a log:
what follows from its work (`done`) runs in the log's own thread, when it calls `drain`.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from quorate.log.errors import LogDirFailure
from quorate.log.files import OpenFile, fsync_directory

logger = logging.getLogger(__name__)


class Background:
    """Implements `Housekeeping`; the thread begins with the first job."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[Sequence[OpenFile], str, Callable[[], None] | None]] = deque()
        self._removals: list[tuple[float, str]] = []  # heap by time
        self._done: deque[Callable[[], None]] = deque()
        self._failures: deque[LogDirFailure] = deque()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._busy = False

    # ---- the log's thread

    def sync_later(self, files: Sequence[OpenFile], directory: str, done: Callable[[], None] | None) -> None:
        with self._wake:
            self._jobs.append((files, directory, done))
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
        """Until all fsyncs asked for are done (removals may be waiting still)."""
        with self._wake:
            self._wake.wait_for(lambda: not self._jobs and not self._busy)

    def close(self) -> None:
        """Finishes the fsyncs; files whose delay is not over stay, and go at the next start."""
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

    # ---- the thread

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
                self._sync(*job)
            elif path is not None:
                self._remove(path)

    def _due(self) -> bool:
        return bool(self._removals) and self._removals[0][0] <= time.monotonic()

    def _sync(self, files: Sequence[OpenFile], directory: str, done: Callable[[], None] | None) -> None:
        try:
            for file in files:
                os.fsync(file.fileno())
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                fsync_directory(directory)
        except OSError as e:
            parent = os.path.dirname(directory)
            self._failures.append(LogDirFailure(parent, f"Error while flushing {directory}: {e}"))
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
