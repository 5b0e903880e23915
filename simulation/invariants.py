"""What must hold after every event, whoever runs the replicas: the properties of `spec/KRaft.tla` and of Kafka's own simulation.

========================= =====================================================================================
one leader an epoch       nobody leads an epoch that another has led, nobody's disk names another leader of it, and a leader
                          has a majority's votes
one vote an epoch         a directory never stores a vote for a second candidate of one epoch
logs match                the same epoch at the same offset means the same log up to there
committed stays           two replicas never believe different records committed, nor does one cut such a record
leader completeness       whoever begins to lead holds everything that was committed in earlier epochs
majority                  a leader's high watermark is on the disks of a majority of the voters of its own log
acknowledged is durable   no controller fetches from an offset behind what is on its disk
high watermark            it never falls while a process lives; a leader's first is above all that earlier leaders committed
epoch                     it never falls, and after each step the one on disk is the one in memory
one voter of difference   a leader's new voter set and the committed one differ by one replica at most
pre-vote                  nobody who hears the leader of its epoch grants one
applied state             equal at equal offsets (digests of what listeners were given), and no leader loads a snapshot
snapshot at log start     a log that begins behind 0 has a snapshot exactly there, and its epochs know that point
========================= =====================================================================================

`History` believes only what it is told of logs and disks; it asks no replica who its voters are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from quorate.raft.membership import KRAFT_VERSION, KRAFT_VOTERS
from quorate.raft.quorum_state import QuorumState
from quorate.raft.roles import LogView
from quorate.raft.types import NO_DIRECTORY, OffsetEpoch, ReplicaKey
from simulation.trail import Batch, Trail

Key = tuple[int, bytes]  # node id, directory id
Keys = frozenset[Key]


class InvariantError(AssertionError):
    """Names the invariant and who broke it."""


def keys_of(voters: Iterable[object]) -> Keys:
    """Of a VotersRecord's entries or of a VoterSet."""
    found = set()
    for v in voters:
        key = getattr(v, "key", None)
        if isinstance(key, ReplicaKey):
            found.add((key.id, key.directory_id))
        else:
            found.add((v.voter_id, v.voter_directory_id))  # type: ignore[attr-defined]
    return frozenset(found)


def counts(keys: Keys, key: Key) -> bool:
    return key in keys or (key[0], NO_DIRECTORY) in keys


def difference(a: Keys, b: Keys) -> int:
    """How many replicas are in one set only; by node id where directory ids are not known."""
    if any(directory == NO_DIRECTORY for _, directory in a | b):
        return len({i for i, _ in a} ^ {i for i, _ in b})
    return len(a ^ b)


def ids(keys: Keys) -> list[str]:
    """Node ids, with the number of the directory where it is not a node's first."""
    return sorted(f"{i}" if not directory[1] else f"{i}.{directory[1]}" for i, directory in keys)


class Subject:
    """One directory with a log, as the invariants follow it."""

    __slots__ = ("base_set", "epoch", "hwm", "key", "led", "name", "sets", "trail")

    def __init__(self, name: str, key: Key, base_set: Keys) -> None:
        self.name = name
        self.key = key
        self.trail = Trail()
        self.base_set = base_set  # of the configuration or of the snapshot that the log starts with
        self.sets: list[tuple[int, Keys]] = []  # (offset of the batch's end, set)
        self.hwm = -1  # as this process knew it last
        self.epoch = 0
        self.led = 0  # the last epoch in which it led

    @property
    def voters(self) -> Keys:
        return self.sets[-1][1] if self.sets else self.base_set

    def voters_at(self, end: int) -> Keys:
        """Of the log below `end`."""
        for at, keys in reversed(self.sets):
            if at <= end:
                return keys
        return self.base_set


