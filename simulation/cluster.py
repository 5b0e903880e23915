"""The world of whole Raft clients: unmodified driver, storage and wire formats, on a virtual loop, simulated disks and network.

An event is a timer of the loop and what follows from it in the same instant: an arriving message, a deadline of a driver, the
end of an fsync, an act of workload or faults.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, TypeVar
from unittest import mock

from quorate.raft import driver
from quorate.raft.types import Address, ReplicaKey
from quorate.raft.voters import VoterSet
from simulation.actors import run_plan
from simulation.disk import Files
from simulation.invariants import History, InvariantError, Key, keys_of
from simulation.life import WALL_MS, Life, SimulatedSyncer
from simulation.loop import VirtualLoop
from simulation.network import Network
from simulation.plan import Plan
from simulation.process import Process
from simulation.replica import LISTENER
from simulation.world import address, directory, voter

T = TypeVar("T")


class Cluster:
    """Processes 1, 2, ... by id: voters, then spare controllers, then observers. Use it inside `running`."""

    def __init__(self, plan: Plan, narrator: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.rng = random.Random(plan.seed)
        self.narrator = narrator
        self.loop = VirtualLoop()
        self.loop.executor_delay = lambda: self.sync_s(inline=False)
        self.loop.set_task_factory(self._make_task)
        self.files = Files(lambda: WALL_MS * 1_000_000 + int(self.now * 1e9))
        self.network = Network(self)
        self.events = 0
        self.uniques = 0
        self.errors: list[InvariantError] = []
        self.acknowledged: set[int] = set()
        self.cut: set[tuple[int, int]] = set()
        self.adding: dict[ReplicaKey, float] = {}  # until when a request may still make it a voter
        self.dead: list[Life] = []  # whose coroutines are still to be closed
        top = plan.topology
        ids = range(1, top.voters + 1)
        self.bootstrap = tuple(address(i) for i in ids)
        if top.kraft_version:
            self.static, boot = VoterSet(), VoterSet.of(voter(i) for i in ids)
        else:
            self.static, boot = VoterSet.static({i: address(i) for i in ids}, LISTENER), None
        self.history = History(keys_of(boot if boot is not None else self.static))
        self.happened = self.history.happened
        self.replicas: dict[int, Process] = {}
        for i in range(1, top.voters + top.spares + top.observers + 1):
            can_vote = i <= top.voters + top.spares
            self.replicas[i] = self._process(ReplicaKey(i, directory(i)), can_vote, boot if i <= top.voters else None)

    def _process(self, key: ReplicaKey, can_vote: bool, boot: VoterSet | None) -> Process:
        process = Process(self, key, can_vote=can_vote, static=self.static, boot=boot)
        process.rate = 1 + self.rng.uniform(-1, 1) * self.plan.faults.skew
        process.disk.losses = self.happened
        self.happened["skewed clocks"] += process.rate != 1
        return process

    def renew(self, node_id: int) -> None:
        """The node's directory is replaced by an empty one with another id. Safe only while it is no voter anywhere."""
        old = self.replicas[node_id]
        assert not old.alive
        key = ReplicaKey(node_id, directory(node_id, old.key.directory_id[1] + 1))
        self.replicas[node_id] = self._process(key, old.can_vote, None)
        self.happened["new directories"] += 1

    # --- running ----------------------------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[Cluster]:
        """Inside, clock, disks and loop are the simulated ones."""
        with ExitStack() as stack:
            stack.enter_context(self.files.installed())
            for name in ("perf_counter", "monotonic", "time"):
                stack.enter_context(mock.patch.object(time, name, lambda: self.now))
            stack.enter_context(mock.patch.object(driver, "Syncer", SimulatedSyncer))
            stack.enter_context(self.loop.running())
            stack.enter_context(self.named())
            try:
                yield self
            finally:
                for process in self.replicas.values():
                    process.die(power=False)
                self._bury()
                self.loop.forget_all()
                gc.collect()

    def _make_task(self, loop: Any, coroutine: Any, **options: Any) -> Any:
        return self.loop.make_task(coroutine, **options)

    def _bury(self) -> None:
        """Coroutines of dead processes end now, not when the collector finds them, and can do no harm: their disk is gone."""
        for life in self.dead:
            disk = life.process.disk
            online, disk.online = disk.online, False
            self.loop.bury(life)
            disk.online = online
        self.dead.clear()

    def run(self, seconds: float = 1e9, until: Callable[[], bool] | None = None, events: int = 1 << 40) -> bool:
        """Until the condition holds (True), or the time is over or the events are used up (whether it holds)."""
        loop, end, last = self.loop, self.now + seconds, self.events + events
        with self.named():
            self._after()
            while self.events < last:
                if until is not None and until():
                    return True
                at = loop.next_at()
                if at is None or at > end:
                    break
                loop.run_event()
                self.events += 1
                self._after()
        if until is not None:
            return until()
        if seconds < 1e9 and self.events < last:
            loop.advance(end)
        return False

    def _after(self) -> None:
        """After each event: what ran is looked at, what died is buried."""
        loop = self.loop
        loop.run_ready()
        while loop.touched:
            lives, loop.touched = loop.touched, {}
            for life in lives:
                if isinstance(life, Life) and life.alive:
                    life.process.witness.look()
            loop.run_ready()
        if self.errors:
            raise self.errors[0]
        if self.dead:
            self._bury()

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """A violation inside ends the run, even where a driver catches it."""
        try:
            yield
        except InvariantError as e:
            self.errors.append(e)
            raise

    def start_all(self) -> None:
        for process in list(self.replicas.values()):
            process.start()

    def start_later(self, process: Process) -> None:
        """When it has been down as long as the plan says, unless it is up or replaced by then."""

        def start(_: None) -> None:
            if not process.alive and self.replicas[process.id] is process:
                process.start()

        self.push(self.now + self.rng.uniform(*self.plan.faults.down_s), start, None)

    # --- time and chance --------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.loop.time()

    def push(self, at: float, do: Callable[[T], bool | None], what: T) -> None:
        self.loop.call_at(at, do, what, context=self.loop.nobody)

    def unique(self) -> int:
        self.uniques += 1
        return self.uniques

    def sync_s(self, *, inline: bool) -> float:
        disks, rng = self.plan.disks, self.rng
        if disks.slow and rng.random() < disks.slow:
            return rng.uniform(*disks.slow_s)
        low, high = disks.sync_s
        return rng.uniform(low, high) * (0.1 if inline else 1.0)

    def delay(self) -> float:
        links, rng = self.plan.links, self.rng
        span = links.stray_s if links.stray and rng.random() < links.stray else links.delay_s
        return rng.uniform(*span)

    def lost(self, a: int, b: int) -> bool:
        if (a, b) in self.cut:
            self.happened["messages cut off" if (b, a) in self.cut else "messages cut off one way"] += 1
            return True
        loss = self.plan.links.loss
        if loss > 0 and self.rng.random() < loss:
            self.happened["messages lost"] += 1
            return True
        return False

    def dies_by_power(self) -> bool:
        return self.rng.random() < self.plan.faults.power

    def at_address(self, where: Address) -> Process | None:
        return self.replicas.get(where[1] - 9000)

    # --- looking ----------------------------------------------------------------------------------------------------

    @property
    def players(self) -> dict[int, Process]:
        return self.replicas

    @property
    def leader(self) -> Process | None:
        """The leader of the greatest epoch among the living."""
        leaders = [p for p in self.replicas.values() if p.started and p.core.is_leader]
        return max(leaders, key=lambda p: p.core.epoch, default=None)

    def holds(self, key: Key, hwm: int, digest: int) -> bool:
        """Whether this voter's disk has the log with this digest below `hwm`."""
        process = self.replicas.get(key[0])
        if process is None or (key[1] != bytes(16) and key[1] != process.key.directory_id):
            return False
        trail = process.subject.trail
        return process.witness.durable_end() >= hwm and (trail.start >= hwm or trail.digest_at(hwm) == digest)

    def voter_anywhere(self, key: ReplicaKey) -> bool:
        """Whether any log, committed or not, still has this replica among its voters."""
        wanted = (key.id, key.directory_id)
        subjects = [p.subject for p in self.replicas.values()]
        return any(wanted in s.base_set or any(wanted in keys for _, keys in s.sets) for s in subjects)

    def settle(self, value: Any, seconds: float = 30.0) -> int:
        """Proposes until a value commits; an offset behind it."""
        end = self.now + seconds
        while self.now < end:
            leader = self.leader
            before = len(self.acknowledged)
            if leader is not None and leader.propose([value]):
                self.run(min(5.0, end - self.now), lambda before=before: len(self.acknowledged) > before)  # type: ignore[misc]
                if len(self.acknowledged) > before:
                    return self.history.committed_end
            else:
                self.run(0.05)
        raise self.fail(f"nothing commits within {seconds} s")

    def calm_down(self) -> None:
        """From now on no faults and no work; everybody is up and reaches everybody."""
        self.plan = replace(self.plan.calm(), disks=replace(self.plan.disks, slow=0.0))
        self.cut.clear()
        for process in self.replicas.values():
            process.disk.dies_in = None
            if process.disk.fails is not None:
                process.die(power=False)
            if process.now_living is not None:
                process.now_living.blocked_until = self.now
            else:
                process.start()

    def describe(self) -> str:
        out = []
        for i, p in self.replicas.items():
            if not p.started:
                out.append(f"{i} is {'starting' if p.alive else 'down'}")
                continue
            c = p.core
            out.append(
                f"{i} {c.role.value} epoch {c.epoch} leader {c.leader_id} log {p.client.log.start_offset}..{c.log.end_offset} "
                f"hwm {c.hwm} applied {p.committed} voters {[str(v.key.id) for v in c.voters]}"
            )
        return "; ".join(out)

    def note(self, process: Process, what: str) -> None:
        if self.narrator is not None:
            self.narrator(f"{process.subject.name} {what}")

    def fail(self, what: str) -> InvariantError:
        return InvariantError(f"seed {self.plan.seed}, event {self.events}, {self.now:.6f} s: {what}: {self.describe()}")

    @contextmanager
    def named(self) -> Iterator[None]:
        """A violation inside is told with seed, event and time."""
        try:
            yield
        except InvariantError as e:
            if str(e).startswith("seed "):
                raise
            raise InvariantError(f"seed {self.plan.seed}, event {self.events}, {self.now:.6f} s: {e}") from e

    def check_ledger(self) -> None:
        """Everybody has applied every acknowledged record, and none of them twice."""
        if not self.run(60, lambda: all(p.committed == self.history.committed_end for p in self.replicas.values())):
            raise self.fail(f"not all apply what is committed up to {self.history.committed_end}")
        for process in self.replicas.values():
            ids = process.machine.ids
            if len(ids) != len(set(ids)):
                raise self.fail(f"applied state: n{process.id} has records twice")
            missing = self.acknowledged - set(ids)
            if missing:
                raise self.fail(f"committed stays: n{process.id} lacks {len(missing)} acknowledged records")


def run_cluster(plan: Plan, events: int, narrate: Callable[[str], None] | None = None) -> Cluster:
    """The plan for so many events, then calm, then the ledger. Raises InvariantError naming the seed."""
    cluster = Cluster(plan, narrate)
    with cluster.running():
        run_plan(cluster, events)
        cluster.check_ledger()
    return cluster
