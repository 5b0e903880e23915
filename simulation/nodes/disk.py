"""Disks in memory with the durability of real ones: a write can be read at once, but is durable only after
fsync.

A killed process loses nothing. A power failure keeps what was synced of each file, and the first few of
the later writes, the last of them torn. Of each directory it keeps what was synced, and the first few of
the later changes. `filesystem` serves the functions of `os` from these disks.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Callable

from simulation.nodes.loop import CrashError

MOUNT = "/simulated"

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
        self.crash_after_changes: int | None = None  # the process ends at the change after this many others
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