class History:
    """All that was ever led, voted, written and committed."""

    def __init__(self, first_set: Keys) -> None:
        self.static = any(directory == NO_DIRECTORY for _, directory in first_set)  # kraft.version 0 at first
        self.sets: list[tuple[int, Keys]] = [(0, first_set)]  # committed voter sets, by the end of their batch
        self.leaders: dict[int, Key] = {}
        self.named: dict[int, int] = {}  # epoch -> its leader's node id as disks have it
        self.votes: dict[int, dict[Key, int]] = {}  # epoch -> who voted for which node
        self.seen: dict[tuple[int, int], int] = {}  # (end, epoch) of a batch -> digest
        self.ends: list[int] = [0]  # of committed batches
        self.digests: list[int] = [0]
        self.epochs: list[int] = [0]  # of the leader that committed it
        self.applied: dict[int, int] = {}  # offset -> digest of the state machines there
        self.elections = 0
        self.truncations = 0
        self.set_changes = 0
        self.happened: Counter[str] = Counter()  # work and faults that came to bear

    @property
    def committed_end(self) -> int:
        return self.ends[-1]

    def committed_digest(self, offset: int) -> int | None:
        at = bisect_left(self.ends, offset)
        return self.digests[at] if at < len(self.ends) and self.ends[at] == offset else None

    def set_at(self, end: int) -> Keys:
        """The committed voter set below this offset."""
        return next(keys for at, keys in reversed(self.sets) if at <= end)

    # --- logs -------------------------------------------------------------------------------------------------------

    def appended(self, s: Subject, batch: Batch, *, leads: bool) -> None:
        trail = s.trail
        if batch.base != trail.end or batch.epoch < trail.last_epoch:
            raise InvariantError(f"log of {s.name}: {batch} behind offset {trail.end}, epoch {trail.last_epoch}")
        if batch.before != trail.end_digest:
            raise InvariantError(f"logs match: {s.name} has another log before {batch} than its writer had")
        known = self.seen.setdefault((batch.end, batch.epoch), batch.digest)
        if known != batch.digest:
            raise InvariantError(f"logs match: two different batches end at {batch.end} in epoch {batch.epoch}, at {s.name}")
        for kind, value in batch.controls:
            if kind == KRAFT_VOTERS:
                keys = keys_of(value.voters)
                self._set_appended(s, batch, keys, leads)
                s.sets.append((batch.end, keys))
        trail.append(batch)

    def _set_appended(self, s: Subject, batch: Batch, keys: Keys, leads: bool) -> None:
        before = s.voters
        if before and difference(before, keys) > 1:  # a replica without configured voters learns its first set here
            raise InvariantError(f"one voter of difference: {s.name} at {batch.base}: {ids(before)} and {ids(keys)}")
        if leads:
            self.set_changes += before != keys
            committed = s.voters_at(self.committed_end)
            if difference(committed, keys) > 1:
                raise InvariantError(
                    f"one voter of difference: {s.name} writes {ids(keys)} at {batch.base}, {ids(committed)} are committed"
                )

    def truncated(self, s: Subject, to: int) -> None:
        trail = s.trail
        self._keeps_committed(s, to)
        trail.cut(to)
        self.truncations += 1
        if trail.end != to:
            raise InvariantError(f"log of {s.name}: truncated to {to}, inside a batch")
        while s.sets and s.sets[-1][0] > to:
            s.sets.pop()

    def _keeps_committed(self, s: Subject, to: int) -> None:
        """What goes must differ from what is committed, or not be committed."""
        for batch in s.trail.between(to, self.committed_end):
            if self.committed_digest(batch.end) == batch.digest:
                raise InvariantError(f"committed stays: {s.name} cuts {batch}, which is committed, truncating to {to}")
            return  # behind the first batch that differs all do

    def lost(self, s: Subject, to: int) -> None:
        """A power failure took what was not durable: no rule is broken by that itself."""
        s.trail.cut(to)
        while s.sets and s.sets[-1][0] > to:
            s.sets.pop()

    def restarted(self, s: Subject, snapshot: OffsetEpoch, digest: int, keys: Keys | None) -> None:
        """A snapshot has replaced the log."""
        if digest != self.committed_digest(snapshot.offset):
            raise InvariantError(f"committed stays: {s.name} loads snapshot {tuple(snapshot)} of another history")
        s.trail.restart(snapshot, digest)
        s.sets.clear()
        if keys is not None:
            s.base_set = keys

    def cleaned(self, s: Subject, start: OffsetEpoch) -> None:
        """The log before a snapshot is forgotten."""
        s.base_set = s.voters_at(start.offset)
        s.trail.forget_before(start)
        s.sets = [(at, keys) for at, keys in s.sets if at > start.offset]

    # --- epochs, votes, leaders -------------------------------------------------------------------------------------

    def stored(self, s: Subject, state: QuorumState) -> None:
        """A quorum state was made durable. A leader's own vote is not written, as in Kafka: it is in `leader_id`."""
        epoch = state.epoch
        if epoch < s.epoch:
            raise InvariantError(f"epoch: that of {s.name} falls from {s.epoch} to {epoch}")
        s.epoch = epoch
        if state.leader_id is not None:
            named = self.named.setdefault(epoch, state.leader_id)
            if named != state.leader_id:
                raise InvariantError(f"one leader an epoch: {s.name} stores {state.leader_id} for epoch {epoch}, others {named}")
        voted = state.voted.id if state.voted is not None else state.leader_id if state.leader_id == s.key[0] else None
        if voted is not None:
            known = self.votes.setdefault(epoch, {}).setdefault(s.key, voted)
            if known != voted:
                raise InvariantError(f"one vote an epoch: {s.name} votes for {known} and {voted} in epoch {epoch}")

    def is_stored(self, s: Subject, state: QuorumState | None, epoch: int) -> None:
        """Between two steps: `epoch` is the one in memory."""
        if epoch != (state.epoch if state is not None else 0):
            raise InvariantError(f"epoch: {s.name} is in epoch {epoch}, its disk has {state}")

    def granted_pre_vote(self, s: Subject, hears_leader: bool) -> None:
        if hears_leader:
            raise InvariantError(f"pre-vote: {s.name} grants one although it hears the leader of epoch {s.epoch}")

    def leads(self, s: Subject, epoch: int) -> None:
        """It begins to lead: before its first batch is written, or with it."""
        s.led = epoch
        self.elections += 1
        named = self.named.setdefault(epoch, s.key[0])
        if named != s.key[0]:
            raise InvariantError(f"one leader an epoch: {s.name} leads epoch {epoch}, others follow {named}")
        known = self.leaders.setdefault(epoch, s.key)
        if known != s.key:
            raise InvariantError(f"one leader an epoch: {known[0]} and {s.name} lead epoch {epoch}")
        votes = [key for key, candidate in self.votes.get(epoch, {}).items() if candidate == s.key[0]]
        voters = s.voters_at(s.trail.end)
        got = sum(counts(voters, k) for k in votes)
        if 2 * got <= len(voters):
            raise InvariantError(f"one leader an epoch: {s.name} leads epoch {epoch} with {got} votes of {len(voters)} voters")
        at = bisect_left(self.epochs, epoch) - 1  # what a newer leader has committed meanwhile is not its business
        trail, end = s.trail, self.ends[at]
        if trail.end < end:
            raise InvariantError(f"leader completeness: {s.name} leads epoch {epoch} with a log to {trail.end} of {end}")
        if end >= trail.start and trail.digest_at(end) != self.digests[at]:
            raise InvariantError(f"leader completeness: {s.name} leads epoch {epoch}, its log below {end} is another")

    # --- what is committed ------------------------------------------------------------------------------------------

    def committed(self, s: Subject, hwm: int, epoch: int) -> None:
        """A process believes, in this epoch, everything below `hwm` committed."""
        if hwm < s.hwm:
            raise InvariantError(f"high watermark: that of {s.name} falls from {s.hwm} to {hwm}")
        s.hwm = hwm
        trail, end = s.trail, self.committed_end
        if hwm <= end:
            if trail.start <= hwm and trail.digest_at(hwm) != self.committed_digest(hwm):
                raise InvariantError(f"committed stays: {s.name} has other records below its high watermark {hwm}")
            return
        if trail.start > end or trail.digest_at(end) != self.digests[-1]:
            raise InvariantError(f"committed stays: {s.name} commits {hwm}, but differs below {end}, committed before")
        for batch in trail.between(end, hwm):
            self.ends.append(batch.end)
            self.digests.append(batch.digest)
            self.epochs.append(epoch)
            for kind, value in batch.controls:
                if kind == KRAFT_VOTERS:
                    self.sets.append((batch.end, keys_of(value.voters)))
                elif kind == KRAFT_VERSION and value.kraft_version and self.static:
                    self.happened["kraft.version upgrades"] += 1
        if self.committed_end != hwm:
            raise InvariantError(f"high watermark: {s.name} commits {hwm}, where no batch ends")

    def fetches(self, s: Subject, offset: int, durable_end: int) -> None:
        """A controller fetches from `offset` on, and so acknowledges everything before it."""
        if offset > durable_end:
            raise InvariantError(f"acknowledged is durable: {s.name} fetches from {offset}, its disk has {durable_end}")

    def reached(self, s: Subject, hwm: int, holds: Callable[[Key, int, int], bool], sets: Sequence[Keys] | None = None) -> None:
        """A leader moves its high watermark. `holds(voter, hwm, digest)`: whether a disk has the log below it. `sets`: one of
        these voter sets has acted."""
        earlier = self.ends[bisect_left(self.epochs, s.led) - 1]
        if hwm <= earlier:
            raise InvariantError(f"high watermark: {s.name} leads epoch {s.led} with {hwm}, earlier leaders committed {earlier}")
        digest = s.trail.digest_at(hwm)
        if digest is None:
            raise InvariantError(f"high watermark: {s.name} commits {hwm}, where no batch ends")
        names: list[int] = []
        for voters in sets if sets is not None else [s.voters]:
            names = [key[0] for key in voters if holds(key, hwm, digest)]
            if 2 * len(names) > len(voters):
                return
        raise InvariantError(f"majority: {s.name} commits {hwm} with {names} of {len(s.voters)} voters' disks")

    def starts_at(self, s: Subject, log: LogView) -> None:
        """After the log's start may have moved."""
        earliest, start = log.earliest_snapshot(), log.start_offset
        if start > 0 and (earliest is None or earliest.offset != start):
            raise InvariantError(f"snapshot at log start: {s.name} starts at {start}, its first snapshot is {earliest}")
        if earliest is not None:
            known = log.end_offset_for_epoch(earliest.epoch)
            if known.epoch != earliest.epoch or known.offset < earliest.offset:
                raise InvariantError(f"snapshot at log start: {s.name} has {earliest}, its epochs say {known}")

    def loads_snapshot(self, s: Subject, snapshot: OffsetEpoch, *, leads: bool) -> None:
        """A state machine begins anew."""
        if leads:
            raise InvariantError(f"applied state: {s.name} loads {snapshot} while it leads epoch {s.led}")

    def applied_at(self, s: Subject, offset: int, digest: int) -> None:
        known = self.applied.setdefault(offset, digest)
        if known != digest:
            raise InvariantError(f"applied state: that of {s.name} at offset {offset} is another than its peers'")
