"""All that a replica can be, by number: (what it is, what happens to it) -> (what it is then, what it says).

The real core and the simulator's driver part run between the thawing and the freezing of one replica. What a replica does
depends on nothing else, so each pair is computed once, however many worlds it occurs in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from quorate.raft import messages as m
from quorate.raft.quorum_state import QuorumState
from quorate.raft.types import ReplicaKey, Role
from quorate.raft.voters import VoterSet
from simulation.explore_frozen import Renaming, Shared
from simulation.explore_letters import CURRENT, STALE, Letter, Letters
from simulation.explore_replica import Asker, Event, Explored, Fact, Scene, nodes
from simulation.explore_values import form, is_seeking
from simulation.invariants import InvariantError
from simulation.trail import Batch
from simulation.world import World, address, directory, voter


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
    ballot: Any  # what tells which votes still matter


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
    elects: bool = False  # a vote or a leader is among the facts


class Replicas:
    """All that replicas can be, by number, and what becomes of them: each pair of replica and event is computed once."""

    def __init__(self, voters: int, *, quick: bool, slow_disk: bool, again: bool, mortal: bool) -> None:
        self.scene = Scene(voters, quick=quick, slow_disk=slow_disk, again=again)
        self.mortal = mortal
        self.boot = VoterSet.of(voter(i) for i in nodes(voters))
        self.voters = voters
        self.letters = Letters()
        self.shared = Shared(voters)
        self.known: list[Known] = []
        self._numbers: dict[Any, int] = {}
        self.outcomes: dict[tuple[int, Event], Outcome] = {}

    def fresh(self, node_id: int) -> int:
        """A formatted replica that has never run."""
        world = cast(World, self.scene)
        replica = Explored(world, ReplicaKey(node_id, directory(node_id)), can_vote=True, static=VoterSet(), boot=self.boot)
        replica.mortal = self.mortal
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
            ballot=(alive and r.core.role is Role.CANDIDATE and r.core.epoch, form(disk.stored)),
        )

    def renamed(self, renaming: Renaming, number: int) -> int:
        """The same replica as another node."""
        return self._number(self.shared.thaw(self.known[number].frozen, renaming))

    def renamed_letter(self, renaming: Renaming, number: int) -> int:
        return self.letters.number(self.shared.thaw(self.shared.freeze(self.letters.all[number]), renaming))

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
        out.held = asker is not None and cast(Any, asker) in replica.open
        out.orphans = tuple((t.sender, t.kind) for t in scene.orphans)
        out.facts = tuple(scene.history.facts)
        out.elects = any(name in ("stored", "leads") for name, _ in out.facts)
        out.told = tuple(scene.told)
        sends = []
        for sent in scene.sent:
            if isinstance(sent.request, m.Fetch) and is_seeking(replica.core, sent.to.address):
                continue
            waits = self.scene.again or isinstance(sent.request, m.Fetch)  # else nothing depends on being heard
            letter = Letter("request", replica.id, scene.ids[sent.to.address], sent.request, CURRENT if waits else STALE)
            sends.append(self.letters.number(letter))
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
            case ("crash", keep, late, last):
                replica.crash(keep, late, last)
            case ("expire", sender, kind):
                replica.expire(Asker(sender, kind))
            case ("over",):
                replica.pre_votes_are_over()
            case ("reset", peer):
                where = address(peer)
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
            case ("doom", duties, last, inner):
                replica.mortal = not last
                replica.doom(duties)
                self._happens(replica, inner)
            case _:
                raise ValueError(event)
        return None

    def _deliver(self, replica: Explored, letter: Letter) -> Asker:
        assert letter.request is not None
        asker = Asker(letter.sender, letter.kind)
        if cast(Any, asker) in replica.open:  # of an older request of this kind nobody waits for the answer
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
