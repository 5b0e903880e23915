"""Voter sets, their history by offset, and the history of kraft.version (KIP-853).

Voter sets are immutable. A voter set takes effect when its VotersRecord is appended, committed or not,
and is undone when the log is truncated below it. Therefore the histories are kept.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from enum import Enum
from typing import Generic, TypeVar

from quorate.dataclass import dataclass
from quorate.raft.types import NO_DIRECTORY, Address, Endpoints, RaftError, ReplicaKey

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter, its listeners and the range of kraft.version that it supports."""

    key: ReplicaKey
    endpoints: Endpoints = field(default_factory=dict)
    kraft_versions: tuple[int, int] = (0, 0)

    @property
    def id(self) -> int:
        return self.key.id


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The replicas that count for a majority, at most one for each node id."""

    by_id: Mapping[int, Voter] = field(default_factory=dict)

    @staticmethod
    def of(voters: Iterable[Voter]) -> VoterSet:
        by_id: dict[int, Voter] = {}
        for voter in voters:
            if voter.id in by_id:
                raise RaftError(f"voter {voter.id} is twice in one voter set")
            by_id[voter.id] = voter
        return VoterSet(dict(sorted(by_id.items())))

    @staticmethod
    def static(voters: Mapping[int, Address], listener_name: str) -> VoterSet:
        """The set of `controller.quorum.voters`: no directory ids, one endpoint, kraft.version 0 only."""
        return VoterSet.of(Voter(ReplicaKey(i), {listener_name: address}) for i, address in voters.items())

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.by_id.values())

    @property
    def ids(self) -> list[int]:
        return list(self.by_id)

    @property
    def majority(self) -> int:
        return len(self.by_id) // 2 + 1

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether the id is in this set, with this directory id if the entry has one."""
        voter = self.by_id.get(key.id)
        return voter is not None and voter.key.directory_id in (NO_DIRECTORY, key.directory_id)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self.by_id) == 1 and self.is_voter(key)

    def has_key(self, key: ReplicaKey) -> bool:
        """Whether exactly this key is in this set. Voter changes name both its parts."""
        voter = self.by_id.get(key.id)
        return voter is not None and voter.key == key

    def address(self, node_id: int, listener: str) -> Address | None:
        voter = self.by_id.get(node_id)
        return voter.endpoints.get(listener) if voter is not None else None

    def endpoints(self, node_id: int) -> Endpoints:
        voter = self.by_id.get(node_id)
        return voter.endpoints if voter is not None else {}

    def with_voter(self, voter: Voter) -> VoterSet:
        """This set with `voter` added, or its entry replaced."""
        return VoterSet(dict(sorted({**self.by_id, voter.id: voter}.items())))

    def without(self, node_id: int) -> VoterSet:
        return VoterSet({i: v for i, v in self.by_id.items() if i != node_id})

    def updated(
        self, node_id: int, endpoints: Endpoints, kraft_versions: tuple[int, int], directory: bytes
    ) -> VoterSet:
        """This set with the endpoints and the version range of one voter replaced.

        An entry without a directory id gets this one.
        """
        old = self.by_id[node_id]
        directory_id = old.key.directory_id if old.key.directory_id != NO_DIRECTORY else directory
        return self.with_voter(
            replace(
                old, key=ReplicaKey(node_id, directory_id), endpoints=endpoints, kraft_versions=kraft_versions
            )
        )

    def overlaps(self, other: VoterSet) -> bool:
        """Whether any two majorities of both sets intersect: at most one key is added and one removed."""
        mine, theirs = {v.key for v in self}, {v.key for v in other}
        if any(v.key.directory_id == NO_DIRECTORY for v in (*self, *other)):
            mine, theirs = {ReplicaKey(v.id) for v in self}, {ReplicaKey(v.id) for v in other}
        return len(mine - theirs) <= 1 and len(theirs - mine) <= 1


class MembershipRecord(Enum):
    """Whether a replica is or was a voter, according to the committed voter sets that it has seen."""

    NEVER = "never a voter"
    UNNAMED = "voter without a directory id"
    VOTER = "voter"
    REMOVED = "removed"

    def after(self, voters: VoterSet, me: ReplicaKey) -> MembershipRecord:
        """The record after one more voter set.

        An entry without a directory id may stand for this disk or for another disk of the same node. A
        later voter set fills the directory id in. If the entry is removed before that happens, this disk
        counts as removed.
        """
        entry = voters.by_id.get(me.id)
        if entry is not None and entry.key == me:
            return MembershipRecord.VOTER
        if entry is not None and entry.key.directory_id == NO_DIRECTORY:
            return MembershipRecord.UNNAMED if self is MembershipRecord.NEVER else self
        match self:
            case MembershipRecord.VOTER:
                return MembershipRecord.REMOVED
            case MembershipRecord.UNNAMED:
                return MembershipRecord.REMOVED if entry is None else MembershipRecord.NEVER
        return self


