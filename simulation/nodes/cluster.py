"""A cluster of complete Raft clients: unmodified driver, storage and wire formats on a virtual loop, with
simulated disks and a simulated network.

An event is a timer of the loop and what follows from it in the same instant: an arriving message, a
deadline of a driver, the end of an fsync, an action of the workload or a fault.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from quorate.raft.core.voters import VoterSet
from quorate.raft.runtime import driver
from quorate.raft.types import ReplicaKey
from simulation.actions.run import run_simulation
from simulation.checker.invariants import InvariantError, Key, keys_of
from simulation.config import SimulationConfig
from simulation.identifiers import LISTENER, address, directory_id, voter
from simulation.nodes.environment import Environment
from simulation.nodes.incarnation import Incarnation, SimulatedSyncer
from simulation.nodes.network import Network
from simulation.nodes.process import Process


class Cluster(Environment):
    """Processes with the ids 1, 2, ...: voters, then spare controllers, then observers.

    Use it inside `running`.
    """

    def __init__(self, config: SimulationConfig, trace_sink: Callable[[str], None] | None = None) -> None:
        top = config.topology
        ids = range(1, top.voters + 1)
        if top.kraft_version:
            self.static_voters, bootstrap_voters = VoterSet(), VoterSet.of(voter(i) for i in ids)
        else:
            self.static_voters, bootstrap_voters = (
                VoterSet.static({i: address(i) for i in ids}, LISTENER),
                None,
            )
        voters = bootstrap_voters if bootstrap_voters is not None else self.static_voters
        super().__init__(config, keys_of(voters), trace_sink)
        self.replicas: dict[int, Process] = {}
        self.network = Network(self, self.replicas)
        for i in range(1, top.voters + top.spares + top.observers + 1):
            can_vote, initial = i <= top.voters + top.spares, bootstrap_voters if i <= top.voters else None
            self.replicas[i] = self._process(ReplicaKey(i, directory_id(i)), can_vote, initial)

    def _process(self, key: ReplicaKey, can_vote: bool, bootstrap_voters: VoterSet | None) -> Process:
        process = Process(
            self,
            self.network,
            key,
            can_vote=can_vote,
            static_voters=self.static_voters,
            bootstrap_voters=bootstrap_voters,
            bootstrap_servers=tuple(address(i) for i in range(1, self.config.topology.voters + 1)),
        )
        process.rate = 1 + self.rng.uniform(-1, 1) * self.config.faults.skew
        process.disk.losses = self.coverage
        self.coverage["skewed clocks"] += process.rate != 1
        return process

    def replace_directory(self, node_id: int) -> None:
        """Replaces the node's metadata directory by an empty one with another id.

        This is safe only while the old directory is a voter in no log, see `is_voter_in_any_log`.
        """
        old = self.replicas[node_id]
        assert not old.alive
        old.replaced = True
        key = ReplicaKey(node_id, directory_id(node_id, old.key.directory_id[1] + 1))
        self.replicas[node_id] = self._process(key, old.can_vote, None)
        self.coverage["new directories"] += 1

    # --- running ----------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[Cluster]:
        """Replaces clock, files and event loop by the simulated ones inside the block."""
        with ExitStack() as stack:
            stack.enter_context(self.filesystem.installed())
            for name in ("perf_counter", "monotonic", "time"):
                stack.enter_context(mock.patch.object(time, name, lambda: self.now))
            stack.enter_context(mock.patch.object(driver, "Syncer", SimulatedSyncer))
            stack.enter_context(self.loop.running())
            stack.enter_context(self.violation_context())
            try:
                yield self
            finally:
                for process in self.replicas.values():
                    process.crash(lose_power=False)
                self._run_cleanups()
                self.loop.clear()
                gc.collect()

    def _run_cleanups(self) -> None:
        for cleanup in self.cleanups:
            cleanup()
        self.cleanups.clear()

    def run(
        self, seconds: float = 1e9, until: Callable[[], bool] | None = None, events: int = 1 << 40
    ) -> bool:
        """Runs until the condition holds, the virtual time has elapsed or this many events have run.

        Returns whether the condition holds; False without one.
        """
        loop, end, last = self.loop, self.now + seconds, self.events + events
        with self.violation_context():
            self._after_event()
            while self.events < last:
                if until is not None and until():
                    return True
                at = loop.next_at()
                if at is None or at > end:
                    break
                loop.run_event()
                self.events += 1
                self._after_event()
        if until is not None:
            return until()
        if seconds < 1e9 and self.events < last:
            loop.advance(end)
        return False

    def _after_event(self) -> None:
        """Checks the invariants of each process that ran in this event, and closes the tasks of those that
        died.
        """
        loop = self.loop
        loop.run_ready()
        while loop.active_owners:
            incarnations, loop.active_owners = loop.active_owners, {}
            for incarnation in incarnations:
                if isinstance(incarnation, Incarnation) and incarnation.alive:
                    incarnation.process.observer.check()
            loop.run_ready()
        if self.errors:
            raise self.errors[0]
        if self.cleanups:
            self._run_cleanups()

    def start_all(self) -> None:
        for process in list(self.replicas.values()):
            process.start()

    def schedule_restart(self, process: Process) -> None:
        process.schedule_restart()

    # --- state ------------------------------------------------------------------------------------

    @property
    def leader(self) -> Process | None:
        """The leader of the greatest epoch among the started processes."""
        leaders = [p for p in self.replicas.values() if p.started and p.core.state.is_leader]
        return max(leaders, key=lambda p: p.core.state.epoch, default=None)

    def holds(self, key: Key, hwm: int, digest: int) -> bool:
        process = self.replicas.get(key[0])
        if process is None or (key[1] != bytes(16) and key[1] != process.key.directory_id):
            return False
        log = process.model.log
        return process.observer.durable_end() >= hwm and (log.start >= hwm or log.digest_at(hwm) == digest)

    def is_voter_in_any_log(self, key: ReplicaKey) -> bool:
        """Returns whether any log, by a committed or an uncommitted record, has this replica among its
        voters.
        """
        wanted = (key.id, key.directory_id)
        models = [p.model for p in self.replicas.values()]
        return any(
            wanted in model.initial_voters or any(wanted in keys for _, keys in model.voter_sets)
            for model in models
        )

    def commit_value(self, value: Any, seconds: float = 30.0) -> int:
        """Proposes a record until one commits. Returns the end of what is committed then."""
        end = self.now + seconds
        while self.now < end:
            leader = self.leader
            before = len(self.acknowledged)
            if leader is not None and leader.propose([value]):
                self.run(min(5.0, end - self.now), lambda before=before: len(self.acknowledged) > before)  # type: ignore[misc]
                if len(self.acknowledged) > before:
                    return self.checker.committed_end
            else:
                self.run(0.05)
        raise self.failure(f"nothing commits within {seconds} s")

    def stop_faults(self) -> None:
        """Ends workload and faults: from now on every process is up and reaches every other."""
        self.config = replace(self.config.without_faults(), disks=replace(self.config.disks, slow=0.0))
        self.cut_links.clear()
        for process in self.replicas.values():
            process.disk.crash_after_changes = None
            if process.disk.failing_errno is not None:
                process.crash(lose_power=False)
            if process.current is not None:
                process.current.blocked_until = self.now
            else:
                process.start()

    def describe(self) -> str:
        out = []
        for i, p in self.replicas.items():
            if not p.started:
                out.append(f"{i} is {'starting' if p.alive else 'down'}")
                continue
            c = p.core.state
            out.append(
                f"{i} {c.role.value} epoch {c.epoch} leader {c.leader_id} log "
                f"{c.log.start_offset}..{c.log.end_offset} "
                f"hwm {c.hwm} applied {p.committed} voters {[str(v.key.id) for v in c.voters]}"
            )
        return "; ".join(out)

    def failure(self, what: str) -> InvariantError:
        """Returns an error with seed, event, time and the state of all processes, for the caller to raise."""
        return InvariantError(
            f"seed {self.config.seed}, event {self.events}, {self.now:.6f} model: {what}: {self.describe()}"
        )

    def check_acknowledged_records(self) -> None:
        """Checks that every process has applied every acknowledged record, and none of them twice.

        Raises InvariantError.
        """
        if not self.run(
            60, lambda: all(p.committed == self.checker.committed_end for p in self.replicas.values())
        ):
            raise self.failure(f"not all apply what is committed up to {self.checker.committed_end}")
        for process in self.replicas.values():
            ids = process.state_machine.ids
            if len(ids) != len(set(ids)):
                raise self.failure(f"applied state: n{process.id} has records twice")
            missing = self.acknowledged - set(ids)
            if missing:
                raise self.failure(
                    f"committed stays: n{process.id} lacks {len(missing)} acknowledged records"
                )


def run_cluster(
    config: SimulationConfig, events: int, trace_sink: Callable[[str], None] | None = None
) -> Cluster:
    """Runs one simulation, its final phase without faults, and the check of the acknowledged records.

    Raises InvariantError with the seed.
    """
    cluster = Cluster(config, trace_sink)
    with cluster.running():
        run_simulation(cluster, events)
        cluster.check_acknowledged_records()
    return cluster
