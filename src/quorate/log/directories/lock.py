"""The lock of a log directory: one process at a time, of ours or of Apache Kafka's.

Java locks with POSIX record locks (`fcntl`), which `flock` does not see. Such a lock belongs to the
process and is gone when *any* descriptor of the file is closed in it, so nothing else in the process
may open `.lock`.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

LOCK_FILE = ".lock"


class DirLockedError(Exception):
    """Another process holds the directory, or its lock file cannot be had; the message names it and
    what to do."""


class LockFileError(DirLockedError):
    """The lock file cannot be had because of the disk, not because of another process."""


class DirLock:
    """Holds a directory from `acquire` to `release` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOCK_FILE
        self._fd = -1

    def acquire(self) -> None:
        """Takes the lock without waiting. Raises DirLockedError."""
        if self._fd >= 0:
            return
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as e:
            raise LockFileError(
                f"the lock file {self.path} cannot be opened: {e.strerror}. The directory must exist and be "
                "writable by this user"
            ) from None
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            os.close(fd)
            if isinstance(e, (BlockingIOError, PermissionError)):
                raise DirLockedError(
                    f"the log directory {self.path.parent} is in use by another process (it holds "
                    f"{self.path}): "
                    "stop that node first, or give this one a directory of its own"
                ) from None
            raise LockFileError(f"{self.path} cannot be locked: {e.strerror}") from None
        self._fd = fd

    def release(self) -> None:
        """Gives the lock back; does nothing when it is not held."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
