"""The invariants: what must hold after every event, at every level of the simulation.

They are the properties of `spec/KRaft.tla` and of Kafka's RaftEventSimulationTest, and some more.

========================= ================================================================================
one leader an epoch       An epoch has at most one leader, no disk names another, and a leader has the
                          votes of a majority.
one vote an epoch         A directory never stores votes for two candidates of one epoch.
logs match                Logs with the same epoch at the same offset are equal up to that offset.
committed stays           Two replicas never consider different records committed, and no replica truncates
                          a committed record.
leader completeness       A new leader has all records that were committed in earlier epochs.
majority                  A leader's high watermark is on the disks of a majority of the voters of its own
                          log.
acknowledged is durable   No controller fetches from an offset beyond its durable log.
high watermark            It never decreases while a process runs. The first one of a leader is greater than
                          those of all earlier leaders.
epoch                     It never decreases. After each step the one on disk equals the one in memory.
one voter of difference   A leader's new voter set differs from the committed one by at most one replica.
pre-vote                  No replica in contact with the leader of its epoch grants a pre-vote.
applied state             State machines are equal at equal offsets, and no leader loads a snapshot.
snapshot at log start     A log that starts after offset 0 has a snapshot at exactly that offset, and its
                          epochs have that offset.
========================= ================================================================================

`InvariantChecker` relies only on what is reported of logs and disks. It asks no replica who its
voters are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from quorate.raft.core.control_records import KRAFT_VERSION, KRAFT_VOTERS
from quorate.raft.core.state import LogView
from quorate.raft.types import NO_DIRECTORY, OffsetEpoch, QuorumState, ReplicaKey
from simulation.checker.log_model import Batch, LogModel

Key = tuple[int, bytes]  # node id, directory id
Keys = frozenset[Key]


class InvariantError(AssertionError):
    """An invariant is broken.

    The message begins with the name of the invariant, and names the replica that violated it.
    """


def keys_of(voters: Iterable[object]) -> Keys:
    """Returns the keys of the voters in a VotersRecord or in a VoterSet."""
    found = set()
    for v in voters:
        key = getattr(v, "key", None)
        if isinstance(key, ReplicaKey):
            found.add((key.id, key.directory_id))
        else:
            found.add((v.voter_id, v.voter_directory_id))  # type: ignore[attr-defined]
    return frozenset(found)


def counts(keys: Keys, key: Key) -> bool:
    """Returns whether this replica is in the voter set. In a static one directory ids are not known."""
    return key in keys or (key[0], NO_DIRECTORY) in keys


def difference(a: Keys, b: Keys) -> int:
    """Returns how many replicas are in one of the sets only.

    They are compared by node id where directory ids are not known.
    """
    if any(directory == NO_DIRECTORY for _, directory in a | b):
        return len({i for i, _ in a} ^ {i for i, _ in b})
    return len(a ^ b)


def ids(keys: Keys) -> list[str]:
    """Returns the node ids, with the number of the directory if it is not the node's first, for messages."""
    return sorted(f"{i}" if not directory[1] else f"{i}.{directory[1]}" for i, directory in keys)


class ReplicaModel:
    """The model of one replica, a metadata directory with its log, by which the invariants are checked."""

    __slots__ = ("epoch", "hwm", "initial_voters", "key", "led", "log", "name", "voter_sets")

    def __init__(self, name: str, key: Key, initial_voters: Keys) -> None:
        self.name = name
        self.key = key
        self.log = LogModel()
        # Those of the configuration, or of the snapshot at the start of the log.
        self.initial_voters = initial_voters
        # (end offset of the batch, voters) of each VotersRecord in the log.
        self.voter_sets: list[tuple[int, Keys]] = []
        self.hwm = -1  # the last one that this incarnation reported
        self.epoch = 0
        self.led = 0  # the last epoch in which it led

    @property
    def voters(self) -> Keys:
        return self.voter_sets[-1][1] if self.voter_sets else self.initial_voters

    def voters_at(self, end: int) -> Keys:
        """Returns the voters by the log below `end`."""
        for at, keys in reversed(self.voter_sets):
            if at <= end:
                return keys
        return self.initial_voters


