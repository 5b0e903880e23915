"""Slow, full and failing disks inside a node's process, without a compiler, root or a mount.

A node accesses its files only by functions of `os`. These functions are replaced when the first fault is set.
Sockets and pipes are not affected.

A read is delayed if it misses the page cache. The content of the kernel's page cache cannot be controlled:
even a probe (RWF_NOWAIT) starts to read ahead. So the page cache is modelled. It is empty when the fault is
set, and then has the bytes that were read or written since.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from quorate.testing.messages import DiskFault

_BLOCK_BYTES = 128 << 10
"""The size of a block of the modelled page cache: Linux's default read-ahead window."""

_Block = tuple[int, int, int]
"""Device, inode and number of a block."""


class FaultyDisk:
    """The disk of this process. `apply` may be called in any thread and affects the next call."""

    def __init__(self) -> None:
        self._fault = DiskFault()
        self._free = threading.Lock()
        self._free_bytes: int | None = None
        self._cached: set[_Block] = set()
        self._original: dict[str, Callable[..., Any]] = {}

    def apply(self, fault: DiskFault) -> None:
        with self._free:
            self._free_bytes = fault.free_bytes
        self._cached = set()
        self._fault = fault
        if not self._original and fault != DiskFault():
            self._replace()

    def _replace(self) -> None:
        """Replaces the functions of `os` for the rest of the process."""
        names = ("fsync", "fdatasync", "pread", "preadv", "sendfile", "write", "pwrite", "pwritev", "mkdir")
        self._original = {name: getattr(os, name) for name in names if hasattr(os, name)}
        for name in self._original:
            setattr(os, name, getattr(self, f"_{name}"))

    # -- a slow disk

    def _fsync(self, fd: int) -> None:
        self._check(fd)
        self._wait(self._fault.fsync_ms)
        self._original["fsync"](fd)

    def _fdatasync(self, fd: int) -> None:
        self._check(fd)
        self._wait(self._fault.fsync_ms)
        self._original["fdatasync"](fd)

    def _pread(self, fd: int, size: int, offset: int, /) -> bytes:
        self._read_slowly(fd, offset, size)
        data: bytes = self._original["pread"](fd, size, offset)
        return data

    def _preadv(self, fd: int, buffers: Sequence[Any], offset: int, flags: int = 0, /) -> int:
        size = sum(memoryview(buffer).nbytes for buffer in buffers)
        if flags & getattr(os, "RWF_NOWAIT", 0):
            self._check(fd)
            if self._missing(fd, offset, size):
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        else:
            self._read_slowly(fd, offset, size)
        count: int = self._original["preadv"](fd, buffers, offset, flags)
        return count

    def _sendfile(self, out_fd: int, in_fd: int, offset: int, count: int, *rest: Any, **options: Any) -> int:
        self._read_slowly(in_fd, offset, count)
        sent: int = self._original["sendfile"](out_fd, in_fd, offset, count, *rest, **options)
        return sent

    def _missing(self, fd: int, offset: int, size: int) -> set[_Block]:
        """Returns the blocks of a file range that the modelled page cache lacks; none if reads are not
        delayed.
        """
        if not self._fault.read_ms:
            return set()
        return self._blocks(fd, offset, size) - self._cached

    def _blocks(self, fd: int, offset: int, size: int) -> set[_Block]:
        found = os.fstat(fd)
        end = min(offset + size, found.st_size)
        if not stat.S_ISREG(found.st_mode) or offset >= end:
            return set()
        numbers = range(offset // _BLOCK_BYTES, (end - 1) // _BLOCK_BYTES + 1)
        return {(found.st_dev, found.st_ino, number) for number in numbers}

    def _read_slowly(self, fd: int, offset: int, size: int) -> None:
        self._check(fd)
        missing = self._missing(fd, offset, size)
        if missing:
            self._wait(self._fault.read_ms)
            self._cached |= missing

    def _written(self, fd: int, offset: int, size: int) -> None:
        if self._fault.read_ms:
            self._cached |= self._blocks(fd, offset, size)

    def _wait(self, delay_ms: float) -> None:
        if delay_ms:
            time.sleep(delay_ms / 1000)

    # -- a failing disk

    def _check(self, place: int | str) -> None:
        """Raises EIO if the disk fails at a path or an open file."""
        if not self._fault.failing:
            return
        under = self._fault.failing_under
        if under:
            path = str(Path(f"/proc/self/fd/{place}").readlink()) if isinstance(place, int) else place
            if not path.startswith(under):
                return
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    # -- a full disk

    def _write(self, fd: int, data: Any, /) -> int:
        if self._fault.failing and stat.S_ISREG(os.fstat(fd).st_mode):
            self._check(fd)
        if self._free_bytes is not None and stat.S_ISREG(os.fstat(fd).st_mode):
            data = memoryview(data).cast("B")
            data = data[: self._take(len(data))]
        written: int = self._original["write"](fd, data)
        return written

    def _pwrite(self, fd: int, data: Any, offset: int, /) -> int:
        self._check(fd)
        if self._free_bytes is not None:
            data = memoryview(data).cast("B")
            data = data[: self._take(len(data))]
        written: int = self._original["pwrite"](fd, data, offset)
        self._written(fd, offset, written)
        return written

    def _pwritev(self, fd: int, parts: Sequence[Any], offset: int, /, *flags: int) -> int:
        self._check(fd)
        if self._free_bytes is not None:
            return self._pwrite(fd, b"".join(parts), offset)
        written: int = self._original["pwritev"](fd, parts, offset, *flags)
        self._written(fd, offset, written)
        return written

    def _mkdir(self, path: Any, *args: Any, **options: Any) -> None:
        self._check(str(Path(path).absolute()))
        if self._free_bytes == 0:
            raise _no_space()
        self._original["mkdir"](path, *args, **options)

    def _take(self, wanted: int) -> int:
        """Takes up to `wanted` bytes from the free space and returns how many.

        Raises ENOSPC if none is left.
        """
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
