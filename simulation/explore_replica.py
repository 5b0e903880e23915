"""One replica of a small world: the real core and the simulator's driver part (`Replica`), to which things happen one by one.

Time stands still. Timers, the ends of fsyncs, crashes and starts are chosen from outside.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, cast

from quorate.raft import messages as m
from quorate.raft.membership import KRAFT_VOTERS
from quorate.raft.quorum_state import QuorumState
from quorate.raft.roles import NEVER
from quorate.raft.types import OffsetEpoch, RaftParams, Role
from simulation.explore_values import MIDDLE, core_form, form
from simulation.invariants import History, Subject, keys_of
from simulation.memory import Snapshot
from simulation.plan import Plan, Topology
from simulation.replica import Replica
from simulation.trail import Batch
from simulation.world import address

FIRST_ID = 101  # node ids are no other numbers that occur, so that a replica can be renamed
Event = tuple[Any, ...]
Fact = tuple[str, tuple[Any, ...]]

# Timers, by what they bring about. The last only says something again.
FETCH, QUICK, ELECTION, STAND, CHECK_QUORUM, BEGIN = "fetch", "quick", "election", "stand", "check-quorum", "begin"


def nodes(voters: int) -> range:
    """The node ids."""
    return range(FIRST_ID, FIRST_ID + voters)


@dataclass(frozen=True, slots=True)
class Asker:
    """Names a request at the replica that has it: at most one of a kind from each sender waits there."""

    sender: int
    kind: str
    out: m.Outgoing | None = field(default=None, compare=False)


class Recorder(History):
    """Changes the log and tells the facts on; whether they are allowed is judged with the whole world in view."""

    def __init__(self) -> None:
        super().__init__(frozenset())
        self.facts: list[Fact] = []
        self.replica: Replica

    def appended(self, s: Subject, batch: Batch, *, leads: bool) -> None:
        self.facts.append(("appended", (batch, leads)))
        s.sets += [(batch.end, keys_of(value.voters)) for kind, value in batch.controls if kind == KRAFT_VOTERS]
        s.trail.append(batch)

    def truncated(self, s: Subject, to: int) -> None:
        self.facts.append(("truncated", (to,)))
        self.lost(s, to)

    def stored(self, s: Subject, state: QuorumState) -> None:
        self.facts.append(("stored", (state,)))
        s.epoch = state.epoch

    def leads(self, s: Subject, epoch: int) -> None:
        self.facts.append(("leads", (epoch,)))
        s.led = epoch

    def committed(self, s: Subject, hwm: int, epoch: int) -> None:
        self.facts.append(("committed", (hwm, epoch)))
        s.hwm = hwm

    def reached(self, s: Subject, hwm: int, holds: Any, sets: Any = None) -> None:
        self.facts.append(("reached", (hwm, self.replica.disk.durable_end, self.replica.core.epoch)))


class Scene:
    """Stands where a replica expects its world: time stands still, messages and wishes are noted."""

    def __init__(self, voters: int, *, quick: bool, slow_disk: bool, again: bool) -> None:
        self.plan = Plan(0, Topology(voters=voters, quick_failover=quick))
        self.slow_disk = slow_disk
        self.again = again
        self.now = 0.0
        self.rng = MIDDLE
        self.narrator = self.tell
        self.bootstrap = tuple(address(i) for i in nodes(voters))
        self.snapshots: dict[OffsetEpoch, Snapshot] = {}
        self.history = Recorder()
        self.ids = {address(i): i for i in nodes(voters)}
        self.happened: Counter[str] = Counter()
        self.params: dict[int, RaftParams] = {}
        self.acting = 0
        self.clear()

    def clear(self) -> None:
        self.sent: list[m.Outgoing] = []
        self.answers: list[tuple[Asker, m.Reply]] = []
        self.told: list[str] = []
        self.orphans: list[Asker] = []
        self.dooms: set[int] = set()
        self.history.facts = []

    def tell(self, line: str) -> None:
        self.told.append(line)

    def note(self, replica: Replica, what: str) -> None:
        self.told.append(f"{replica.subject.name} {what}")

    def push(self, at: float, do: Any, what: Any) -> None:
        """Alarms are branch points; what an fsync under way will cover is all that must be kept."""
        if getattr(do, "__name__", "") == "synced":
            cast(Explored, do.__self__).covers = what[1:]

    def sync_delay(self, replica: Replica) -> float | None:
        return 1.0 if self.slow_disk else None

    def unique(self) -> int:
        return self.acting  # a batch is named by its writer, epoch and place

    def holds(self, *_: object) -> bool:
        raise NotImplementedError  # judged elsewhere

    def dies_by_power(self) -> bool:
        return False

    def send(self, replica: Replica, out: m.Outgoing) -> None:
        if isinstance(out.request, m.Fetch):
            History.fetches(self.history, replica.subject, out.request.offset, replica.disk.durable_end)
        self.sent.append(out)

    def answered(self, replica: Replica, token: Any, reply: m.Reply) -> None:
        replica.open.pop(token, None)
        self.answers.append((token, reply))

    def died(self, replica: Replica, power: bool) -> None:
        self.orphans += cast("list[Asker]", list(replica.open))
        replica.open.clear()


class Explored(Replica):
    """A replica whose timers, fsyncs and crashes are chosen from outside."""

    covers: tuple[int, int] = (0, 0)  # (end, cuts) of the fsync under way
    mortal = True  # may crash yet: else what its disk says of epoch and vote is not read any more

    def apply(self, fx: m.Effects) -> None:
        """Notes after which duties a death in their midst would show: sent but not stored, stored but not cut."""
        scene = cast(Scene, self.world)
        dooms = scene.dooms
        fx.save_may_wait = fx.save_may_wait and scene.slow_disk
        if fx.save_quorum_state is not None and not fx.save_may_wait and fx.send:
            dooms.add(1)
        if fx.truncate_to is not None:
            dooms.add(2)
        super().apply(fx)

    def start(self) -> None:
        super().start()
        self.core.rng = MIDDLE
        quick = replace(self.core.params, retry_backoff_s=0.0)  # a letter may take as long
        self.core.params = cast(Scene, self.world).params.setdefault(self.id, quick)

    def crash(self, keep: int, late: bool, last: bool) -> None:
        """Keeps the log up to `keep`; `late`: a quorum state that might wait has been written in time."""
        self.mortal = not last
        if late:
            self._save_late(self.life)
        self.die(power=False)
        if keep < self.disk.end:
            self.disk.lose(keep)

    def fsync_ends(self) -> None:
        end, cuts = self.covers
        self.synced((self.life, end, cuts))

    def fire(self, timer: str) -> None:
        core, f, leading = self.core, self.core.following, self.core.leading
        if timer == FETCH and f is not None:
            f.fetch_deadline = 0.0
        elif timer == QUICK and f is not None:
            f.quick_at = 0.0
        elif timer == ELECTION:
            core.election_deadline = 0.0
        elif timer == STAND and core.election is not None:
            core.election.not_before = 0.0
        elif timer == CHECK_QUORUM and leading is not None:
            leading.check_quorum_deadline = 0.0
        elif timer == BEGIN and leading is not None:
            leading.begin_at = 0.0
        self.step(m.Timeout())

    def timers(self) -> list[str]:
        core, f, found = self.core, self.core.following, []
        if f is not None and core.may_stand:
            found += [FETCH] + [QUICK] * (f.quick_at != NEVER)
        if core.role in (Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.RESIGNED) and core.election_deadline != NEVER:
            found.append(ELECTION)
        if core.election is not None and core.election.not_before > 0:
            found.append(STAND)
        if core.leading is not None:
            found.append(CHECK_QUORUM)
            busy = sum(m.BeginEpoch in link.in_flight for link in core.links.values())
            if busy < len(core.voters) - 1:
                found.append(BEGIN)
        return found

    def pre_votes_are_over(self) -> None:
        """No more answers come: which were refused and which were lost makes no difference any more."""
        if self.core.election is not None:
            self.core.election.votes = {i: True if i == self.id else None for i in self.core.election.votes}

    def expire(self, asker: Asker) -> None:
        """A Fetch that nobody waits for any more is over."""
        for parked in self.core.leading.parked if self.core.leading is not None else ():
            if parked.token == asker:
                parked.deadline = 0.0
        self.step(m.Timeout())

    def under_way(self) -> dict[tuple[int, str], m.RaftRequest]:
        ids = cast(Scene, self.world).ids
        return {(ids[a], k.__name__): q for a, link in self.core.links.items() for k, q in link.in_flight.items()}

    def form(self) -> tuple[Any, ...]:
        disk, s, scene = self.disk, self.subject, cast(Scene, self.world)
        log = (disk.start, tuple(b.digest for b in s.trail.batches), disk.durable_end, s.epoch)
        if not self.alive:
            return (*log, self.mortal, self._stored_form(disk.stored))
        stored = (self._stored_form(disk.stored), self._stored_form(self.late_state)) if self.mortal else None
        asked = tuple((a.sender, a.kind) for a in cast("dict[Asker, None]", self.open))
        led = s.led == self.core.epoch  # an earlier one will not be led again
        life = (led, s.hwm, self.committed, self.hears, len(self.proposed), asked)
        sync = (self.covers[0], self.covers[1] == self.cuts) if self.syncing else None
        return (*log, stored, life, sync, core_form(self.core, scene.again))

    def _stored_form(self, state: QuorumState | None) -> Any:
        """A vote says nothing where the leader is known, see `core_form`."""
        if state is not None and state.leader_id is not None and not cast(Scene, self.world).again:
            state = replace(state, voted=None)
        return form(state)
