"""A replica for the explorer: the real core and the simulation's driver (`Replica`), advanced event by event.

Time does not advance. The explorer chooses when timers fire, fsyncs end, and processes crash and start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from quorate.raft.core import messages as m
from quorate.raft.core.control_records import KRAFT_VOTERS
from quorate.raft.core.effects import Effects, Outgoing
from quorate.raft.core.events import Timeout
from quorate.raft.core.role_state import NEVER
from quorate.raft.types import OffsetEpoch, QuorumState, RaftParams, Role
from simulation.checker.invariants import InvariantChecker, Key, ReplicaModel, keys_of
from simulation.checker.log_model import Batch
from simulation.config import SimulationConfig, Topology
from simulation.core.memory_disk import Snapshot
from simulation.core.replica import Replica
from simulation.explorer.canonical_form import MIDPOINT_RANDOM, MidpointRandom, canonical_core, canonical_form
from simulation.identifiers import address

FIRST_ID = 101  # no other number in a replica is equal to a node id, so a replica can be renamed
Event = tuple[Any, ...]
Fact = tuple[str, tuple[Any, ...]]

# The timers of the core. The last one repeats BeginQuorumEpoch.
FETCH, QUICK, ELECTION, STAND, CHECK_QUORUM, BEGIN = (
    "fetch",
    "quick",
    "election",
    "stand",
    "check-quorum",
    "begin",
)


def nodes(voters: int) -> range:
    """Returns the node ids of this many voters."""
    return range(FIRST_ID, FIRST_ID + voters)


@dataclass(frozen=True, slots=True)
class RequestToken:
    """Identifies a request at the replica that received it.

    At most one of a kind from each sender waits there.
    """

    sender: int
    kind: str
    out: Outgoing | None = field(default=None, compare=False)


class FactRecorder(InvariantChecker):
    """Updates the model of the replica and records what is reported.

    `TransitionChecker` checks it, as it knows the whole world.
    """

    def __init__(self) -> None:
        super().__init__(frozenset())
        self.facts: list[Fact] = []
        self.replica: Replica

    def appended(self, model: ReplicaModel, batch: Batch, *, leads: bool) -> None:
        self.facts.append(("appended", (batch, leads)))
        model.voter_sets += [
            (batch.end, keys_of(value.voters)) for kind, value in batch.controls if kind == KRAFT_VOTERS
        ]
        model.log.append(batch)

    def truncated(self, model: ReplicaModel, to: int) -> None:
        self.facts.append(("truncated", (to,)))
        self.tail_lost(model, to)

    def stored(self, model: ReplicaModel, state: QuorumState) -> None:
        self.facts.append(("stored", (state,)))
        model.epoch = state.epoch

    def became_leader(self, model: ReplicaModel, epoch: int) -> None:
        self.facts.append(("became_leader", (epoch,)))
        model.led = epoch

    def committed(self, model: ReplicaModel, hwm: int, epoch: int) -> None:
        self.facts.append(("committed", (hwm, epoch)))
        model.hwm = hwm

    def high_watermark_advanced(self, model: ReplicaModel, hwm: int, holds: Any, sets: Any = None) -> None:
        self.facts.append(
            ("high_watermark_advanced", (hwm, self.replica.disk.durable_end, self.replica.core.state.epoch))
        )


class RecordingEnvironment:
    """An environment in which time does not advance, and which records what the replica sends and reports."""

    def __init__(self, voters: int, *, quick: bool, slow_disk: bool, repeats: bool) -> None:
        self.config = SimulationConfig(0, Topology(voters=voters, quick_failover=quick))
        self.slow_disk = slow_disk
        self.repeats = repeats
        self.now = 0.0
        self.rng = MIDPOINT_RANDOM
        self.trace_sink: Callable[[str], None] = self.append_trace
        self.bootstrap_servers = tuple(address(i) for i in nodes(voters))
        self.snapshots: dict[OffsetEpoch, Snapshot] = {}
        self.checker = FactRecorder()
        self.ids = {address(i): i for i in nodes(voters)}
        self.coverage: Counter[str] = Counter()
        self.params: dict[int, RaftParams] = {}
        self.acting = 0  # id of the replica that handles an event
        self.clear()

    def new_rng(self) -> MidpointRandom:
        return self.rng

    def clear(self) -> None:
        """Forgets the records of the last event."""
        self.sent: list[Outgoing] = []
        self.answers: list[tuple[RequestToken, m.Reply]] = []
        self.trace_lines: list[str] = []
        self.orphans: list[RequestToken] = []
        self.crash_points: set[int] = set()
        self.checker.facts = []

    def append_trace(self, line: str) -> None:
        self.trace_lines.append(line)

    def trace(self, replica: Replica, what: str) -> None:
        self.trace_lines.append(f"{replica.model.name} {what}")

    def schedule(self, at: float, action: Callable[[Any], bool | None], argument: Any) -> None:
        """Keeps what a running fsync covers.

        All other timers are read from the core, see `ExploredReplica.timers`.
        """
        if getattr(action, "__name__", "") == "synced":
            cast(ExploredReplica, cast(Any, action).__self__).sync_covers = argument[1:]

    def sync_delay(self, replica: Replica) -> float | None:
        return 1.0 if self.slow_disk else None

    def unique_number(self) -> int:
        return self.acting  # a batch is identified by its writer, its epoch and its place

    def holds(self, key: Key, hwm: int, digest: int) -> bool:
        raise NotImplementedError  # `TransitionChecker` knows the other replicas

    def crash_loses_power(self) -> bool:
        return False

    def send(self, sender: Replica, out: Outgoing) -> None:
        if isinstance(out.request, m.Fetch):
            InvariantChecker.fetches(self.checker, sender.model, out.request.offset, sender.disk.durable_end)
        self.sent.append(out)

    def answered(self, target: Replica, token: Any, reply: m.Reply) -> None:
        target.unanswered.pop(token, None)
        self.answers.append((token, reply))

    def schedule_restart(self, replica: Any) -> None:
        raise NotImplementedError  # the explorer chooses when a replica starts

    def died(self, replica: Replica, power: bool) -> None:
        self.orphans += cast("list[RequestToken]", list(replica.unanswered))
        replica.unanswered.clear()


class ExploredReplica(Replica):
    """A replica whose timers, fsyncs and crashes are chosen from outside."""

    sync_covers: tuple[int, int] = (0, 0)  # (log end, log generation) at the start of the running fsync
    world: RecordingEnvironment
    may_crash = True  # otherwise nothing reads the epoch and the vote on its disk any more

    def perform(self, effects: Effects) -> None:
        """Performs the effects, and records after which effects a crash would make a difference.

        There are two: requests are sent but the state is not saved; the state is saved but the log not
        truncated.
        """
        environment = self.world
        crash_points = environment.crash_points
        effects.save_may_wait = effects.save_may_wait and environment.slow_disk
        if effects.save_quorum_state is not None and not effects.save_may_wait and effects.send:
            crash_points.add(1)
        if effects.truncate_to is not None:
            crash_points.add(2)
        super().perform(effects)

    def start(self) -> None:
        super().start()
        params = replace(
            self.core.state.params, retry_backoff_s=0.0
        )  # a delay of the message has the same effect
        self.core.state.params = self.world.params.setdefault(self.id, params)

    def crash_keeping(self, keep: int, late: bool, last: bool) -> None:
        """Crashes and keeps the log up to `keep`.

        late    a quorum state whose save was deferred has been saved before
        last    the replica crashes no more
        """
        self.may_crash = not last
        if late:
            self._save_deferred(self.incarnation)
        self.crash(lose_power=False)
        if keep < self.disk.end:
            self.disk.lose_from(keep)

    def fsync_ends(self) -> None:
        """Ends the running fsync."""
        end, log_generation = self.sync_covers
        self.synced((self.incarnation, end, log_generation))

    def fire(self, timer: str) -> None:
        """Lets a timer expire."""
        r, f, leading = self.core.state, self.core.state.following, self.core.state.leading
        if timer == FETCH and f is not None:
            f.fetch_deadline = 0.0
        elif timer == QUICK and f is not None:
            f.quick_pre_vote_at = 0.0
        elif timer == ELECTION:
            r.election_deadline = 0.0
        elif timer == STAND and r.election is not None:
            r.election.not_before = 0.0
        elif timer == CHECK_QUORUM and leading is not None:
            leading.check_quorum_deadline = 0.0
        elif timer == BEGIN and leading is not None:
            leading.begin_epoch_at = 0.0
        self.step(Timeout())

    def timers(self) -> list[str]:
        """Returns the timers that are set."""
        r, f, found = self.core.state, self.core.state.following, []
        if f is not None and r.can_start_election:
            found += [FETCH] + [QUICK] * (f.quick_pre_vote_at != NEVER)
        if (
            r.role in (Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.RESIGNED)
            and r.election_deadline != NEVER
        ):
            found.append(ELECTION)
        if r.election is not None and r.election.not_before > 0:
            found.append(STAND)
        if r.leading is not None:
            found.append(CHECK_QUORUM)
            busy = sum(m.BeginEpoch in link.in_flight for link in r.links.values())
            if busy < len(r.voters) - 1:
                found.append(BEGIN)
        return found

    def end_pre_votes(self) -> None:
        """Ends the wait for pre-votes.

        Which of the missing ones were refused and which were lost makes no difference then.
        """
        if self.core.state.election is not None:
            self.core.state.election.votes = {
                i: True if i == self.id else None for i in self.core.state.election.votes
            }

    def expire(self, token: RequestToken) -> None:
        """Lets a parked Fetch time out, whose sender no longer waits for it."""
        for parked in self.core.state.leading.parked if self.core.state.leading is not None else ():
            if parked.token == token:
                parked.deadline = 0.0
        self.step(Timeout())

    def in_flight(self) -> dict[tuple[int, str], m.RaftRequest]:
        """Returns the requests that this replica waits for, by target and kind."""
        ids = self.world.ids
        return {
            (ids[a], k.__name__): q
            for a, link in self.core.state.links.items()
            for k, q in link.in_flight.items()
        }

    def canonical_form(self) -> tuple[Any, ...]:
        """Returns a value that is equal for replicas that behave the same from now on."""
        disk, model, environment = self.disk, self.model, self.world
        log = (disk.start, tuple(b.digest for b in model.log.batches), disk.durable_end, model.epoch)
        if not self.alive:
            return (*log, self.may_crash, self._canonical_state(disk.stored))
        stored = (
            (self._canonical_state(disk.stored), self._canonical_state(self.deferred_state))
            if self.may_crash
            else None
        )
        asked = tuple((a.sender, a.kind) for a in cast("dict[RequestToken, None]", self.unanswered))
        led = model.led == self.core.state.epoch  # it leads no earlier epoch again
        incarnation = (led, model.hwm, self.committed, self.hears_leader, len(self.proposed), asked)
        sync = (self.sync_covers[0], self.sync_covers[1] == self.log_generation) if self.syncing else None
        return (*log, stored, incarnation, sync, canonical_core(self.core.state, environment.repeats))

    def _canonical_state(self, state: QuorumState | None) -> Any:
        """Leaves out the vote where the leader is known, for the reason given in `canonical_core`."""
        if state is not None and state.leader_id is not None and not self.world.repeats:
            state = replace(state, voted=None)
        return canonical_form(state)