class History(Generic[T]):
    """Values by the offset of the record that set them. Offset -1 stands for the snapshot 0-0."""

    __slots__ = ("_offsets", "_values")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._values: list[T] = []

    def add(self, offset: int, value: T) -> None:
        """Adds the newest entry. Raises RaftError if its offset is not above all others."""
        if self._offsets and offset <= self._offsets[-1]:
            raise RaftError(f"control record at offset {offset} follows one at offset {self._offsets[-1]}")
        self._offsets.append(offset)
        self._values.append(value)

    def last(self) -> tuple[int, T] | None:
        return (self._offsets[-1], self._values[-1]) if self._offsets else None

    def at(self, offset: int) -> tuple[int, T] | None:
        """The newest entry at or before `offset`."""
        i = bisect.bisect_right(self._offsets, offset)
        return (self._offsets[i - 1], self._values[i - 1]) if i else None

    def between(self, after: int, upto: int) -> list[tuple[int, T]]:
        """The entries above `after`, up to and including `upto`."""
        i, j = bisect.bisect_right(self._offsets, after), bisect.bisect_right(self._offsets, upto)
        return list(zip(self._offsets[i:j], self._values[i:j], strict=True))

    def truncate_from(self, end_offset: int) -> None:
        """Removes the entries at or above `end_offset`, to which the log was truncated."""
        i = bisect.bisect_left(self._offsets, end_offset)
        del self._offsets[i:], self._values[i:]

    def trim_before(self, start_offset: int) -> None:
        """Removes all entries before the newest one at or before `start_offset`. A snapshot covers them."""
        i = bisect.bisect_right(self._offsets, start_offset)
        if i > 1:
            del self._offsets[: i - 1], self._values[: i - 1]

    def clear(self) -> None:
        self._offsets.clear()
        self._values.clear()


class Membership:
    """The voter sets and kraft.version levels in the log and the snapshots.

    Without any, the static voter set of `controller.quorum.voters` is current.
    """

    __slots__ = ("_current", "kraft", "static", "voters")

    def __init__(self, static: VoterSet | None = None) -> None:
        self.static = static if static is not None else VoterSet()
        self.voters: History[VoterSet] = History()
        self.kraft: History[int] = History()
        self._current = self.static

    @property
    def current(self) -> VoterSet:
        return self._current

    @property
    def current_offset(self) -> int | None:
        """The offset of the current voter set: -1 if from snapshot 0-0, None for the static voter set."""
        last = self.voters.last()
        return last[0] if last is not None else None

    @property
    def kraft_version(self) -> int:
        last = self.kraft.last()
        return last[1] if last is not None else 0

    def voters_at(self, offset: int) -> VoterSet:
        found = self.voters.at(offset)
        return found[1] if found is not None else self.static

    def kraft_version_at(self, offset: int) -> int:
        found = self.kraft.at(offset)
        return found[1] if found is not None else 0

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        last = self.voters.last()
        if last is not None and len(last[1]) and not last[1].overlaps(voters):
            raise RaftError(
                f"voter set at offset {offset} differs by more than one voter from the one before it"
            )
        self.voters.add(offset, voters)
        self._current = voters

    def add_kraft_version(self, offset: int, level: int) -> None:
        last = self.kraft.last()
        if last is not None and last[1] > level:
            raise RaftError(f"kraft.version at offset {offset} falls from {last[1]} to {level}")
        self.kraft.add(offset, level)

    def truncate_from(self, end_offset: int) -> None:
        self.voters.truncate_from(end_offset)
        self.kraft.truncate_from(end_offset)
        self._refresh()

    def trim_before(self, start_offset: int) -> None:
        self.voters.trim_before(start_offset)
        self.kraft.trim_before(start_offset)

    def reset(self, offset: int, voters: VoterSet | None, kraft_version: int | None) -> None:
        """Starts over with the voter set and kraft.version of a snapshot whose last offset is `offset`."""
        self.voters.clear()
        self.kraft.clear()
        if voters is not None:
            self.voters.add(offset, voters)
        if kraft_version is not None:
            self.kraft.add(offset, kraft_version)
        self._refresh()

    def _refresh(self) -> None:
        last = self.voters.last()
        self._current = last[1] if last is not None else self.static
