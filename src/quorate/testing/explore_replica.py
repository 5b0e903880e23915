"""One replica of a small world, as a function: (what it is, what happens to it) -> (what it is then, what it says).

The real core and the simulator's driver part (`Replica`) run here, between the thawing and the freezing of one replica. What
a replica does depends on nothing else, so each pair is computed once, however many worlds it occurs in.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass, field
from typing import Any, cast

from quorate.raft import messages as m
from quorate.raft.membership import KRAFT_VOTERS
from quorate.raft.quorum_state import QuorumState
from quorate.raft.roles import NEVER
from quorate.raft.types import Address, OffsetEpoch, RaftParams, ReplicaKey, Role
from quorate.raft.voters import Voter, VoterSet
from quorate.testing.explore_values import MIDDLE, Middle, form
from quorate.testing.invariants import History, InvariantError, Subject, keys_of
from quorate.testing.memory import Snapshot
from quorate.testing.plan import Plan, Topology
from quorate.testing.replica import Replica
from quorate.testing.trail import Batch
from quorate.testing.world import World, address, directory, voter

Event = tuple[Any, ...]
Fact = tuple[str, tuple[Any, ...]]

# Timers, by what they bring about. The last two only send again.
FETCH, QUICK, ELECTION, STAND, CHECK_QUORUM, BEGIN, RETRY = "fetch", "quick", "election", "stand", "check-quorum", "begin", "retry"
AGAIN = (BEGIN, RETRY)


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

    def __init__(self, voters: int, *, quick: bool, late_sync: bool) -> None:
        self.plan = Plan(0, Topology(voters=voters, quick_failover=quick))
        self.late_sync = late_sync
        self.now = 0.0
        self.rng = MIDDLE
        self.narrator = self.tell
        self.bootstrap = tuple(address(i) for i in range(1, voters + 1))
        self.snapshots: dict[OffsetEpoch, Snapshot] = {}
        self.history = Recorder()
        self.ids = {address(i): i for i in range(1, voters + 1)}
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
        return 1.0 if self.late_sync else None

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

    def apply(self, fx: m.Effects) -> None:
        """Notes after which duties a death in their midst would show: sent but not stored, stored but not cut."""
        dooms = cast(Scene, self.world).dooms
        if fx.save_quorum_state is not None and not fx.save_may_wait and fx.send:
            dooms.add(1)
        if fx.truncate_to is not None:
            dooms.add(2)
        super().apply(fx)

    def start(self) -> None:
        super().start()
        self.core.rng = MIDDLE

    def crash(self, keep: int, late: bool) -> None:
        """Keeps the log up to `keep`; `late`: a quorum state that might wait has been written in time."""
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
        else:
            for link in core.links.values():
                link.ready_at = 0.0
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
        if any(link.ready_at > 0 for link in core.links.values()):
            found.append(RETRY)
        return found

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
        disk, s = self.disk, self.subject
        log = (disk.start, tuple(b.digest for b in s.trail.batches), disk.durable_end, form(disk.stored), disk.standing.name)
        if not self.alive:
            return (*log, s.epoch, s.led)
        life = (self.committed, self.hears, form(self.late_state), len(self.proposed), tuple((t.sender, t.kind) for t in self.open))  # type: ignore[attr-defined]
        sync = (self.covers[0], self.covers[1] == self.cuts) if self.syncing else None
        return (*log, s.epoch, s.led, s.hwm, life, sync, form(self.core))


# --- letters --------------------------------------------------------------------------------------------------------

CURRENT, STALE, ORPHAN = "current", "stale", "orphan"  # its sender waits for just this one; has turned away; hears nothing of it


@dataclass(frozen=True, slots=True)
class Letter:
    """A request on its way, held by its receiver, or with its answer on the way back; or word of a connection reset."""

    stage: str  # "request", "held", "reply", "reset"
    sender: int  # of the request; of a reset, who died
    target: int
    request: m.RaftRequest | None
    status: str = CURRENT
    reply: m.Reply | m.Failure | None = None

    @property
    def kind(self) -> str:
        return type(self.request).__name__

    def text(self) -> str:
        if self.stage == "reset":
            return f"n{self.target} sees its connection to n{self.sender} reset"
        to = f"n{self.sender}'s {describe(self.request)} to n{self.target}"
        return to if self.stage != "reply" else f"n{self.target}'s answer to {to}: {describe(self.reply)}"


def describe(what: object) -> str:
    match what:
        case m.Vote():
            return f"{'pre-vote' if what.pre_vote else 'Vote'}(epoch {what.epoch}, log {what.last.offset}-{what.last.epoch})"
        case m.BeginEpoch():
            return f"BeginQuorumEpoch({what.epoch})"
        case m.EndEpoch():
            return f"EndQuorumEpoch({what.epoch})"
        case m.Fetch():
            return f"Fetch(epoch {what.epoch}, from {what.offset}-{what.last_epoch})"
        case m.VoteReply():
            return ("granted" if what.granted else "refused") + _common(what)
        case m.FetchReply():
            news = what.diverging and f"diverging at {what.diverging.offset}-{what.diverging.epoch}"
            return f"{news or f'{len(what.records)} batches'}, high watermark {what.high_watermark}{_common(what)}"
        case m.Reply():
            return "ok" + _common(what)
        case m.Failure():
            return what.value
    return type(what).__name__


def _common(reply: m.Reply) -> str:
    error = f" {reply.error.name}" if reply.error else ""
    return f"{error} (epoch {reply.epoch}, leader {reply.leader_id})"


class Letters:
    """Numbers for letters: equal ones have one number."""

    def __init__(self) -> None:
        self.all: list[Letter] = []
        self._numbers: dict[Any, int] = {}
        self._forms: dict[int, Any] = {}
        self._kept: list[object] = []

    def _form(self, what: object) -> Any:
        if what is None or isinstance(what, m.Failure):
            return what
        found = self._forms.get(id(what))
        if found is None:
            found = self._forms[id(what)] = form(what)
            self._kept.append(what)
        return found

    def number(self, letter: Letter) -> int:
        key = (
            letter.stage, letter.sender, letter.target, letter.status, self._form(letter.request), self._form(letter.reply)
        )  # fmt: skip
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.all)
            self.all.append(letter)
        return found


# --- freezing and thawing -------------------------------------------------------------------------------------------

SHARED = (Batch, VoterSet, Voter, RaftParams, ReplicaKey, QuorumState, Scene, Recorder, Middle, frozenset)


class Shared:
    """Values that never change, and the scene: frozen replicas name them by number."""

    def __init__(self) -> None:
        self.values: list[object] = []
        self._numbers: dict[int, int] = {}

    def number(self, value: object) -> int:
        found = self._numbers.get(id(value))
        if found is None:
            found = self._numbers[id(value)] = len(self.values)
            self.values.append(value)
        return found

    def freeze(self, replica: Explored) -> bytes:
        out = io.BytesIO()
        pickler = _Pickler(out, 5)
        pickler.shared = self
        pickler.dump(replica)
        return out.getvalue()

    def thaw(self, data: bytes) -> Explored:
        unpickler = _Unpickler(io.BytesIO(data))
        unpickler.shared = self
        return cast(Explored, unpickler.load())


class _Pickler(pickle.Pickler):
    shared: Shared

    def persistent_id(self, obj: Any) -> int | None:
        return self.shared.number(obj) if type(obj) in SHARED else None


class _Unpickler(pickle.Unpickler):
    shared: Shared

    def persistent_load(self, pid: Any) -> object:
        return self.shared.values[pid]


@dataclass(slots=True)
class Known:
    """What the explorer asks of a frozen replica."""

    frozen: bytes
    id: int
    alive: bool
    epoch: int  # of the process, or of the disk
    role: Role | None
    timers: tuple[str, ...]
    leads: bool
    follows: int | None
    syncing: bool
    keeps: tuple[int, ...]  # where a power failure may cut the log
    late: bool  # a quorum state waits to be written
    under_way: tuple[tuple[int, str], ...]
    batches: tuple[Batch, ...]
    sets: tuple[Any, ...]
    hwm: int
    led: int
    stored: QuorumState | None
    stored_epoch: int
    durable_end: int
    digests: dict[int, int]
    log: Any  # what others are judged by


@dataclass(slots=True)
class Outcome:
    """What an event makes of a replica."""

    after: int = -1
    violation: str | None = None
    epoch: int = 0
    sends: tuple[int, ...] = ()  # numbers of letters
    lost: frozenset[tuple[int, str]] = frozenset()  # requests (target, kind) that it no longer waits for
    answers: tuple[tuple[int, str, m.Reply], ...] = ()  # (sender, kind, reply)
    held: bool = False  # the request delivered waits here
    orphans: tuple[tuple[int, str], ...] = ()  # that waited here when it died
    dooms: tuple[int, ...] = ()
    facts: tuple[Fact, ...] = ()
    told: tuple[str, ...] = ()


class Replicas:
    """All that replicas can be, by number, and what becomes of them: each pair of replica and event is computed once."""

    def __init__(self, voters: int, *, quick: bool, late_sync: bool, seek: bool = False) -> None:
        self.scene = Scene(voters, quick=quick, late_sync=late_sync)
        self.boot = VoterSet.of(voter(i) for i in range(1, voters + 1))
        self.voters = voters
        self.seek = seek
        self.letters = Letters()
        self.shared = Shared()
        self.known: list[Known] = []
        self._numbers: dict[Any, int] = {}
        self.outcomes: dict[tuple[int, Event], Outcome] = {}

    def fresh(self, node_id: int) -> int:
        """A formatted replica that has never run."""
        world = cast(World, self.scene)
        replica = Explored(world, ReplicaKey(node_id, directory(node_id)), can_vote=True, static=VoterSet(), boot=self.boot)
        return self._number(replica)

    def _number(self, replica: Explored) -> int:
        key = (replica.id, replica.form())
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.known)
            self.known.append(self._know(replica))
        return found

    def _know(self, r: Explored) -> Known:
        trail, disk, alive = r.subject.trail, r.disk, r.alive
        if alive:
            r.core.fx = m.Effects()
            under_way = tuple(r.under_way())
        else:
            under_way = ()
        ends = [b.end for b in trail.batches if b.end >= disk.durable_end]
        digests = {0: 0, **{b.end: b.digest for b in trail.batches}}
        return Known(
            frozen=self.shared.freeze(r),
            id=r.id,
            alive=alive,
            epoch=r.core.epoch if alive else r.subject.epoch,
            role=r.core.role if alive else None,
            timers=tuple(r.timers()) if alive else (),
            leads=alive and r.core.is_leader,
            follows=r.core.leader_id if alive and r.core.role is Role.FOLLOWER else None,
            syncing=alive and r.syncing,
            keeps=tuple(sorted({disk.durable_end, *ends})),
            late=alive and r.late_state is not None,
            under_way=under_way,
            batches=tuple(trail.batches),
            sets=tuple(r.subject.sets),
            hwm=r.subject.hwm,
            led=r.subject.led,
            stored=disk.stored,
            stored_epoch=r.subject.epoch,
            durable_end=disk.durable_end,
            digests=digests,
            log=(disk.durable_end, trail.end_digest),
        )

    def outcome(self, number: int, event: Event) -> Outcome:
        key = (number, event)
        found = self.outcomes.get(key)
        if found is None:
            found = self.outcomes[key] = self._compute(number, event)
        return found

    def _compute(self, number: int, event: Event) -> Outcome:
        scene, replica = self.scene, self.shared.thaw(self.known[number].frozen)
        scene.clear()
        scene.acting = replica.id
        scene.history.replica = replica
        before = replica.under_way() if replica.alive else {}
        out = Outcome()
        try:
            asker = self._happens(replica, event)
        except InvariantError as e:
            out.violation = str(e)
            out.told = tuple(scene.told)
            return out
        after = replica.under_way() if replica.alive else {}
        out.epoch = replica.core.epoch if replica.alive else replica.subject.epoch
        out.lost = frozenset(k for k, q in before.items() if after.get(k) is not q)
        out.answers = tuple((t.sender, t.kind, reply) for t, reply in scene.answers)
        out.held = asker is not None and asker in replica.open
        out.orphans = tuple((t.sender, t.kind) for t in scene.orphans)
        out.facts = tuple(scene.history.facts)
        out.told = tuple(scene.told)
        sends = []
        for sent in scene.sent:
            seeks = isinstance(sent.request, m.Fetch) and replica.alive and replica.core.role is not Role.FOLLOWER
            if self.seek or not seeks:
                sends.append(self.letters.number(Letter("request", replica.id, scene.ids[sent.to.address], sent.request)))
        out.sends = tuple(sends)
        if event[0] != "doom":
            out.dooms = tuple(scene.dooms)
        out.after = self._number(replica)
        return out

    def _happens(self, replica: Explored, event: Event) -> Asker | None:
        match event:
            case ("start",):
                replica.start()
            case ("timer", name):
                replica.fire(name)
            case ("sync",):
                replica.fsync_ends()
            case ("propose",):
                replica.propose(["x"])
            case ("crash", keep, late):
                replica.crash(keep, late)
            case ("expire", sender, kind):
                replica.expire(Asker(sender, kind))
            case ("reset", peer):
                where: Address = address(peer)
                replica.unreachable(where)
                replica.step(m.PeerLost(where))
            case ("deliver", number):
                return self._deliver(replica, self.letters.all[number])
            case ("reply", number):
                letter = self.letters.all[number]
                assert letter.reply is not None
                self._reply(replica, letter, letter.reply)
            case ("timeout", target, kind):
                request = replica.under_way()[(target, kind)]
                replica.replied(m.Outgoing(m.Peer(target, address(target)), request), m.Failure.TIMEOUT)
            case ("doom", duties, inner):
                replica.doom(duties)
                self._happens(replica, inner)
            case _:
                raise ValueError(event)
        return None

    def _deliver(self, replica: Explored, letter: Letter) -> Asker:
        assert letter.request is not None
        asker = Asker(letter.sender, letter.kind)
        if asker in replica.open:  # of an older request of this kind nobody waits for the answer
            replica.expire(asker)
            self.scene.answers = [(t, r) for t, r in self.scene.answers if t != asker]
        if isinstance(letter.request, m.Vote):
            asker = Asker(letter.sender, letter.kind, m.Outgoing(m.Peer(letter.target, replica.address), letter.request))
        replica.received(letter.request, cast(Any, asker))
        return asker

    def _reply(self, replica: Explored, letter: Letter, reply: m.Reply | m.Failure) -> None:
        assert letter.request is not None
        request = letter.request
        if letter.status == CURRENT:
            request = replica.under_way()[(letter.target, letter.kind)]
        replica.replied(m.Outgoing(m.Peer(letter.target, address(letter.target)), request), reply)
