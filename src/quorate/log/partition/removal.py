"""Removes the files of a log's oldest segments."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Sequence

from quorate.log.scheduler import Scheduler
from quorate.log.segment.segment import DELETED_SUFFIX


def rename_to_deleted(paths: Sequence[str]) -> list[str]:
    """Gives files their `.deleted` name. Returns the new paths, without files that do not exist. Raises
    OSError."""
    renamed = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, path + DELETED_SUFFIX)
            renamed.append(path + DELETED_SUFFIX)
    return renamed


class FileRemoval:
    """The files of segments that the log no longer uses. A thread renames them, and removes them after
    `file.delete.delay.ms`. A crash before the rename brings them back: retention then deletes them again, and
    the checkpoint of the log start offset keeps deleted records hidden."""

    __slots__ = ("_lock", "_scheduler", "_waiting")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: deque[tuple[Sequence[str], int]] = deque()
        self._lock = threading.Lock()
        """Held while files are renamed."""

    @property
    def is_pending(self) -> bool:
        """Whether files still have their names, or one of them did a moment ago."""
        return bool(self._waiting)

    def remove_later(self, paths: Sequence[str], log_directory: str, delay_ms: int) -> None:
        """Schedules the removal of files."""
        self._waiting.append((paths, delay_ms))
        self._scheduler.run_later(self.free_names, log_directory)

    def free_names(self) -> None:
        """Renames the files that still have their names, because new files may need them. Raises OSError."""
        with self._lock:
            while self._waiting:
                paths, delay_ms = self._waiting[0]
                renamed = rename_to_deleted(paths)
                self._waiting.popleft()
                if renamed:
                    self._scheduler.remove_later(renamed, delay_ms)
