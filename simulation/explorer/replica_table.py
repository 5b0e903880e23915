"""The transition function of a replica, memoised: (state, event) -> (next state, messages, facts).

The real core and the driver of the simulation run between deserializing and serializing one replica. What a
replica does depends on nothing but its state and the event, so each pair is computed once, in however many
worlds it occurs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quorate.raft.core import messages as m
from quorate.raft.core.effects import Effects, Outgoing
from quorate.raft.core.events import PeerLost
from quorate.raft.core.voters import VoterSet
from quorate.raft.types import QuorumState, ReplicaKey, Role
from simulation.checker.invariants import InvariantError
from simulation.checker.log_model import Batch
from simulation.explorer.canonical_form import canonical_form, is_leader_search
from simulation.explorer.in_flight import CURRENT, STALE, InFlightMessage, MessageTable
from simulation.explorer.replica import (
    Event,
    ExploredReplica,
    Fact,
    RecordingEnvironment,
    RequestToken,
    nodes,
)
from simulation.explorer.serialization import Renaming, StateSerializer
from simulation.identifiers import address, directory_id, voter


@dataclass(slots=True)
class ReplicaState:
    """A serialized replica, with what the explorer reads of it."""

    serialized: bytes
    id: int
    alive: bool
    epoch: int  # in memory, or on the disk of a replica that is down
    role: Role | None
    timers: tuple[str, ...]
    leads: bool
    follows: int | None
    syncing: bool
    power_loss_offsets: tuple[int, ...]  # to where a power failure may shorten the log
    late: bool  # the save of a quorum state is deferred
    in_flight: tuple[tuple[int, str], ...]
    batches: tuple[Batch, ...]
    voter_sets: tuple[Any, ...]
    hwm: int
    led: int
    stored: QuorumState | None
    stored_epoch: int
    durable_end: int
    digests: dict[int, int]
    log: Any  # the part by which others are checked
    ballot: Any  # the part that decides which votes are still relevant


@dataclass(slots=True)
class Outcome:
    """The result of one event at one replica."""

    after: int = -1
    violation: str | None = None
    epoch: int = 0
    sends: tuple[int, ...] = ()  # numbers of messages
    lost: frozenset[tuple[int, str]] = frozenset()  # (target, kind) of requests that it no longer waits for
    answers: tuple[tuple[int, str, m.Reply], ...] = ()  # (sender, kind, reply)
    held: bool = False  # the delivered request waits here
    orphans: tuple[tuple[int, str], ...] = ()  # (sender, kind) of requests that waited here when it died
    crash_points: tuple[int, ...] = ()
    facts: tuple[Fact, ...] = ()
    trace_lines: tuple[str, ...] = ()
    affects_election: bool = False  # a vote or a leader is among the facts


class ReplicaTable:
    """All states that replicas have reached, and the outcomes of events at them.

    Equal ones have one number.
    """

    def __init__(self, voters: int, *, quick: bool, slow_disk: bool, repeats: bool, may_crash: bool) -> None:
        self.environment = RecordingEnvironment(voters, quick=quick, slow_disk=slow_disk, repeats=repeats)
        self.may_crash = may_crash
        self.bootstrap_voters = VoterSet.of(voter(i) for i in nodes(voters))
        self.voters = voters
        self.messages = MessageTable()
        self.serializer = StateSerializer(voters)
        self.states: list[ReplicaState] = []
        self._numbers: dict[Any, int] = {}
        self.outcomes: dict[tuple[int, Event], Outcome] = {}

    def initial_replica(self, node_id: int) -> int:
        """Returns a replica on a formatted directory that has never run."""
        key = ReplicaKey(node_id, directory_id(node_id))
        replica = ExploredReplica(
            self.environment,
            key,
            can_vote=True,
            static_voters=VoterSet(),
            bootstrap_voters=self.bootstrap_voters,
        )
        replica.may_crash = self.may_crash
        return self._number(replica)

    def _number(self, replica: ExploredReplica) -> int:
        key = (replica.id, replica.canonical_form())
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.states)
            self.states.append(self._summarize(replica))
        return found

    def _summarize(self, r: ExploredReplica) -> ReplicaState:
        log, disk, alive = r.model.log, r.disk, r.alive
        if alive:
            r.core.state.effects = Effects()
            in_flight = tuple(r.in_flight())
        else:
            in_flight = ()
        ends = [b.end for b in log.batches if b.end >= disk.durable_end]
        digests = {0: 0, **{b.end: b.digest for b in log.batches}}
        return ReplicaState(
            serialized=self.serializer.serialize(r),
            id=r.id,
            alive=alive,
            epoch=r.core.state.epoch if alive else r.model.epoch,
            role=r.core.state.role if alive else None,
            timers=tuple(r.timers()) if alive else (),
            leads=alive and r.core.state.is_leader,
            follows=r.core.state.leader_id if alive and r.core.state.role is Role.FOLLOWER else None,
            syncing=alive and r.syncing,
            power_loss_offsets=tuple(sorted({disk.durable_end, *ends})),
            late=alive and r.deferred_state is not None,
            in_flight=in_flight,
            batches=tuple(log.batches),
            voter_sets=tuple(r.model.voter_sets),
            hwm=r.model.hwm,
            led=r.model.led,
            stored=disk.stored,
            stored_epoch=r.model.epoch,
            durable_end=disk.durable_end,
            digests=digests,
            log=(disk.durable_end, log.end_digest),
            ballot=(
                alive and r.core.state.role is Role.CANDIDATE and r.core.state.epoch,
                canonical_form(disk.stored),
            ),
        )

    def renamed(self, renaming: Renaming, number: int) -> int:
        """Returns the same replica as another node."""
        return self._number(self.serializer.deserialize(self.states[number].serialized, renaming))

    def renamed_message(self, renaming: Renaming, number: int) -> int:
        return self.messages.number(
            self.serializer.deserialize(self.serializer.serialize(self.messages.all[number]), renaming)
        )

    def outcome(self, number: int, event: Event) -> Outcome:
        """Returns the outcome of an event at a replica in this state."""
        key = (number, event)
        found = self.outcomes.get(key)
        if found is None:
            found = self.outcomes[key] = self._compute(number, event)
        return found

    def _compute(self, number: int, event: Event) -> Outcome:
        environment, replica = self.environment, self.serializer.deserialize(self.states[number].serialized)
        environment.clear()
        environment.acting = replica.id
        environment.checker.replica = replica
        before = replica.in_flight() if replica.alive else {}
        out = Outcome()
        try:
            token = self._handle(replica, event)
        except InvariantError as e:
            out.violation = str(e)
            out.trace_lines = tuple(environment.trace_lines)
            return out
        after = replica.in_flight() if replica.alive else {}
        out.epoch = replica.core.state.epoch if replica.alive else replica.model.epoch
        out.lost = frozenset(k for k, q in before.items() if after.get(k) is not q)
        out.answers = tuple((t.sender, t.kind, reply) for t, reply in environment.answers)
        out.held = token is not None and token in replica.unanswered
        out.orphans = tuple((t.sender, t.kind) for t in environment.orphans)
        out.facts = tuple(environment.checker.facts)
        out.affects_election = any(name in ("stored", "became_leader") for name, _ in out.facts)
        out.trace_lines = tuple(environment.trace_lines)
        sends = []
        for sent in environment.sent:
            if isinstance(sent.request, m.Fetch) and is_leader_search(replica.core.state, sent.to.address):
                continue
            waits = self.environment.repeats or isinstance(
                sent.request, m.Fetch
            )  # otherwise nothing depends on whether it is answered
            message = InFlightMessage(
                "request",
                replica.id,
                environment.ids[sent.to.address],
                sent.request,
                CURRENT if waits else STALE,
            )
            sends.append(self.messages.number(message))
        out.sends = tuple(sends)
        if event[0] != "crash mid-step":
            out.crash_points = tuple(environment.crash_points)
        out.after = self._number(replica)
        return out

    def _handle(self, replica: ExploredReplica, event: Event) -> RequestToken | None:
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
                replica.crash_keeping(keep, late, last)
            case ("expire", sender, kind):
                replica.expire(RequestToken(sender, kind))
            case ("end pre-votes",):
                replica.end_pre_votes()
            case ("reset", peer):
                where = address(peer)
                replica.unreachable(where)
                replica.step(PeerLost(where))
            case ("deliver", number):
                return self._deliver(replica, self.messages.all[number])
            case ("reply", number):
                message = self.messages.all[number]
                assert message.reply is not None
                self._reply(replica, message, message.reply)
            case ("timeout", target, kind):
                request = replica.in_flight()[(target, kind)]
                replica.replied(Outgoing(m.Peer(target, address(target)), request), m.Failure.TIMEOUT)
            case ("crash mid-step", duties, last, inner):
                replica.may_crash = not last
                replica.crash_mid_step(duties)
                self._handle(replica, inner)
            case _:
                raise ValueError(event)
        return None

    def _deliver(self, replica: ExploredReplica, message: InFlightMessage) -> RequestToken:
        assert message.request is not None
        token = RequestToken(message.sender, message.kind)
        if token in replica.unanswered:  # an older request of this kind, whose sender no longer waits for it
            replica.expire(token)
            self.environment.answers = [(t, r) for t, r in self.environment.answers if t != token]
        if isinstance(message.request, m.Vote):
            token = RequestToken(
                message.sender,
                message.kind,
                Outgoing(m.Peer(message.target, replica.address), message.request),
            )
        replica.received(message.request, token)
        return token

    def _reply(self, replica: ExploredReplica, message: InFlightMessage, reply: m.Reply | m.Failure) -> None:
        assert message.request is not None
        request = message.request
        if message.status == CURRENT:
            request = replica.in_flight()[(message.target, message.kind)]
        replica.replied(Outgoing(m.Peer(message.target, address(message.target)), request), reply)
