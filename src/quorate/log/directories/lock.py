"""The lock of a log directory, which admits one process at a time, of Quorate or of Apache Kafka.

Java locks files with POSIX record locks (`fcntl`), which `flock` ignores. Such a lock belongs to the
process and is released when *any* descriptor of the file is closed in it. Nothing else in the process
may therefore open `.lock`.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

LOCK_FILE = ".lock"
_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, pid."""


class DirLockedError(Exception):
    """The directory cannot be locked. The message names the directory and a remedy."""


class LockFileError(DirLockedError):
    """The lock file cannot be opened or locked because of the disk, not because of another process."""


class DirLock:
    """Locks a directory from `acquire` to `release` or to the end of the process."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOCK_FILE
        self._fd = -1

    def holder(self) -> int | None:
        """The id of the process that holds the lock, None if the lock is free.

        Creates no file. Must not be called by a process that holds it, because that would release
        it. Raises OSError.
        """
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            # A read lock conflicts with the write lock of a node, and may be asked for without write access.
            wanted = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, wanted))
        finally:
            os.close(fd)
        return None if kind == fcntl.F_UNLCK else pid

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
                    f"{self.path}): stop that node first, or give this one a directory of its own"
                ) from None
            raise LockFileError(f"{self.path} cannot be locked: {e.strerror}") from None
        self._fd = fd

    def release(self) -> None:
        """Releases the lock if it is held."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
