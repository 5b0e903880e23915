"""Renames the directories of deleted logs, and removes them after `file.delete.delay.ms`."""

from __future__ import annotations

import functools
import os
import threading

from quorate.log.files import fsync_directory
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.scheduler import Scheduler


class LogDeletion:
    """The deleted logs whose directories still have their names.

    A thread renames them. Until then a crash brings the log back, as a stray that the next start deletes.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._pending: dict[str, PartitionLog] = {}
        self._lock = threading.Lock()
        """Held while `_pending` changes and while a directory is renamed."""

    def delete_later(self, log: PartitionLog) -> None:
        """Schedules the deletion of a log that the manager no longer uses."""
        path = self._add(log)
        self._scheduler.run_later(functools.partial(self.free_name, path), os.path.dirname(path))

    def delete_after_syncs_of(self, directory: str, log: PartitionLog) -> None:
        """Schedules the deletion of a log whose records were copied to `directory`. The log stays if a sync
        that was scheduled for that directory fails."""
        path = self._add(log)

        def delete() -> None:
            fsync_directory(directory)
            self._scheduler.run_later(functools.partial(self.free_name, path), os.path.dirname(path))

        self._scheduler.run_later(delete, directory)

    def _add(self, log: PartitionLog) -> str:
        log.release_files()
        path = str(log.dir)
        with self._lock:
            self._pending[path] = log
        return path

    def free_name(self, path: str) -> None:
        """Renames the directory at `path` now if it is that of a deleted log, because a new log may need
        its name. Raises LogDirFailure."""
        with self._lock:
            log = self._pending.pop(path, None)
            if log is None:
                return
            renamed = log.rename_for_delete()
        self._scheduler.remove_later([renamed], log.config.file_delete_delay_ms)
