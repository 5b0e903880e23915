"""The disk of a replica of the pure core, in memory: log, snapshots, quorum state, and what of it is
durable."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from quorate.log.partition.epoch_cache import EpochCache
from quorate.raft.core import messages as m
from quorate.raft.core.control_records import KRAFT_VERSION, KRAFT_VOTERS, voter_set
from quorate.raft.core.voters import Membership, MembershipRecord, VoterSet
from quorate.raft.types import OffsetEpoch, QuorumState
from simulation.checker.invariants import InvariantChecker, Keys, ReplicaModel, keys_of
from simulation.checker.log_model import Batch

MAX_BATCHES = 16  # in one Fetch response
CHUNK_BYTES = 160  # of a snapshot in one FetchSnapshot response: a download takes a few
SNAPSHOT_BYTES = bytes(400)  # the bytes that a download of any snapshot transfers: only their length matters


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
    """Implements the core's LogView over a `ReplicaModel`, as `MetadataLog` does over files."""

    model: ReplicaModel
    checker: InvariantChecker
    snapshots: dict[OffsetEpoch, Snapshot] = field(default_factory=dict)
    stored: QuorumState | None = None
    membership_record: MembershipRecord = MembershipRecord.NEVER
    durable_end: int = 0
    start: int = 0
    end: int = 0
    _names: list[OffsetEpoch] = field(default_factory=list)
    _epochs: EpochCache = field(default_factory=EpochCache)

    def __post_init__(self) -> None:
        self._names = sorted(self.snapshots)

    # --- LogView ----------------------------------------------------------------------------------

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

    # --- writing ----------------------------------------------------------------------------------

    def append(self, batch: Batch, *, leads: bool) -> None:
        self.checker.appended(self.model, batch, leads=leads)
        self._epochs.assign(batch.epoch, batch.base)
        self.end = batch.end

    def truncate(self, to: int) -> None:
        self.checker.truncated(self.model, to)
        self._shrink(to)

    def lose_from(self, to: int) -> None:
        """Loses the records from this offset on, in a power failure. They were not durable."""
        self.checker.tail_lost(self.model, to)
        self._shrink(to)

    def recover(self) -> None:
        """Recovers the log at a start: the latest snapshot replaces a log that does not reach it."""
        latest = self.latest_snapshot()
        epoch = self._epochs.latest_epoch or 0
        if latest is not None and (
            latest.epoch > epoch or (latest.epoch == epoch and latest.offset > self.end)
        ):
            self.install(latest, self.snapshots[latest])

    def _shrink(self, to: int) -> None:
        self.end = to
        self.durable_end = min(self.durable_end, to)
        self._epochs.truncate_from_end(to)

    def read_into(self, reply: m.Reply) -> None:
        """Reads what a reply to Fetch or FetchSnapshot names."""
        if isinstance(reply, m.FetchReply) and reply.read_from is not None:
            reply.records = self.read(reply.read_from, MAX_BATCHES)  # type: ignore[assignment]
        elif isinstance(reply, m.SnapshotReply) and reply.read:
            reply.data = SNAPSHOT_BYTES[reply.position : reply.position + min(reply.read, CHUNK_BYTES)]

    def snapshot_at(self, end: int, members: Membership) -> tuple[OffsetEpoch, Snapshot] | None:
        """Returns the id and the content of a snapshot that ends there, or None if the log has none of it."""
        log = self.model.log
        digest = log.digest_at(end)
        if end <= log.start or digest is None:
            return None
        kraft = members.kraft_version_at(end - 1)
        content = Snapshot(digest, members.voters_at(end - 1) if kraft else None, kraft if kraft else None)
        return OffsetEpoch(end, log.between(log.start, end)[-1].epoch), content

    def add_snapshot(self, name: OffsetEpoch, snapshot: Snapshot) -> None:
        if name not in self.snapshots:
            insort(self._names, name)
            self.snapshots[name] = snapshot

    def install(self, name: OffsetEpoch, snapshot: Snapshot) -> None:
        """Replaces the log by a snapshot."""
        self.checker.snapshot_installed(self.model, name, snapshot.digest, snapshot.keys)
        self.add_snapshot(name, snapshot)
        self._delete_snapshots_before(name)
        self._epochs.clear()
        self.start = self.end = self.durable_end = name.offset
        self.checker.check_log_start(self.model, self)

    def clean(self) -> bool:
        """Moves the log start to the second oldest snapshot, if there is one. Returns whether it moved."""
        if (
            len(self._names) < 2
            or self._names[1].offset <= self.start
            or self._names[1].offset > self.durable_end
        ):
            return False
        keep = self._names[1]
        self.checker.cleaned(self.model, keep)
        self._delete_snapshots_before(keep)
        self.start = keep.offset
        self._epochs.truncate_from_start(keep.offset)
        self.checker.check_log_start(self.model, self)
        return True

    def _delete_snapshots_before(self, before: OffsetEpoch) -> None:
        for name in [n for n in self._names if n < before]:
            del self.snapshots[name]
        self._names = sorted(self.snapshots)

    # --- reading ----------------------------------------------------------------------------------

    def read(self, offset: int, count: int) -> list[Batch]:
        """Returns up to `count` batches from this offset on."""
        return self.model.log.between(offset, 1 << 62)[:count]

    def membership(self, static: VoterSet) -> Membership:
        """Returns the membership that a start finds, from the latest snapshot and the log after it."""
        members = Membership(static)
        offset = self.start
        latest = self.latest_snapshot()
        if latest is not None:
            content = self.snapshots[latest]
            members.reset(latest.offset - 1, content.voters, content.kraft_version)
            offset = latest.offset
        for batch in self.model.log.between(offset, 1 << 62):
            for record in batch.control_records():
                if record.type == KRAFT_VOTERS:
                    members.add_voters(record.offset, voter_set(record.value))  # type: ignore[arg-type]
                elif record.type == KRAFT_VERSION:
                    members.add_kraft_version(record.offset, record.value.kraft_version)  # type: ignore[attr-defined]
        return members
