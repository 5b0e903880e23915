"""A simulated quorum of pure cores: virtual time, a network and replicas. One generator gives all randomness.

An event is the arrival of a request, the arrival or failure of a response, a timer, the end of an fsync, an
action of the workload or a fault. Invariants are checked where the state that they are about changes, so
before the next event.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from quorate.protocol.errors import ErrorCode
from quorate.raft.core import messages as m
from quorate.raft.core.effects import Outgoing
from quorate.raft.core.events import PeerLost
from quorate.raft.core.voters import VoterSet
from quorate.raft.types import Address, OffsetEpoch, ReplicaKey
from simulation.checker.invariants import InvariantChecker, InvariantError, Key, keys_of
from simulation.config import ADD_VOTER_TIMEOUT_S, CONNECTION_RESET_DELAY_S, SimulationConfig
from simulation.core.memory_disk import Snapshot
from simulation.core.replica import Replica
from simulation.identifiers import LISTENER, address, directory_id, voter

T = TypeVar("T")


class Call:
    """A request in flight, until its sender has its outcome: a response, a timeout or a connection error."""

    __slots__ = ("done", "incarnation", "out", "sender", "sent_at")

    def __init__(self, sender: Replica, out: Outgoing, sent_at: float) -> None:
        self.sender = sender
        self.incarnation = sender.incarnation
        self.out = out
        self.sent_at = sent_at
        self.done = False


class World:
    """Replicas with the ids 1, 2, ...: voters, then spare controllers, then observers."""

    replica_type: type[Replica] = Replica

    def __init__(self, config: SimulationConfig, trace_sink: Callable[[str], None] | None = None) -> None:
        self.config = config
        self.rng = random.Random(config.seed)
        self.trace_sink = trace_sink
        self.now = 0.0
        self.events = 0
        self.heap: list[tuple[float, int, Callable[[Any], bool | None], Any]] = []
        self.sequence = 0
        self.last_unique_number = 0
        self.cut_links: set[tuple[int, int]] = set()
        # Until when an AddRaftVoter may still make it a voter.
        self.pending_additions: dict[ReplicaKey, float] = {}
        self.snapshots: dict[OffsetEpoch, Snapshot] = {}
        top = config.topology
        ids = range(1, top.voters + 1)
        self.bootstrap_servers = tuple(address(i) for i in ids)
        if top.kraft_version:
            self.static_voters, bootstrap_voters = VoterSet(), VoterSet.of(voter(i) for i in ids)
        else:
            self.static_voters, bootstrap_voters = (
                VoterSet.static({i: address(i) for i in ids}, LISTENER),
                None,
            )
        self.checker = InvariantChecker(
            keys_of(bootstrap_voters if bootstrap_voters is not None else self.static_voters)
        )
        self.coverage = self.checker.coverage
        self.latest_arrival: dict[
            tuple[int, int], float
        ] = {}  # (sender, target) -> when the newest request that arrived was sent
        self.replicas: dict[int, Replica] = {}
        for i in range(1, top.voters + top.spares + top.observers + 1):
            can_vote = i <= top.voters + top.spares
            initial = bootstrap_voters if i <= top.voters else None
            self.replicas[i] = self._replica(ReplicaKey(i, directory_id(i)), can_vote, initial)
        self.by_address = {r.address: i for i, r in self.replicas.items()}

    def new_rng(self) -> random.Random:
        """The randomness of a replica that starts, by the seed and by what was drawn before."""
        return random.Random(self.rng.getrandbits(32))

    def _replica(self, key: ReplicaKey, can_vote: bool, bootstrap_voters: VoterSet | None) -> Replica:
        replica = self.replica_type(
            self, key, can_vote=can_vote, static_voters=self.static_voters, bootstrap_voters=bootstrap_voters
        )
        if self.config.faults.skew:
            replica.rate = 1 + self.rng.uniform(-1, 1) * self.config.faults.skew
            self.coverage["skewed clocks"] += 1
        return replica

    def replace_directory(self, node_id: int) -> None:
        """Replaces the node's metadata directory by an empty one with another id.

        This is safe only while the old directory is a voter in no log, see `is_voter_in_any_log`.
        """
        old = self.replicas[node_id]
        assert not old.alive
        key = ReplicaKey(node_id, directory_id(node_id, old.key.directory_id[1] + 1))
        new = self.replicas[node_id] = self._replica(key, old.can_vote, None)
        new.incarnation = old.incarnation
        self.coverage["new directories"] += 1

    # --- time -------------------------------------------------------------------------------------

    def schedule(self, at: float, action: Callable[[T], bool | None], argument: T) -> None:
        """Calls `action(argument)` at this virtual time. It counts as an event unless it returns False."""
        self.sequence += 1
        heapq.heappush(self.heap, (at, self.sequence, action, argument))

    def unique_number(self) -> int:
        self.last_unique_number += 1
        return self.last_unique_number

    def run(
        self, seconds: float = 1e9, until: Callable[[], bool] | None = None, events: int = 1 << 40
    ) -> bool:
        """Runs until the condition holds, the virtual time has elapsed or this many events have run.

        Returns whether the condition holds; False without one.
        """
        heap, pop = self.heap, heapq.heappop
        end, last = self.now + seconds, self.events + events
        with self.violation_context():
            while heap and heap[0][0] <= end and self.events < last:
                if until is not None and until():
                    return True
                at, _, action, argument = pop(heap)
                self.now = at
                if action(argument) is not False:
                    self.events += 1
        if until is not None:
            return until()
        if seconds < 1e9 and self.events < last:
            self.now = max(self.now, end)
        return False

    @contextmanager
    def violation_context(self) -> Iterator[None]:
        """Adds seed, event and time to an InvariantError that the block raises."""
        try:
            yield
        except InvariantError as e:
            if str(e).startswith("seed "):
                raise
            raise InvariantError(
                f"seed {self.config.seed}, event {self.events}, {self.now:.6f} s: {e}"
            ) from e

    def failure(self, what: str) -> InvariantError:
        """Returns an error with seed, event, time and the state of all replicas, for the caller to raise."""
        return InvariantError(
            f"seed {self.config.seed}, event {self.events}, {self.now:.6f} s: {what}: {self.describe()}"
        )

    def start_all(self) -> None:
        with self.violation_context():
            for replica in list(self.replicas.values()):
                replica.start()

    def schedule_restart(self, replica: Replica) -> None:
        """Starts the replica after a random downtime.

        Nothing happens if it is up by then, or if its directory has been replaced.
        """

        def start(_: None) -> bool | None:
            if replica.alive or self.replicas[replica.id] is not replica:
                return False
            replica.start()
            return None

        self.schedule(self.now + self.rng.uniform(*self.config.faults.down_s), start, None)

    # --- disks ------------------------------------------------------------------------------------

    def sync_delay(self, replica: Replica) -> float | None:
        """Draws how long this replica's fsync takes. None means that it is done at once."""
        disks, rng = self.config.disks, self.rng
        if disks.slow and rng.random() < disks.slow:
            return rng.uniform(*disks.slow_s)
        if disks.inline and rng.random() < disks.inline:
            return None
        return rng.uniform(*disks.sync_s)

    def holds(self, key: Key, hwm: int, digest: int) -> bool:
        """Returns whether this voter's disk has the log with this digest below `hwm`, durably."""
        replica = self.replicas.get(key[0])
        if replica is None or (key[1] != bytes(16) and key[1] != replica.key.directory_id):
            return False
        disk = replica.disk
        return disk.durable_end >= hwm and (disk.start >= hwm or disk.model.log.digest_at(hwm) == digest)

    def crash_loses_power(self) -> bool:
        """Draws whether the next crash is a power failure rather than the end of the process alone."""
        return self.rng.random() < self.config.faults.power

    # --- network ----------------------------------------------------------------------------------

    def delay(self) -> float:
        """Draws how long a message is under way."""
        network, rng = self.config.network, self.rng
        low, high = network.delay_s
        if network.long_delay and rng.random() < network.long_delay:
            low, high = network.long_delay_s
        return low + (high - low) * rng.random()

    def drops_message(self, a: int, b: int) -> bool:
        """Decides whether a message from node `a` to node `b` is lost now: by a cut link or by chance."""
        if self.cut_links and (a, b) in self.cut_links:
            self.coverage["messages cut off" if (b, a) in self.cut_links else "messages cut off one way"] += 1
            return True
        loss = self.config.network.loss
        if loss > 0 and self.rng.random() < loss:
            self.coverage["messages lost"] += 1
            return True
        return False

    def send(self, sender: Replica, out: Outgoing) -> None:
        request = out.request
        if type(request) is m.Fetch and sender.can_vote:
            self.checker.fetches(sender.model, request.offset, sender.disk.durable_end)
        elif type(request) is m.AddVoter:
            self.pending_additions[request.voter.key] = self.now + ADD_VOTER_TIMEOUT_S
        self.coverage["requests sent"] += 1
        call = Call(sender, out, self.now)
        network = self.config.network
        delay = self.delay()
        self.schedule(self.now + delay, self._arrive, call)
        if delay > network.request_timeout_s:
            self.schedule(self.now + network.request_timeout_s, self._fail, (call, m.Failure.TIMEOUT))
        if network.duplicate and self.rng.random() < network.duplicate:
            self.schedule(self.now + self.delay(), self._arrive, call)
            self.coverage["requests duplicated"] += 1

    def _time_out(self, call: Call) -> None:
        """Lets the request fail at its sender when it times out."""
        at = call.sent_at + self.config.network.request_timeout_s
        self.schedule(max(at, self.now), self._fail, (call, m.Failure.TIMEOUT))

    def _arrive(self, call: Call) -> bool | None:
        sender, out = call.sender, call.out
        target_id = self.by_address.get(out.to.address)
        if target_id is None or self.drops_message(sender.id, target_id):
            self._time_out(call)
            return None
        ends = (sender.id, target_id)
        if call.sent_at < self.latest_arrival.get(ends, 0.0):
            self.coverage["requests overtaken"] += 1
        else:
            self.latest_arrival[ends] = call.sent_at
        target = self.replicas[target_id]
        if not target.alive:
            self.schedule(self.now + self.delay(), self._fail, (call, m.Failure.DISCONNECTED))
            return None
        if target.paused_until > self.now:
            self.schedule(target.paused_until, self._arrive, call)
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
        target.unanswered.pop(token, None)
        if token.done or token.incarnation != token.sender.incarnation:
            return
        if self.drops_message(target.id, token.sender.id):
            self._time_out(token)
            return
        at = self.now + self.delay()
        if at > token.sent_at + self.config.network.request_timeout_s:
            self._time_out(token)
        else:
            self.schedule(at, self._reply, (token, reply))

    def _reply(self, what: tuple[Call, m.Reply]) -> bool | None:
        call, reply = what
        sender = call.sender
        if call.done or call.incarnation != sender.incarnation:
            return False
        if sender.paused_until > self.now:
            self.schedule(sender.paused_until, self._reply, what)
            return False
        call.done = True
        if isinstance(call.out.request, m.AddVoter) and reply.error == ErrorCode.NONE:
            self.coverage["joins by oneself"] += 1
        sender.replied(call.out, reply)
        return None

    def _fail(self, what: tuple[Call, m.Failure]) -> bool | None:
        call, failure = what
        sender = call.sender
        if call.done or call.incarnation != sender.incarnation:
            return False
        if sender.paused_until > self.now:
            self.schedule(sender.paused_until, self._fail, what)
            return False
        call.done = True
        sender.replied(call.out, failure)
        return None

    def died(self, replica: Replica, power: bool) -> None:
        """Resets the connections of a process that was killed. Without power its host cannot do that."""
        waiting = [token for token in replica.unanswered if isinstance(token, Call)]
        replica.unanswered.clear()
        for call in waiting:
            if power or self.drops_message(replica.id, call.sender.id):
                self._time_out(call)
            else:
                self.schedule(self.now + CONNECTION_RESET_DELAY_S, self._fail, (call, m.Failure.DISCONNECTED))
        if power:
            return
        for other in self.replicas.values():
            if other is not replica and other.alive and not self.drops_message(replica.id, other.id):
                self.schedule(
                    self.now + CONNECTION_RESET_DELAY_S,
                    self._reset,
                    (other, other.incarnation, replica.address),
                )

    def _reset(self, what: tuple[Replica, int, Address]) -> bool | None:
        replica, incarnation, lost = what
        if incarnation != replica.incarnation:
            return False
        replica.unreachable(lost)
        replica.step(PeerLost(lost))
        return None

    # --- direct control ---------------------------------------------------------------------------

    def kill(self, node_id: int, *, power: bool = False) -> None:
        self.replicas[node_id].crash(power)

    def isolate(self, node_id: int) -> None:
        """Cuts all links of a node, in both directions."""
        for other in self.replicas:
            self.cut_links |= {(node_id, other), (other, node_id)}

    def heal(self) -> None:
        """Restores all links."""
        self.cut_links.clear()

    def stop_faults(self) -> None:
        """Ends workload and faults: from now on every replica is up and reaches every other."""
        self.config = replace(self.config.without_faults(), disks=replace(self.config.disks, slow=0.0))
        self.heal()
        with self.violation_context():
            for replica in self.replicas.values():
                replica.paused_until = 0.0
                replica.crash_after_duties = None
                if not replica.alive:
                    replica.start()

    # --- state ------------------------------------------------------------------------------------

    @property
    def leader(self) -> Replica | None:
        """The leader of the greatest epoch among the running replicas."""
        leaders = [r for r in self.replicas.values() if r.alive and r.core.state.is_leader]
        return max(leaders, key=lambda r: r.core.state.epoch, default=None)

    def is_voter_in_any_log(self, key: ReplicaKey) -> bool:
        """Returns whether this replica is a voter by any log, committed or not."""
        wanted = (key.id, key.directory_id)
        for r in self.replicas.values():
            model = r.model
            if wanted in model.initial_voters or any(wanted in keys for _, keys in model.voter_sets):
                return True
        return any(
            wanted in keys_of(snapshot.voters)
            for snapshot in self.snapshots.values()
            if snapshot.voters is not None
        )

    def await_leader(self, seconds: float = 30.0) -> Replica:
        """Runs until a leader has committed the first record of its epoch, and returns it.

        Raises InvariantError.
        """
        found = self.run(seconds, lambda: self.leader is not None and self.leader.core.state.hwm is not None)
        leader = self.leader
        if not found or leader is None:
            raise self.failure(f"no leader within {seconds} s")
        return leader

    def commit_value(self, value: Any, seconds: float = 30.0) -> int:
        """Proposes a value until it commits. Returns the end offset of its batch. Raises InvariantError."""
        end = self.now + seconds
        while self.now < end:
            leader = self.leader
            if leader is None or not leader.propose([value]):
                self.run(0.05)
                continue
            incarnation, epoch = leader.incarnation, leader.core.state.epoch

            def written(r: Replica = leader, incarnation: int = incarnation, epoch: int = epoch) -> bool:
                return not r.proposed or r.incarnation != incarnation or r.core.state.epoch != epoch

            self.run(5.0, written)
            offset = leader.disk.end

            def decided(
                r: Replica = leader, at: int = offset, incarnation: int = incarnation, epoch: int = epoch
            ) -> bool:
                return (
                    r.committed >= at
                    or r.incarnation != incarnation
                    or r.core.state.epoch != epoch
                    or not r.core.state.is_leader
                )

            self.run(5.0, decided)
            if leader.incarnation == incarnation and leader.committed >= offset:
                return offset
        raise self.failure(f"nothing commits within {seconds} s")

    def describe(self) -> str:
        out = []
        for i, r in self.replicas.items():
            if not r.alive:
                out.append(f"{i} is down")
                continue
            c = r.core.state
            out.append(
                f"{i} {c.role.value} epoch {c.epoch} leader {c.leader_id} log {r.disk.start}..{r.disk.end} "
                f"hwm {c.hwm} voters {[str(v.key.id) for v in c.voters]}"
            )
        return "; ".join(out)

    def trace(self, replica: Replica, what: str) -> None:
        if self.trace_sink is not None:
            self.trace_sink(f"{replica.model.name} {what}")