class InvariantChecker:
    """Checks the invariants against the history of a simulation: all that was led, voted, written and
    committed.

    The simulation reports each change. Methods raise InvariantError if the change breaks an invariant.
    """

    def __init__(self, first_set: Keys) -> None:
        # The quorum begins with kraft.version 0.
        self.static = any(directory == NO_DIRECTORY for _, directory in first_set)
        # Committed voter sets, each with the end offset of its batch.
        self.voter_sets: list[tuple[int, Keys]] = [(0, first_set)]
        self.leaders: dict[int, Key] = {}
        self.stored_leaders: dict[int, int] = {}  # epoch -> node id of its leader by the disks
        self.votes: dict[int, dict[Key, int]] = {}  # epoch -> voter -> node id of the candidate
        self.seen: dict[tuple[int, int], int] = {}  # (end, epoch) of a batch -> digest
        self.ends: list[int] = [0]  # end offsets of the committed batches
        self.digests: list[int] = [0]
        self.epochs: list[int] = [0]  # of the leader that committed the batch
        self.applied: dict[int, int] = {}  # offset -> digest of the state of every state machine there
        self.elections = 0
        self.truncations = 0
        self.voter_changes = 0
        self.coverage: Counter[str] = Counter()  # how often each kind of work and of fault took effect

    @property
    def committed_end(self) -> int:
        return self.ends[-1]

    def committed_digest(self, offset: int) -> int | None:
        at = bisect_left(self.ends, offset)
        return self.digests[at] if at < len(self.ends) and self.ends[at] == offset else None

    def set_at(self, end: int) -> Keys:
        """Returns the committed voter set below this offset."""
        return next(keys for at, keys in reversed(self.voter_sets) if at <= end)

    # --- logs -------------------------------------------------------------------------------------

    def appended(self, model: ReplicaModel, batch: Batch, *, leads: bool) -> None:
        """A replica has written a batch: one of its own as leader, or one that it fetched."""
        log = model.log
        if batch.base != log.end or batch.epoch < log.last_epoch:
            raise InvariantError(
                f"log of {model.name}: {batch} behind offset {log.end}, epoch {log.last_epoch}"
            )
        if batch.before != log.end_digest:
            raise InvariantError(
                f"logs match: {model.name} has another log before {batch} than its writer had"
            )
        known = self.seen.setdefault((batch.end, batch.epoch), batch.digest)
        if known != batch.digest:
            raise InvariantError(
                f"logs match: two different batches end at {batch.end} in epoch {batch.epoch}, at "
                f"{model.name}"
            )
        for kind, value in batch.controls:
            if kind == KRAFT_VOTERS:
                keys = keys_of(value.voters)
                self._set_appended(model, batch, keys, leads)
                model.voter_sets.append((batch.end, keys))
        log.append(batch)

    def _set_appended(self, model: ReplicaModel, batch: Batch, keys: Keys, leads: bool) -> None:
        before = model.voters
        # A replica without configured voters learns its first set by this batch.
        if before and difference(before, keys) > 1:
            raise InvariantError(
                f"one voter of difference: {model.name} at {batch.base}: {ids(before)} and {ids(keys)}"
            )
        if leads:
            self.voter_changes += before != keys
            committed = model.voters_at(self.committed_end)
            if difference(committed, keys) > 1:
                raise InvariantError(
                    f"one voter of difference: {model.name} writes {ids(keys)} at {batch.base}, "
                    f"{ids(committed)} are committed"
                )

    def truncated(self, model: ReplicaModel, to: int) -> None:
        """A replica has truncated its log."""
        log = model.log
        self._keeps_committed(model, to)
        log.truncate(to)
        self.truncations += 1
        if log.end != to:
            raise InvariantError(f"log of {model.name}: truncated to {to}, inside a batch")
        while model.voter_sets and model.voter_sets[-1][0] > to:
            model.voter_sets.pop()

    def _keeps_committed(self, model: ReplicaModel, to: int) -> None:
        """Checks that no removed batch is a committed one."""
        for batch in model.log.between(to, self.committed_end):
            if self.committed_digest(batch.end) == batch.digest:
                raise InvariantError(
                    f"committed stays: {model.name} cuts {batch}, which is committed, truncating to {to}"
                )
            return  # after the first batch that differs, all differ

    def tail_lost(self, model: ReplicaModel, to: int) -> None:
        """A power failure took the end of the log, which was not durable. That alone breaks no invariant."""
        model.log.truncate(to)
        while model.voter_sets and model.voter_sets[-1][0] > to:
            model.voter_sets.pop()

    def snapshot_installed(
        self, model: ReplicaModel, snapshot: OffsetEpoch, digest: int, keys: Keys | None
    ) -> None:
        """A snapshot has replaced the log of a replica."""
        if digest != self.committed_digest(snapshot.offset):
            raise InvariantError(
                f"committed stays: {model.name} loads snapshot {tuple(snapshot)} of another history"
            )
        model.log.restart(snapshot, digest)
        model.voter_sets.clear()
        if keys is not None:
            model.initial_voters = keys

    def cleaned(self, model: ReplicaModel, start: OffsetEpoch) -> None:
        """A replica has deleted its log up to a snapshot."""
        model.initial_voters = model.voters_at(start.offset)
        model.log.delete_before(start)
        model.voter_sets = [(at, keys) for at, keys in model.voter_sets if at > start.offset]

    # --- epochs, votes, leaders -------------------------------------------------------------------

    def stored(self, model: ReplicaModel, state: QuorumState) -> None:
        """A replica has made a quorum state durable.

        A leader's vote for itself is in `leader_id` alone, as in Kafka.
        """
        epoch = state.epoch
        if epoch < model.epoch:
            raise InvariantError(f"epoch: that of {model.name} falls from {model.epoch} to {epoch}")
        model.epoch = epoch
        if state.leader_id is not None:
            stored_leader = self.stored_leaders.setdefault(epoch, state.leader_id)
            if stored_leader != state.leader_id:
                raise InvariantError(
                    f"one leader an epoch: {model.name} stores {state.leader_id} for epoch {epoch}, others "
                    f"{stored_leader}"
                )
        voted = (
            state.voted.id
            if state.voted is not None
            else state.leader_id
            if state.leader_id == model.key[0]
            else None
        )
        if voted is not None:
            known = self.votes.setdefault(epoch, {}).setdefault(model.key, voted)
            if known != voted:
                raise InvariantError(
                    f"one vote an epoch: {model.name} votes for {known} and {voted} in epoch {epoch}"
                )

    def check_epoch(self, model: ReplicaModel, state: QuorumState | None, epoch: int) -> None:
        """Checks, between two steps, that the epoch in memory is the durable one."""
        if epoch != (state.epoch if state is not None else 0):
            raise InvariantError(f"epoch: {model.name} is in epoch {epoch}, its disk has {state}")

    def granted_pre_vote(self, model: ReplicaModel, hears_leader: bool) -> None:
        """A replica grants a pre-vote."""
        if hears_leader:
            raise InvariantError(
                f"pre-vote: {model.name} grants one although it hears the leader of epoch {model.epoch}"
            )

    def became_leader(self, model: ReplicaModel, epoch: int) -> None:
        """A replica becomes leader. To be called before its first batch is reported, or right after."""
        model.led = epoch
        self.elections += 1
        stored_leader = self.stored_leaders.setdefault(epoch, model.key[0])
        if stored_leader != model.key[0]:
            raise InvariantError(
                f"one leader an epoch: {model.name} leads epoch {epoch}, others follow {stored_leader}"
            )
        known = self.leaders.setdefault(epoch, model.key)
        if known != model.key:
            raise InvariantError(f"one leader an epoch: {known[0]} and {model.name} lead epoch {epoch}")
        votes = [key for key, candidate in self.votes.get(epoch, {}).items() if candidate == model.key[0]]
        voters = model.voters_at(model.log.end)
        got = sum(counts(voters, k) for k in votes)
        if 2 * got <= len(voters):
            raise InvariantError(
                f"one leader an epoch: {model.name} leads epoch {epoch} with {got} votes of {len(voters)} "
                "voters"
            )
        # Only what earlier leaders committed: a newer one may already have committed more.
        at = bisect_left(self.epochs, epoch) - 1
        log, end = model.log, self.ends[at]
        if log.end < end:
            raise InvariantError(
                f"leader completeness: {model.name} leads epoch {epoch} with a log to {log.end} of {end}"
            )
        if end >= log.start and log.digest_at(end) != self.digests[at]:
            raise InvariantError(
                f"leader completeness: {model.name} leads epoch {epoch}, its log below {end} is another"
            )

    # --- what is committed ------------------------------------------------------------------------

    def committed(self, model: ReplicaModel, hwm: int, epoch: int) -> None:
        """A process believes, in this epoch, that all records below `hwm` are committed."""
        if hwm < model.hwm:
            raise InvariantError(f"high watermark: that of {model.name} falls from {model.hwm} to {hwm}")
        model.hwm = hwm
        log, end = model.log, self.committed_end
        if hwm <= end:
            if log.start <= hwm and log.digest_at(hwm) != self.committed_digest(hwm):
                raise InvariantError(
                    f"committed stays: {model.name} has other records below its high watermark {hwm}"
                )
            return
        if log.start > end or log.digest_at(end) != self.digests[-1]:
            raise InvariantError(
                f"committed stays: {model.name} commits {hwm}, but differs below {end}, committed before"
            )
        for batch in log.between(end, hwm):
            self.ends.append(batch.end)
            self.digests.append(batch.digest)
            self.epochs.append(epoch)
            for kind, value in batch.controls:
                if kind == KRAFT_VOTERS:
                    self.voter_sets.append((batch.end, keys_of(value.voters)))
                elif kind == KRAFT_VERSION and value.kraft_version and self.static:
                    self.coverage["kraft.version upgrades"] += 1
        if self.committed_end != hwm:
            raise InvariantError(f"high watermark: {model.name} commits {hwm}, where no batch ends")

    def fetches(self, model: ReplicaModel, offset: int, durable_end: int) -> None:
        """A controller fetches from `offset` on, which acknowledges all records before it."""
        if offset > durable_end:
            raise InvariantError(
                f"acknowledged is durable: {model.name} fetches from {offset}, its disk has {durable_end}"
            )

    def high_watermark_advanced(
        self,
        model: ReplicaModel,
        hwm: int,
        holds: Callable[[Key, int, int], bool],
        sets: Sequence[Keys] | None = None,
    ) -> None:
        """A leader moves its high watermark.

        `holds(voter, hwm, digest)` says whether the voter's disk has the log below it. One of the given
        voter sets was current; without any it is that of the leader's log.
        """
        earlier = self.ends[bisect_left(self.epochs, model.led) - 1]
        if hwm <= earlier:
            raise InvariantError(
                f"high watermark: {model.name} leads epoch {model.led} with {hwm}, earlier leaders committed "
                f"{earlier}"
            )
        digest = model.log.digest_at(hwm)
        if digest is None:
            raise InvariantError(f"high watermark: {model.name} commits {hwm}, where no batch ends")
        names: list[int] = []
        for voters in sets if sets is not None else [model.voters]:
            names = [key[0] for key in voters if holds(key, hwm, digest)]
            if 2 * len(names) > len(voters):
                return
        raise InvariantError(
            f"majority: {model.name} commits {hwm} with {names} of {len(model.voters)} voters' disks"
        )

    def check_log_start(self, model: ReplicaModel, log: LogView) -> None:
        """Checks the start of the log, where it may have moved."""
        earliest, start = log.earliest_snapshot(), log.start_offset
        if start > 0 and (earliest is None or earliest.offset != start):
            raise InvariantError(
                f"snapshot at log start: {model.name} starts at {start}, its first snapshot is {earliest}"
            )
        if earliest is not None:
            known = log.end_offset_for_epoch(earliest.epoch)
            if known.epoch != earliest.epoch or known.offset < earliest.offset:
                raise InvariantError(
                    f"snapshot at log start: {model.name} has {earliest}, its epochs say {known}"
                )

    def snapshot_loaded(self, model: ReplicaModel, snapshot: OffsetEpoch, *, leads: bool) -> None:
        """A state machine replaces its state by a snapshot."""
        if leads:
            raise InvariantError(
                f"applied state: {model.name} loads {snapshot} while it leads epoch {model.led}"
            )

    def state_applied(self, model: ReplicaModel, offset: int, digest: int) -> None:
        """A state machine has this digest after it has applied the log below `offset`."""
        known = self.applied.setdefault(offset, digest)
        if known != digest:
            raise InvariantError(
                f"applied state: that of {model.name} at offset {offset} differs from that of its peers"
            )
