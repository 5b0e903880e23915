"""The functions of `os` on simulated disks.

Inside `SimulatedFilesystem.installed` they serve paths below MOUNT, so storage code runs unmodified.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import stat
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from quorate.log.files import FileSystem, OpenFile
from simulation.nodes.disk import MOUNT, Directory, Disk, File, Node

FIRST_FD = 1 << 24  # above all descriptors of the kernel


class _Open:
    """An open file description."""

    __slots__ = ("disk", "generation", "node", "position")

    def __init__(self, disk: Disk, node: Node) -> None:
        self.disk = disk
        self.node = node
        self.generation = disk.generation
        self.position = 0


class _Stat:
    """The fields of `os.stat_result` that storage code reads."""

    def __init__(self, node: Node) -> None:
        directory = isinstance(node, Directory)
        self.st_mode = (stat.S_IFDIR | 0o755) if directory else (stat.S_IFREG | 0o644)
        self.st_size = 0 if isinstance(node, Directory) else len(node.data)
        self.st_mtime_ns = node.modified_ns
        self.st_mtime = node.modified_ns / 1e9
        self.st_ino = id(node)
        self.st_dev = 1


class _Entry:
    """The part of `os.DirEntry` that storage code uses."""

    def __init__(self, path: str, name: str, node: Node) -> None:
        self.name = name
        self.path = f"{path}/{name}"
        self._node = node

    def stat(self, *, follow_symlinks: bool = True) -> _Stat:
        return _Stat(self._node)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return isinstance(self._node, Directory)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return isinstance(self._node, File)

    def __fspath__(self) -> str:
        return self.path


class _Scan:
    """The iterator and context manager that `os.scandir` returns."""

    def __init__(self, entries: list[_Entry]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[_Entry]:
        return self._entries

    def __next__(self) -> _Entry:
        return next(self._entries)

    def __enter__(self) -> _Scan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


class SimulatedFilesystem:
    """All simulated disks and their open descriptors.

    Methods are named after the functions of `os` that they replace.
    """

    def __init__(self, wall_ns: Callable[[], int]) -> None:
        self.disks: dict[str, Disk] = {}
        self.wall_ns = wall_ns
        self._open: dict[int, _Open] = {}
        self._next_fd = FIRST_FD

    def add(self, disk: Disk) -> Disk:
        self.disks[disk.name] = disk
        return disk

    # --- paths and descriptors --------------------------------------------------------------------

    def _at(self, path: Any) -> tuple[Disk, list[str]]:
        text = os.fspath(path)
        _, _, name, *parts = text.split("/")
        disk = self.disks.get(name)
        if disk is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", text)
        if not disk.online:
            raise OSError(errno.EIO, "the host is down", text)
        return disk, [p for p in parts if p]

    def _of(self, fd: int) -> _Open:
        found = self._open.get(fd)
        if found is None or found.generation != found.disk.generation or not found.disk.online:
            raise OSError(errno.EBADF, "Bad file descriptor")
        return found

    def _file(self, fd: int) -> tuple[_Open, File]:
        found = self._of(fd)
        if not isinstance(found.node, File):
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        return found, found.node

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: None = None) -> int:
        disk, parts = self._at(path)
        try:
            node = disk.find(parts)
            if flags & os.O_CREAT and flags & os.O_EXCL:
                raise FileExistsError(errno.EEXIST, "File exists", os.fspath(path))
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            parent = disk.directory(parts[:-1])
            disk.before_change()
            node = File()
            node.modified_ns = self.wall_ns()
            parent.change(**{parts[-1]: node})
        if flags & os.O_TRUNC and isinstance(node, File) and node.data:
            disk.before_change()
            node.truncate(0)
        fd = self._next_fd
        self._next_fd += 1
        self._open[fd] = _Open(disk, node)
        return fd

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)  # that of a dead process is closed already

    # --- content ----------------------------------------------------------------------------------

    def pread(self, fd: int, length: int, position: int) -> bytes:
        return bytes(self._file(fd)[1].data[position : position + length])

    def read(self, fd: int, length: int) -> bytes:
        opened, file = self._file(fd)
        data = bytes(file.data[opened.position : opened.position + length])
        opened.position += len(data)
        return data

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        opened, file = self._file(fd)
        opened.disk.before_change()
        file.write(position, bytes(data))
        file.modified_ns = self.wall_ns()
        return len(data)

    def pwritev(self, fd: int, parts: Any, position: int, flags: int = 0) -> int:
        return self.pwrite(fd, b"".join(bytes(p) for p in parts), position)

    def write(self, fd: int, data: Any) -> int:
        opened = self._of(fd)
        written = self.pwrite(fd, data, opened.position)
        opened.position += written
        return written

    def ftruncate(self, fd: int, length: int) -> None:
        opened, file = self._file(fd)
        opened.disk.before_change()
        if len(file.data) < length:
            file.write(length, b"")
        else:
            file.truncate(length)

    def fsync(self, fd: int) -> None:
        opened = self._of(fd)
        opened.disk.before_change()
        opened.node.sync()
        opened.disk.on_sync()

    # --- names ------------------------------------------------------------------------------------

    def stat(self, path: Any, **_: Any) -> _Stat:
        disk, parts = self._at(path)
        return _Stat(disk.find(parts))

    def fstat(self, fd: int) -> _Stat:
        return _Stat(self._of(fd).node)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: None = None) -> None:
        disk, parts = self._at(path)
        parent = disk.directory(parts[:-1])
        if parts[-1] in parent.names:
            raise FileExistsError(errno.EEXIST, "File exists", os.fspath(path))
        disk.before_change()
        parent.change(**{parts[-1]: Directory()})

    def unlink(self, path: Any, *, dir_fd: None = None) -> None:
        disk, parts = self._at(path)
        disk.find(parts)
        disk.before_change()
        disk.directory(parts[:-1]).change(**{parts[-1]: None})

    def rename(self, source: Any, target: Any, **_: Any) -> None:
        disk, parts = self._at(source)
        to = self._at(target)[1]
        node = disk.find(parts)
        if parts[:-1] != to[:-1]:
            raise OSError(errno.EXDEV, "renames stay in their directory here")
        disk.before_change()
        disk.directory(parts[:-1]).change(**{parts[-1]: None, to[-1]: node})

    def chmod(self, path: Any, mode: int, **_: Any) -> None:
        disk, parts = self._at(path)
        disk.find(parts)

    def scandir(self, path: Any = ".") -> _Scan:
        disk, parts = self._at(path)
        names = disk.directory(parts).names
        return _Scan([_Entry(os.fspath(path), name, names[name]) for name in sorted(names)])

    def listdir(self, path: Any = ".") -> list[str]:
        disk, parts = self._at(path)
        return sorted(disk.directory(parts).names)

    def open_stream(
        self, path: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None, *_: Any
    ) -> Any:
        disk, parts = self._at(path)
        node = disk.find(parts)
        if not isinstance(node, File) or set(mode) & set("wax+"):
            raise OSError(errno.EINVAL, f"only reading is simulated here, not mode {mode!r}", os.fspath(path))
        data = bytes(node.data)
        return io.BytesIO(data) if "b" in mode else io.StringIO(data.decode(encoding or "utf-8"))

    # --- installation -----------------------------------------------------------------------------

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Lets `os` and `open` serve simulated paths and descriptors inside the block.

        All others still go to the kernel.
        """
        with ExitStack() as stack:
            for name in (
                "open",
                "stat",
                "lstat",
                "mkdir",
                "unlink",
                "remove",
                "rename",
                "replace",
                "chmod",
                "scandir",
                "listdir",
            ):
                real = getattr(os, name)
                ours = getattr(
                    self, {"lstat": "stat", "remove": "unlink", "replace": "rename"}.get(name, name)
                )
                stack.enter_context(mock.patch.object(os, name, _by_path(real, ours)))
            for name in (
                "close",
                "read",
                "pread",
                "write",
                "pwrite",
                "pwritev",
                "ftruncate",
                "fsync",
                "fdatasync",
                "fstat",
            ):
                real = getattr(os, name)
                ours = getattr(self, {"fdatasync": "fsync"}.get(name, name))
                stack.enter_context(mock.patch.object(os, name, _by_descriptor(real, ours)))
            held: weakref.WeakSet[OpenFile] = weakref.WeakSet()
            stack.enter_context(mock.patch.object(OpenFile, "__init__", _remembering(held)))
            # A log manager then syncs each file, as on a kernel that does not report lost writes.
            stack.enter_context(mock.patch.object(FileSystem, "sync", lambda _: False))
            for module in (io, builtins):
                stack.enter_context(
                    mock.patch.object(module, "open", _by_path(module.open, self.open_stream))
                )
            try:
                yield
            finally:
                _disown(held)


def _remembering(held: weakref.WeakSet[OpenFile]) -> Callable[..., None]:
    """Returns the constructor of open files, which also adds each to `held`."""
    real = OpenFile.__init__

    def create(file: OpenFile, *args: Any, **options: Any) -> None:
        real(file, *args, **options)
        held.add(file)

    return create


def _disown(held: Iterable[OpenFile]) -> None:
    """Disowns simulated descriptors that something still holds, such as a traceback.

    Otherwise the kernel would have to close them later.
    """
    for file in held:
        if file.fileno() >= FIRST_FD:
            file.closing.detach()
            file._fd = -1


def _by_path(real: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    def call(path: Any = ".", *args: Any, **options: Any) -> Any:
        if isinstance(path, int):
            return real(path, *args, **options)
        text = path if isinstance(path, str) else os.fspath(path)
        if isinstance(text, str) and text.startswith(MOUNT):
            return ours(text, *args, **options)
        return real(path, *args, **options)

    return call


def _by_descriptor(real: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    def call(fd: Any, *args: Any) -> Any:
        if isinstance(fd, int) and fd >= FIRST_FD:
            return ours(fd, *args)
        return real(fd, *args)

    return call
