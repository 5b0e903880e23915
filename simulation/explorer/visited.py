"""The worlds that a search has visited, each with its predecessor on a shortest path."""

from __future__ import annotations

import hashlib
from array import array
from typing import Protocol

PackedWorld = bytes
Key = bytes | int


class VisitedWorlds(Protocol):
    """A set of worlds. The first world has no predecessor."""

    def __len__(self) -> int: ...

    def key(self, world: PackedWorld) -> Key:
        """What the set knows of a world."""
        ...

    def add(self, world: PackedWorld, predecessor: PackedWorld | None) -> bool:
        """Adds a world. Returns whether it is new."""
        ...

    def path_to(self, world: PackedWorld) -> list[Key]:
        """The keys from the first world to this one."""
        ...


class ExactWorlds:
    """Keeps the worlds themselves: about 200 bytes a world."""

    def __init__(self) -> None:
        self._predecessors: dict[PackedWorld, PackedWorld | None] = {}

    def __len__(self) -> int:
        return len(self._predecessors)

    def key(self, world: PackedWorld) -> Key:
        return world

    def add(self, world: PackedWorld, predecessor: PackedWorld | None) -> bool:
        if world in self._predecessors:
            return False
        self._predecessors[world] = predecessor
        return True

    def path_to(self, world: PackedWorld) -> list[Key]:
        path = [world]
        while (earlier := self._predecessors[path[-1]]) is not None:
            path.append(earlier)
        return list(reversed(path))


_NONE = 0
_FIRST_SLOTS = 1 << 16


class HashedWorlds:
    """Keeps 8 bytes of a hash of each world and of its predecessor: 24 to 48 bytes a world.

    Two worlds with the same hash count as one, so a world might be left out. With n worlds the probability of
    that is about n * n / 2^65: 0.03 % for a hundred million.
    """

    def __init__(self) -> None:
        self._count = 0
        self._hashes = array("Q", bytes(8 * _FIRST_SLOTS))
        """A hash table with linear probing."""
        self._predecessors = array("Q", bytes(8 * _FIRST_SLOTS))

    def __len__(self) -> int:
        return self._count

    def key(self, world: PackedWorld) -> int:
        digest = hashlib.blake2b(world, digest_size=8).digest()
        return int.from_bytes(digest) or 1  # 0 is a free slot

    def add(self, world: PackedWorld, predecessor: PackedWorld | None) -> bool:
        hashed = self.key(world)
        at = self._slot(hashed)
        if self._hashes[at] != _NONE:
            return False
        self._hashes[at] = hashed
        self._predecessors[at] = _NONE if predecessor is None else self.key(predecessor)
        self._count += 1
        if 3 * self._count > 2 * len(self._hashes):
            self._grow()
        return True

    def path_to(self, world: PackedWorld) -> list[Key]:
        path: list[Key] = []
        hashed = self.key(world)
        while hashed != _NONE:
            path.append(hashed)
            hashed = self._predecessors[self._slot(hashed)]
        path.reverse()
        return path

    def _slot(self, hashed: int) -> int:
        """The slot of a hash, or the free slot where it belongs."""
        hashes = self._hashes
        mask = len(hashes) - 1
        at = hashed & mask
        while (found := hashes[at]) != hashed and found != _NONE:
            at = (at + 1) & mask
        return at

    def _grow(self) -> None:
        hashes, predecessors = self._hashes, self._predecessors
        self._hashes = array("Q", bytes(16 * len(hashes)))
        self._predecessors = array("Q", bytes(16 * len(hashes)))
        for hashed, predecessor in zip(hashes, predecessors, strict=True):
            if hashed != _NONE:
                at = self._slot(hashed)
                self._hashes[at], self._predecessors[at] = hashed, predecessor
