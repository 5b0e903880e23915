"""Disks in memory with the durability of real ones: a write can be read at once, but is durable only after
fsync.

The functions of `os` are the interface: inside `SimulatedFilesystem.installed` they serve paths below
MOUNT, so storage code runs unmodified. A killed process loses nothing. A power failure keeps what was
synced of each file, and the first few of the later writes, the last of them torn. Of each directory it
keeps what was synced, and the first few of the later changes.
"""

from __future__ import annotations

import builtins
import errno
import gc
import io
import os
import random
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from quorate.log.files import OpenFile
from simulation.nodes.loop import CrashError

MOUNT = "/simulated"
FIRST_FD = 1 << 24  # above all descriptors of the kernel

Write = tuple[int, bytes | None]  # (position, data); without data the file is truncated there


class File:
    """A file: its content, its durable content, and the writes that separate the two."""

    __slots__ = ("data", "durable", "modified_ns", "observer_cache", "writes")

    def __init__(self) -> None:
        # Kept by an observer of `durable`; dropped when more than an append happens to it.
        self.observer_cache: object = None
        self.data = bytearray()
        self.durable = bytearray()
        self.writes: list[Write] = []
        self.modified_ns = 0

    def write(self, position: int, data: bytes) -> None:
        _apply(self.data, (position, data))
        self.writes.append((position, data))

    def truncate(self, size: int) -> None:
        _apply(self.data, (size, None))
        self.writes.append((size, None))

    def sync(self) -> None:
        for write in self.writes:
            if write[1] is None or write[0] < len(self.durable):
                self.observer_cache = None
            _apply(self.durable, write)
        self.writes.clear()

    def lose_power(self, rng: random.Random, losses: Counter[str]) -> None:
        kept = rng.randint(0, len(self.writes))
        losses["unsynced writes lost"] += kept < len(self.writes)
        for write in self.writes[:kept]:
            _apply(self.durable, write)
        if kept < len(self.writes) and rng.random() < 0.5:
            position, data = self.writes[kept]
            if data:
                losses["torn writes"] += 1
                torn = data[: rng.randrange(len(data))]
                if rng.random() < 0.3:  # the file has grown, its last blocks have not arrived
                    torn += bytes(rng.randint(1, len(data) - len(torn)))
                _apply(self.durable, (position, torn))
        self.data = bytearray(self.durable)
        self.writes.clear()
        self.observer_cache = None


def _apply(content: bytearray, write: Write) -> None:
    position, data = write
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


class Directory:
    """A directory: its names, its durable names, and the changes that separate the two.

    A rename is one change.
    """

    __slots__ = ("changes", "durable", "modified_ns", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.changes: list[dict[str, Node | None]] = []
        self.modified_ns = 0

    def change(self, **names: Node | None) -> None:
        """Adds or replaces names, and removes those that are given as None, as one change."""
        self._apply(self.names, names)
        self.changes.append(names)

    def sync(self) -> None:
        for names in self.changes:
            self._apply(self.durable, names)
        self.changes.clear()

    def lose_power(self, rng: random.Random, losses: Counter[str]) -> None:
        kept = rng.randint(0, len(self.changes))
        losses["unsynced names lost"] += kept < len(self.changes)
        for names in self.changes[:kept]:
            self._apply(self.durable, names)
        self.changes.clear()
        self.names = dict(self.durable)
        for node in self.names.values():
            node.lose_power(rng, losses)

    @staticmethod
    def _apply(names: dict[str, Node], changes: dict[str, Node | None]) -> None:
        for name, node in changes.items():
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node


Node = File | Directory


class Disk:
    """The disk of one host.

    `on_sync` is called at each fsync, `on_crash` where `crash_after_changes` has run out.
    """

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.root = Directory()
        self.generation = 0  # of the process: descriptors of an earlier generation are closed
        self.online = True
        self.failing_errno: int | None = None  # every change and fsync raises this errno
        self.crash_after_changes: int | None = None  # the process ends at the change after so many others
        self.on_crash: Callable[[], None] = lambda: None
        self.on_sync: Callable[[], None] = lambda: None
        self.losses: Counter[str] = Counter()  # counts what power failures took

    @property
    def path(self) -> str:
        return f"{MOUNT}/{self.name}"

    def before_change(self) -> None:
        """Called before each change and fsync. Raises OSError, or CrashError if the process ends here."""
        if not self.online:
            raise OSError(errno.EIO, "the host is down")
        if self.failing_errno is not None:
            raise OSError(self.failing_errno, os.strerror(self.failing_errno))
        if self.crash_after_changes is not None:
            self.crash_after_changes -= 1
            if self.crash_after_changes < 0:
                self.crash_after_changes = None
                self.on_crash()
                raise CrashError

    def kill(self) -> None:
        """Closes all descriptors, as the kernel does when a process ends."""
        self.generation += 1
        self.failing_errno = self.crash_after_changes = None

    def lose_power(self) -> None:
        """Ends the process and loses a random part of what is not durable."""
        self.kill()
        self.root.lose_power(self.rng, self.losses)

    def find(self, parts: list[str]) -> Node:
        """Returns the file or directory at this path. Raises FileNotFoundError, NotADirectoryError."""
        node: Node = self.root
        for part in parts:
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", "/".join(parts))
            found = node.names.get(part)
            if found is None:
                raise FileNotFoundError(
                    errno.ENOENT, "No such file or directory", f"{self.path}/{'/'.join(parts)}"
                )
            node = found
        return node

    def directory(self, parts: list[str]) -> Directory:
        node = self.find(parts)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", "/".join(parts))
        return node

    def durable(self, *parts: str) -> Node | None:
        """Returns what is at this path after a power failure in any case; None if the name is not durable."""
        node: Node | None = self.root
        for part in parts:
            node = node.durable.get(part) if isinstance(node, Directory) else None
        return node


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
            for module in (io, builtins):
                stack.enter_context(
                    mock.patch.object(module, "open", _by_path(module.open, self.open_stream))
                )
            try:
                yield
            finally:
                _disown()


def _disown() -> None:
    """Disowns simulated descriptors that something still holds, such as a traceback.

    Otherwise the kernel would be asked to close them later.
    """
    for found in gc.get_objects():
        if type(found) is OpenFile and found.fileno() >= FIRST_FD:
            found._fd = -1


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
