"""The world of the pure core: virtual time, a network, replicas. Everything random comes from one generator.

An event is a message that arrives, an answer that arrives or fails, a timer, the end of an fsync, or an act of workload or
faults. Invariants are checked where their subject changes, so before the next event.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from quorate.protocol.errors import ErrorCode
from quorate.raft import messages as m
from quorate.raft.types import Address, OffsetEpoch, ReplicaKey
from quorate.raft.voters import Voter, VoterSet
from simulation.invariants import History, InvariantError, Key, keys_of
from simulation.memory import Snapshot
from simulation.plan import Plan
from simulation.replica import LISTENER, Replica

T = TypeVar("T")
ADDING_S = 31.0  # an AddRaftVoter may act so long after it was sent
RESET_S = 0.0005  # so long after a process died its peers see their connections reset


def directory(node_id: int, number: int = 0) -> bytes:
    """The id of a node's n-th metadata directory."""
    return bytes([node_id, number] * 8)


def address(node_id: int) -> Address:
    return (f"n{node_id}", 9000 + node_id)


def voter(node_id: int, number: int = 0) -> Voter:
    return Voter(ReplicaKey(node_id, directory(node_id, number)), {LISTENER: address(node_id)}, (0, 1))


class Call:
    """A request under way, until its sender knows what became of it."""

    __slots__ = ("done", "life", "out", "sender", "sent_at")

    def __init__(self, sender: Replica, out: m.Outgoing, sent_at: float) -> None:
        self.sender = sender
        self.life = sender.life
        self.out = out
        self.sent_at = sent_at
        self.done = False


