"""The disk of a replica of the pure core: a log in memory, snapshots, the quorum state, and what of it is durable."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from quorate.log.epoch_cache import EpochCache
from quorate.raft.membership import KRAFT_VERSION, KRAFT_VOTERS, voter_set
from quorate.raft.quorum_state import QuorumState
from quorate.raft.standing import Standing
from quorate.raft.types import OffsetEpoch
from quorate.raft.voters import Membership, VoterSet
from simulation.invariants import History, Keys, Subject, keys_of
from simulation.trail import Batch

BOOTSTRAP = OffsetEpoch(0, 0)
SNAPSHOT_BYTES = bytes(400)  # what a download of any snapshot moves: only its length matters


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of a snapshot; its bytes are `SNAPSHOT_BYTES`."""

    digest: int
    voters: VoterSet | None
    kraft_version: int | None

    @property
    def keys(self) -> Keys | None:
        return None if self.voters is None else keys_of(self.voters)


@dataclass(slots=True)
class MemoryDisk:
    """Implements the core's LogView over a `Subject`, as `MetadataLog` does over files."""

    subject: Subject
    history: History
    snapshots: dict[OffsetEpoch, Snapshot] = field(default_factory=dict)
    stored: QuorumState | None = None
    standing: Standing = Standing.NEVER
    durable_end: int = 0
    start: int = 0
    end: int = 0
    _names: list[OffsetEpoch] = field(default_factory=list)
    _epochs: EpochCache = field(default_factory=EpochCache)

    def __post_init__(self) -> None:
        self._names = sorted(self.snapshots)

    # --- LogView ----------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self.start

    @property
    def end_offset(self) -> int:
        return self.end

    @property
    def last_epoch(self) -> int:
        epoch = self._epochs.latest_epoch
        if epoch is not None:
            return epoch
        return self._names[-1].epoch if self._names else 0

    def end_offset_for_epoch(self, epoch: int) -> OffsetEpoch:
        found, end = self._epochs.end_offset_for(epoch, self.end)
        if end < 0:
            return OffsetEpoch(self.end, self.last_epoch)
        earliest = self.earliest_snapshot()
        if earliest is not None and end == earliest.offset and found == epoch:
            return earliest
        return OffsetEpoch(end, found)

    def latest_snapshot(self) -> OffsetEpoch | None:
        return self._names[-1] if self._names else None

    def earliest_snapshot(self) -> OffsetEpoch | None:
        return self._names[0] if self._names else None

    def snapshot_size(self, snapshot: OffsetEpoch) -> int | None:
        return len(SNAPSHOT_BYTES) if snapshot in self.snapshots else None

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(self, batch: Batch, *, leads: bool) -> None:
        self.history.appended(self.subject, batch, leads=leads)
        self._epochs.assign(batch.epoch, batch.base)
        self.end = batch.end

    def truncate(self, to: int) -> None:
        self.history.truncated(self.subject, to)
        self._shrink(to)

    def lose(self, to: int) -> None:
        """A power failure: what was not durable is gone from there on."""
        self.history.lost(self.subject, to)
        self._shrink(to)

    def recover(self) -> None:
        """A start: a newest snapshot that is ahead of the log replaces it."""
        latest = self.latest_snapshot()
        epoch = self._epochs.latest_epoch or 0
        if latest is not None and (latest.epoch > epoch or (latest.epoch == epoch and latest.offset > self.end)):
            self.install(latest, self.snapshots[latest])

    def _shrink(self, to: int) -> None:
        self.end = to
        self.durable_end = min(self.durable_end, to)
        self._epochs.truncate_from_end(to)

    def add_snapshot(self, name: OffsetEpoch, snapshot: Snapshot) -> None:
        if name not in self.snapshots:
            insort(self._names, name)
            self.snapshots[name] = snapshot

    def install(self, name: OffsetEpoch, snapshot: Snapshot) -> None:
        """Replaces the log."""
        self.history.restarted(self.subject, name, snapshot.digest, snapshot.keys)
        self.add_snapshot(name, snapshot)
        self._forget_snapshots(name)
        self._epochs.clear()
        self.start = self.end = self.durable_end = name.offset
        self.history.starts_at(self.subject, self)

    def clean(self) -> bool:
        """Moves the log start to the second oldest snapshot, where there is one; whether it did."""
        if len(self._names) < 2 or self._names[1].offset <= self.start or self._names[1].offset > self.durable_end:
            return False
        keep = self._names[1]
        self.history.cleaned(self.subject, keep)
        self._forget_snapshots(keep)
        self.start = keep.offset
        self._epochs.truncate_from_start(keep.offset)
        self.history.starts_at(self.subject, self)
        return True

    def _forget_snapshots(self, before: OffsetEpoch) -> None:
        for name in [n for n in self._names if n < before]:
            del self.snapshots[name]
        self._names = sorted(self.snapshots)

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self, offset: int, count: int) -> list[Batch]:
        return self.subject.trail.between(offset, 1 << 62)[:count]

    def membership(self, static: VoterSet) -> Membership:
        """As a start finds it: from the latest snapshot and the log behind it."""
        members = Membership(static)
        offset = self.start
        latest = self.latest_snapshot()
        if latest is not None:
            content = self.snapshots[latest]
            members.reset(latest.offset - 1, content.voters, content.kraft_version)
            offset = latest.offset
        for batch in self.subject.trail.between(offset, 1 << 62):
            for record in batch.control_records():
                if record.type == KRAFT_VOTERS:
                    members.add_voters(record.offset, voter_set(record.value))  # type: ignore[arg-type]
                elif record.type == KRAFT_VERSION:
                    members.add_kraft_version(record.offset, record.value.kraft_version)  # type: ignore[attr-defined]
        return members
