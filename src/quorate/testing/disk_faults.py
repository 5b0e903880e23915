"""Slow and full disks inside a node's process, without a compiler, root or a mount.

Every access of a node to its files is a call of a function of `os`. These functions are replaced when the first fault is
set. Files other than regular ones (sockets, pipes) are left alone.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from quorate.testing.messages import DiskFault


class FaultyDisk:
    """The disk of this process. `apply` may be called from any thread; it is in force for the next call."""

    def __init__(self) -> None:
        self._fault = DiskFault()
        self._free = threading.Lock()
        self._free_bytes: int | None = None
        self._original: dict[str, Callable[..., Any]] = {}

    def apply(self, fault: DiskFault) -> None:
        with self._free:
            self._free_bytes = fault.free_bytes
        self._fault = fault
        if not self._original and fault != DiskFault():
            self._replace()

    def _replace(self) -> None:
        """Replaces the functions of `os` for the rest of the process."""
        names = ("fsync", "fdatasync", "pread", "sendfile", "write", "pwrite", "pwritev", "mkdir")
        self._original = {name: getattr(os, name) for name in names if hasattr(os, name)}
        for name in self._original:
            setattr(os, name, getattr(self, f"_{name}"))

    # -- a slow disk

    def _fsync(self, fd: int) -> None:
        self._wait(self._fault.fsync_ms)
        self._original["fsync"](fd)

    def _fdatasync(self, fd: int) -> None:
        self._wait(self._fault.fsync_ms)
        self._original["fdatasync"](fd)

    def _pread(self, fd: int, size: int, offset: int, /) -> bytes:
        if self._fault.read_ms and _misses_page_cache(fd, offset):
            self._wait(self._fault.read_ms)
        data: bytes = self._original["pread"](fd, size, offset)
        return data

    def _sendfile(self, out_fd: int, in_fd: int, offset: int, count: int, *rest: Any, **options: Any) -> int:
        if self._fault.read_ms and _misses_page_cache(in_fd, offset):
            self._wait(self._fault.read_ms)
        sent: int = self._original["sendfile"](out_fd, in_fd, offset, count, *rest, **options)
        return sent

    def _wait(self, delay_ms: float) -> None:
        if delay_ms:
            time.sleep(delay_ms / 1000)

    # -- a full disk

    def _write(self, fd: int, data: Any, /) -> int:
        if self._free_bytes is not None and stat.S_ISREG(os.fstat(fd).st_mode):
            data = memoryview(data).cast("B")
            data = data[: self._take(len(data))]
        written: int = self._original["write"](fd, data)
        return written

    def _pwrite(self, fd: int, data: Any, offset: int, /) -> int:
        if self._free_bytes is not None:
            data = memoryview(data).cast("B")
            data = data[: self._take(len(data))]
        written: int = self._original["pwrite"](fd, data, offset)
        return written

    def _pwritev(self, fd: int, parts: Sequence[Any], offset: int, /, *flags: int) -> int:
        if self._free_bytes is None:
            written: int = self._original["pwritev"](fd, parts, offset, *flags)
            return written
        return self._pwrite(fd, b"".join(parts), offset)

    def _mkdir(self, *args: Any, **options: Any) -> None:
        if self._free_bytes == 0:
            raise _no_space()
        self._original["mkdir"](*args, **options)

    def _take(self, wanted: int) -> int:
        """How many bytes of a write still fit, which are then used up. Like a file system, raises ENOSPC only where none
        fits, and writes a part otherwise."""
        with self._free:
            if self._free_bytes is None:
                return wanted
            taken = min(wanted, self._free_bytes)
            self._free_bytes -= taken
        if wanted and not taken:
            raise _no_space()
        return taken


def _no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _misses_page_cache(fd: int, offset: int) -> bool:
    """True also where the system cannot tell (RWF_NOWAIT is Linux only); False where its file system has no such reads."""
    nowait = getattr(os, "RWF_NOWAIT", None)
    if nowait is None:
        return True
    try:
        os.preadv(fd, [bytearray(1)], offset, nowait)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
