"""Open files of all logs as one bounded cache, so that ten thousand partitions need not ten thousand
descriptors.

A descriptor lives as long as somebody holds its `OpenFile`: the cache, or a `FileRegion` that is still
being sent. Evicting one only drops the cache's reference, so nothing is closed under a running
`sendfile`; the descriptor goes when the last region does.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Iterator

DEFAULT_LIMIT = (
    2048  # half of the 4,096 that a node must be able to live with: sockets and snapshots need the rest
)


class OpenFile:
    """One descriptor, open for reading and writing; closed when the last reference goes."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def __del__(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OpenFiles:
    """Least recently used descriptors by path. One thread, and a second one that flushes, may use it:
    each step is atomic."""

    __slots__ = ("_files", "limit")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        if limit < 1:
            raise ValueError(f"the open-file cache needs room for one file, not {limit}")
        self.limit = limit
        self._files: OrderedDict[str, OpenFile] = OrderedDict()

    def get(self, path: str, *, create: bool = False) -> OpenFile:
        """The open file at `path`. Raises OSError (FileNotFoundError unless `create`)."""
        found = self._files.get(path)
        if found is not None:
            with contextlib.suppress(KeyError):  # evicted by the other thread
                self._files.move_to_end(path)
            return found
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        opened = OpenFile(os.open(path, flags, 0o644))
        self._files[path] = opened
        if len(self._files) > self.limit:
            self._files.popitem(last=False)
        return opened

    def forget(self, path: str) -> None:
        """Drops the cache's reference, before the file is renamed or removed."""
        self._files.pop(path, None)

    def forget_under(self, directory: str) -> None:
        """Drops the files of one directory."""
        prefix = directory + os.sep
        for path in [path for path in self._files if path.startswith(prefix)]:
            del self._files[path]

    def close(self) -> None:
        self._files.clear()

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, path: str) -> bool:
        return path in self._files


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """An error on a descriptor says nothing of its file: inside of this it names `path`."""
    try:
        yield
    except OSError as e:
        if e.filename is None:
            e.filename = path
        raise


def write_all(fd: int, parts: list[bytes | bytearray | memoryview], position: int) -> int:
    """Writes all parts at `position` in one call where the kernel takes them, in several where it does
    not; the bytes written.

    Raises OSError; what was written before stays behind the caller's end of file.
    """
    total = sum(len(part) for part in parts)
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
    """Replaces a file as a whole: temporary file beside it, fsync, rename, fsync of the directory.
    Raises OSError."""
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
