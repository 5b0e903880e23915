"""A bounded cache of open files for all logs, and durable writes of small files.

Ten thousand partitions do not need ten thousand descriptors. A descriptor is closed when the last
reference to its `OpenFile` goes: that of the cache, or of a `FileRegion` that is being sent.
An eviction therefore closes no file under a running `sendfile`.
"""

from __future__ import annotations

import contextlib
import os
import re
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = lazy_module("ctypes")

DEFAULT_LIMIT = 2048
"""Half of the 4,096 descriptors that a node must be able to work with. Sockets and snapshots need the
rest."""


_MIN_CACHED = 16
"""Files that the cache keeps when files that it has evicted, and that are in use, take all other descriptors.
It is more than one append needs."""


class OpenFile:
    """A descriptor, which is closed when the last reference to this object goes."""

    __slots__ = ("__weakref__", "_fd", "closing", "path")

    def __init__(self, fd: int, path: str = "", descriptors: set[int] | None = None) -> None:
        """`descriptors` contains the descriptor until it is closed."""
        self._fd = fd
        self.path = path
        if descriptors is not None:
            descriptors.add(fd)
        # No `__del__`: a weak reference could still return the object while that runs. When this function
        # runs, all weak references are dead, so no thread can get a descriptor that is about to be closed.
        self.closing = weakref.finalize(self, _close, fd, descriptors)
        self.closing.atexit = False  # the end of the process closes it

    def fileno(self) -> int:
        return self._fd


def _close(fd: int, descriptors: set[int] | None) -> None:
    if descriptors is not None:  # before another thread can get the number
        descriptors.discard(fd)
    os.close(fd)


class OpenFiles:
    """An LRU cache of descriptors by path. Several threads may use it for different logs, and one more that
    flushes, because each step is atomic.

    Evicted files that are being sent to slow readers stay open. They count, so the cache then holds fewer.
    `get` returns them again, so that a file takes one descriptor however often it is evicted.
    """

    __slots__ = ("_descriptors", "_files", "_open", "limit")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        if limit < 1:
            raise ValueError(f"the open-file cache needs room for one file, not {limit}")
        self.limit = limit
        self._files: OrderedDict[str, OpenFile] = OrderedDict()
        self._open: weakref.WeakValueDictionary[str, OpenFile] = weakref.WeakValueDictionary()
        """The files of the cache, and those that were evicted and are still in use."""
        self._descriptors: set[int] = set()
        """Those of `_open`, and those of files that were forgotten and are still in use."""

    @property
    def is_exhausted(self) -> bool:
        """Whether files in use take all descriptors. Then no more may be held until a reader takes them."""
        return len(self._descriptors) > self.limit

    def get(self, path: str, *, create: bool = False) -> OpenFile:
        """The open file at `path`, created on request. Raises OSError."""
        found = self._files.get(path)
        if found is not None:
            try:
                self._files.move_to_end(path)
            except KeyError:  # evicted by the other thread
                pass
            return found
        found = self._open.get(path)
        if found is not None:  # evicted, and still in use
            self._files[path] = found
            return found
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        opened = OpenFile(os.open(path, flags, 0o644), path, self._descriptors)
        self._files[path] = self._open[path] = opened
        if len(self._descriptors) > self.limit:
            self._evict()
        return opened

    def _evict(self) -> None:
        """Evicts the files that were used least recently, until the limit holds or few are left."""
        files, kept = self._files, min(_MIN_CACHED, self.limit)
        while len(files) > kept and len(self._descriptors) > self.limit:
            try:
                files.popitem(last=False)
            except KeyError:  # evicted by another thread
                return

    def forget(self, path: str) -> None:
        """Removes a file from the cache, before it is renamed or removed."""
        self._open.pop(path, None)  # first, or another thread could bring the file back from there
        self._files.pop(path, None)

    def forget_under(self, directory: str) -> None:
        """Removes all files of a directory from the cache."""
        prefix = directory + os.sep
        for reference in self._open.valuerefs():
            opened = reference()
            if opened is not None and opened.path.startswith(prefix):
                self.forget(opened.path)

    def close(self) -> None:
        self._open.clear()
        self._files.clear()

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, path: str) -> bool:
        return path in self._files


class FileSystem:
    """The file system of a directory, which can be synced with one call.

    `syncfs` reports the writes that were lost since the directory was opened, from Linux 5.8 on. An fsync of
    each file waits for the disk each time, even if nothing is left to write.
    """

    __slots__ = ("_directory",)

    def __init__(self, directory: str) -> None:
        """Opens the directory. Raises OSError."""
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._directory = OpenFile(fd, directory)

    def sync(self) -> bool:
        """Makes everything durable. Returns whether lost writes would have been reported. Raises OSError."""
        if not _syncfs_reports_errors():
            os.sync()
            return False
        if ctypes.CDLL(None, use_errno=True).syncfs(self._directory.fileno()) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), self._directory.path)
        return True


def _syncfs_reports_errors() -> bool:
    system = os.uname()
    version = re.match(r"(\d+)\.(\d+)", system.release)
    return system.sysname == "Linux" and version is not None and tuple(map(int, version.groups())) >= (5, 8)


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Adds `path` to an OSError of its block that names no file, as errors on descriptors do not."""
    try:
        yield
    except OSError as e:
        if e.filename is None:
            e.filename = path
        raise


def write_all(fd: int, parts: list[bytes | bytearray | memoryview], position: int) -> int:
    """Writes all parts at `position`, in one call if the kernel accepts that. Returns the number of bytes.

    Raises OSError. Bytes that were written before stay in the file, after the end that the caller knows.
    """
    total = sum(map(len, parts))
    done = os.pwritev(fd, parts, position)
    if done == total:
        return total
    rest = memoryview(b"".join(parts))[done:]
    while rest:
        n = os.pwrite(fd, rest, position + done)
        if n == 0:
            raise OSError("write made no progress")
        done += n
        rest = rest[n:]
    return total


@lru_cache(64)
def path_of(directory: str) -> Path:
    """The path of a log directory. There are few of them, and each log asks for its own."""
    return Path(directory)


def fsync_path(path: str) -> None:
    """Makes the content of a file durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fsync_directory(path: str) -> None:
    """Makes creations, renames and removals inside a directory durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomically(path: str, data: bytes, *, sync: bool = True) -> None:
    """Replaces a file by a temporary file, fsync, rename, and fsync of the directory. Raises OSError."""
    temporary = path + ".tmp"
    with naming(path):
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(fd, [data], 0)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
        if sync:
            fsync_directory(os.path.dirname(path) or ".")