class World:
    """Replicas 1, 2, ... by id: voters, then spares, then observers."""

    replica_type: type[Replica] = Replica

    def __init__(self, plan: Plan, narrator: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.rng = random.Random(plan.seed)
        self.narrator = narrator
        self.now = 0.0
        self.events = 0
        self.heap: list[tuple[float, int, Callable[[Any], bool | None], Any]] = []
        self.sequence = 0
        self.uniques = 0
        self.cut: set[tuple[int, int]] = set()
        self.adding: dict[ReplicaKey, float] = {}  # until when a request may still make it a voter
        self.snapshots: dict[OffsetEpoch, Snapshot] = {}
        top = plan.topology
        ids = range(1, top.voters + 1)
        self.bootstrap = tuple(address(i) for i in ids)
        if top.kraft_version:
            self.static, boot = VoterSet(), VoterSet.of(voter(i) for i in ids)
        else:
            self.static, boot = VoterSet.static({i: address(i) for i in ids}, LISTENER), None
        self.history = History(keys_of(boot if boot is not None else self.static))
        self.happened = self.history.happened
        self.newest: dict[tuple[int, int], float] = {}  # when the request was sent that arrived last, by its two ends
        self.replicas: dict[int, Replica] = {}
        for i in range(1, top.voters + top.spares + top.observers + 1):
            can_vote = i <= top.voters + top.spares
            found = boot if i <= top.voters else None
            self.replicas[i] = self._replica(ReplicaKey(i, directory(i)), can_vote, found)
        self.by_address = {r.address: i for i, r in self.replicas.items()}

    def _replica(self, key: ReplicaKey, can_vote: bool, boot: VoterSet | None) -> Replica:
        replica = self.replica_type(self, key, can_vote=can_vote, static=self.static, boot=boot)
        if self.plan.faults.skew:
            replica.rate = 1 + self.rng.uniform(-1, 1) * self.plan.faults.skew
            self.happened["skewed clocks"] += 1
        return replica

    def renew(self, node_id: int) -> None:
        """The node's directory is replaced by an empty one with another id. Safe only while it is no voter anywhere."""
        old = self.replicas[node_id]
        assert not old.alive
        key = ReplicaKey(node_id, directory(node_id, old.key.directory_id[1] + 1))
        new = self.replicas[node_id] = self._replica(key, old.can_vote, None)
        new.life = old.life
        self.happened["new directories"] += 1

    # --- time -------------------------------------------------------------------------------------------------------

    def push(self, at: float, do: Callable[[T], bool | None], what: T) -> None:
        self.sequence += 1
        heapq.heappush(self.heap, (at, self.sequence, do, what))

    def unique(self) -> int:
        self.uniques += 1
        return self.uniques

    def run(self, seconds: float = 1e9, until: Callable[[], bool] | None = None, events: int = 1 << 40) -> bool:
        """Until the condition holds (True), or the time is over or the events are used up (whether it holds)."""
        heap, pop = self.heap, heapq.heappop
        end, last = self.now + seconds, self.events + events
        with self.named():
            while heap and heap[0][0] <= end and self.events < last:
                if until is not None and until():
                    return True
                at, _, do, what = pop(heap)
                self.now = at
                if do(what) is not False:
                    self.events += 1
        if until is not None:
            return until()
        if seconds < 1e9 and self.events < last:
            self.now = max(self.now, end)
        return False

    @contextmanager
    def named(self) -> Iterator[None]:
        """A violation inside is told with seed, event and time."""
        try:
            yield
        except InvariantError as e:
            if str(e).startswith("seed "):
                raise
            raise InvariantError(f"seed {self.plan.seed}, event {self.events}, {self.now:.6f} s: {e}") from e

    def fail(self, what: str) -> InvariantError:
        return InvariantError(f"seed {self.plan.seed}, event {self.events}, {self.now:.6f} s: {what}: {self.describe()}")

    def start_all(self) -> None:
        with self.named():
            for replica in list(self.replicas.values()):
                replica.start()

    def start_later(self, replica: Replica) -> None:
        """When it has been down as long as the plan says, unless it is up or replaced by then."""

        def start(_: None) -> bool | None:
            if replica.alive or self.replicas[replica.id] is not replica:
                return False
            replica.start()
            return None

        self.push(self.now + self.rng.uniform(*self.plan.faults.down_s), start, None)

    # --- disks ------------------------------------------------------------------------------------------------------

    def sync_delay(self, replica: Replica) -> float | None:
        """How long this replica's fsync takes; None: it is done at once."""
        disks, rng = self.plan.disks, self.rng
        if disks.slow and rng.random() < disks.slow:
            return rng.uniform(*disks.slow_s)
        if disks.inline and rng.random() < disks.inline:
            return None
        return rng.uniform(*disks.sync_s)

    def holds(self, key: Key, hwm: int, digest: int) -> bool:
        """Whether this voter's disk has the log with this digest below `hwm`."""
        replica = self.replicas.get(key[0])
        if replica is None or (key[1] != bytes(16) and key[1] != replica.key.directory_id):
            return False
        disk = replica.disk
        return disk.durable_end >= hwm and (disk.start >= hwm or disk.subject.trail.digest_at(hwm) == digest)

    def dies_by_power(self) -> bool:
        return self.rng.random() < self.plan.faults.power

    # --- network ----------------------------------------------------------------------------------------------------

    def delay(self) -> float:
        links, rng = self.plan.links, self.rng
        low, high = links.delay_s
        if links.stray and rng.random() < links.stray:
            low, high = links.stray_s
        return low + (high - low) * rng.random()

    def lost(self, a: int, b: int) -> bool:
        """Whether a message from a to b goes astray just now."""
        if self.cut and (a, b) in self.cut:
            self.happened["messages cut off" if (b, a) in self.cut else "messages cut off one way"] += 1
            return True
        loss = self.plan.links.loss
        if loss > 0 and self.rng.random() < loss:
            self.happened["messages lost"] += 1
            return True
        return False

    def send(self, sender: Replica, out: m.Outgoing) -> None:
        request = out.request
        if type(request) is m.Fetch and sender.can_vote:
            self.history.fetches(sender.subject, request.offset, sender.disk.durable_end)
        elif type(request) is m.AddVoter:
            self.adding[request.voter.key] = self.now + ADDING_S
        self.happened["requests sent"] += 1
        call = Call(sender, out, self.now)
        links = self.plan.links
        delay = self.delay()
        self.push(self.now + delay, self._arrive, call)
        if delay > links.request_timeout_s:
            self.push(self.now + links.request_timeout_s, self._fail, (call, m.Failure.TIMEOUT))
        if links.duplicate and self.rng.random() < links.duplicate:
            self.push(self.now + self.delay(), self._arrive, call)
            self.happened["requests duplicated"] += 1

    def _time_out(self, call: Call) -> None:
        """Its sender will give it up."""
        at = call.sent_at + self.plan.links.request_timeout_s
        self.push(max(at, self.now), self._fail, (call, m.Failure.TIMEOUT))

    def _arrive(self, call: Call) -> bool | None:
        sender, out = call.sender, call.out
        target_id = self.by_address.get(out.to.address)
        if target_id is None or self.lost(sender.id, target_id):
            self._time_out(call)
            return None
        ends = (sender.id, target_id)
        if call.sent_at < self.newest.get(ends, 0.0):
            self.happened["requests overtaken"] += 1
        else:
            self.newest[ends] = call.sent_at
        target = self.replicas[target_id]
        if not target.alive:
            self.push(self.now + self.delay(), self._fail, (call, m.Failure.DISCONNECTED))
            return None
        if target.paused_until > self.now:
            self.push(target.paused_until, self._arrive, call)
            return False
        if isinstance(out.request, m.ProbeVersions):
            self.answered(target, call, m.ProbeReply(kraft_versions=(0, 1)))
            return None
        target.received(out.request, call)
        return None

    def answered(self, target: Replica, token: object, reply: m.Reply) -> None:
        if not isinstance(token, Call):
            target.replies[token] = reply
            return
        target.open.pop(token, None)
        if token.done or token.life != token.sender.life:
            return
        if self.lost(target.id, token.sender.id):
            self._time_out(token)
            return
        at = self.now + self.delay()
        if at > token.sent_at + self.plan.links.request_timeout_s:
            self._time_out(token)
        else:
            self.push(at, self._reply, (token, reply))

    def _reply(self, what: tuple[Call, m.Reply]) -> bool | None:
        call, reply = what
        sender = call.sender
        if call.done or call.life != sender.life:
            return False
        if sender.paused_until > self.now:
            self.push(sender.paused_until, self._reply, what)
            return False
        call.done = True
        if isinstance(call.out.request, m.AddVoter) and reply.error == ErrorCode.NONE:
            self.happened["joins by oneself"] += 1
        sender.replied(call.out, reply)
        return None

    def _fail(self, what: tuple[Call, m.Failure]) -> bool | None:
        call, failure = what
        sender = call.sender
        if call.done or call.life != sender.life:
            return False
        if sender.paused_until > self.now:
            self.push(sender.paused_until, self._fail, what)
            return False
        call.done = True
        sender.replied(call.out, failure)
        return None

    def died(self, replica: Replica, power: bool) -> None:
        """A killed process's connections are reset; a machine without power says nothing."""
        waiting = list(replica.open)
        replica.open.clear()
        for call in waiting:
            if power or self.lost(replica.id, call.sender.id):
                self._time_out(call)
            else:
                self.push(self.now + RESET_S, self._fail, (call, m.Failure.DISCONNECTED))
        if power:
            return
        for other in self.replicas.values():
            if other is not replica and other.alive and not self.lost(replica.id, other.id):
                self.push(self.now + RESET_S, self._reset, (other, other.life, replica.address))

    def _reset(self, what: tuple[Replica, int, Address]) -> bool | None:
        replica, life, lost = what
        if life != replica.life:
            return False
        replica.unreachable(lost)
        replica.step(m.PeerLost(lost))
        return None

    # --- faults by hand ---------------------------------------------------------------------------------------------

    def kill(self, node_id: int, *, power: bool = False) -> None:
        self.replicas[node_id].die(power)

    def isolate(self, node_id: int) -> None:
        for other in self.replicas:
            self.cut |= {(node_id, other), (other, node_id)}

    def heal(self) -> None:
        self.cut.clear()

    def calm_down(self) -> None:
        """From now on no faults and no work; everybody is up and reaches everybody."""
        self.plan = replace(self.plan.calm(), disks=replace(self.plan.disks, slow=0.0))
        self.heal()
        with self.named():
            for replica in self.replicas.values():
                replica.paused_until = 0.0
                replica.dies_at_duty = None
                if not replica.alive:
                    replica.start()

    # --- looking ----------------------------------------------------------------------------------------------------

    @property
    def players(self) -> dict[int, Replica]:
        return self.replicas

    @property
    def leader(self) -> Replica | None:
        """The leader of the greatest epoch among the living."""
        leaders = [r for r in self.replicas.values() if r.alive and r.core.is_leader]
        return max(leaders, key=lambda r: r.core.epoch, default=None)

    def voter_anywhere(self, key: ReplicaKey) -> bool:
        """Whether any log, committed or not, still has this replica among its voters."""
        wanted = (key.id, key.directory_id)
        for r in self.replicas.values():
            s = r.subject
            if wanted in s.base_set or any(wanted in keys for _, keys in s.sets):
                return True
        return any(wanted in keys_of(s.voters) for s in self.snapshots.values() if s.voters is not None)

    def elect(self, seconds: float = 30.0) -> Replica:
        """Runs until a leader has committed its epoch's first record."""
        found = self.run(seconds, lambda: self.leader is not None and self.leader.core.hwm is not None)
        leader = self.leader
        if not found or leader is None:
            raise self.fail(f"no leader within {seconds} s")
        return leader

    def settle(self, value: Any, seconds: float = 30.0) -> int:
        """Proposes until a value commits; the end offset of its batch."""
        end = self.now + seconds
        while self.now < end:
            leader = self.leader
            if leader is None or not leader.propose([value]):
                self.run(0.05)
                continue
            life, epoch = leader.life, leader.core.epoch

            def written(r: Replica = leader, life: int = life, epoch: int = epoch) -> bool:
                return not r.proposed or r.life != life or r.core.epoch != epoch

            self.run(5.0, written)
            offset = leader.disk.end

            def decided(r: Replica = leader, at: int = offset, life: int = life, epoch: int = epoch) -> bool:
                return r.committed >= at or r.life != life or r.core.epoch != epoch or not r.core.is_leader

            self.run(5.0, decided)
            if leader.life == life and leader.committed >= offset:
                return offset
        raise self.fail(f"nothing commits within {seconds} s")

    def describe(self) -> str:
        out = []
        for i, r in self.replicas.items():
            if not r.alive:
                out.append(f"{i} is down")
                continue
            c = r.core
            out.append(
                f"{i} {c.role.value} epoch {c.epoch} leader {c.leader_id} log {r.disk.start}..{r.disk.end} hwm {c.hwm} "
                f"voters {[str(v.key.id) for v in c.voters]}"
            )
        return "; ".join(out)

    def note(self, replica: Replica, what: str) -> None:
        if self.narrator is not None:
            self.narrator(f"{replica.subject.name} {what}")
