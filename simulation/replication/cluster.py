"""A cluster of complete brokers and a controller on virtual time, with simulated network and disks.

An event is a timer of the loop and what follows from it in the same instant: an arriving frame, a
deadline, the end of a disk's work, an action of a client, of an operator or of the nemesis.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from quorate.log.partition.partition_log import PartitionLog
from quorate.metadata.image import PartitionImage
from simulation.checker.invariants import InvariantError
from simulation.replication.checker import Key, PartitionHistory
from simulation.replication.clients import Clients
from simulation.replication.config import ReplicationConfig
from simulation.replication.environment import Environment
from simulation.replication.log_model import LogModel
from simulation.replication.metadata_log import CONTROLLER_HOST, MetadataLog
from simulation.replication.nemesis import Nemesis
from simulation.replication.network import Network
from simulation.replication.observer import observing, read_log
from simulation.replication.operators import Operators
from simulation.replication.process import BrokerProcess, ControllerProcess, Incarnation

START_S = 60.0
"""The longest virtual time until the first topics exist."""
RECOVERY_S = 120.0
"""The longest virtual time, after the last fault, until every partition is replicated completely."""

Intervals = Iterable[tuple[Callable[[], None], float]]


class Cluster(Environment):
    """Brokers with the ids 1, 2, ... Use it inside `running`."""

    def __init__(self, config: ReplicationConfig, trace_sink: Callable[[str], None] | None = None) -> None:
        super().__init__(config, trace_sink)
        self.checker.unclean_elections = config.topology.unclean_elections
        self.network = Network(self.loop, self)
        self.metadata = MetadataLog(self)
        self.brokers: dict[int, BrokerProcess] = {}
        self._recurring = False

    # --- what network and metadata log use --------------------------------------------------------

    def message_delay(self) -> float:
        network = self.config.network
        slow = network.long_delay and self.rng.random() < network.long_delay
        return self.draw(network.long_delay_s if slow else network.delay_s)

    def resets_message(self) -> bool:
        reset = self.config.network.reset
        if reset and self.rng.random() < reset:
            self.coverage["connections reset"] += 1
            return True
        return False

    def resets_held_connection(self) -> bool:
        return self.rng.random() < 0.5

    def metadata_delay(self) -> float:
        network = self.config.network
        slow = network.slow_metadata and self.rng.random() < network.slow_metadata
        return self.draw(network.slow_metadata_s if slow else network.metadata_delay_s)

    def can_reach_controller(self, host: str) -> bool:
        return not (self.network.is_cut(CONTROLLER_HOST, host) or self.network.is_cut(host, CONTROLLER_HOST))

    def call_in(self, at: float, context: contextvars.Context, action: Callable[[], object]) -> None:
        """Calls `action` at this virtual time in the context of a process, if it lives then."""
        self.loop.call_at(at, action, context=context)

    # --- running ----------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[Cluster]:
        """Replaces clock, files and event loop by the simulated ones inside the block, and starts all
        processes."""
        with self.installed(), observing(self.checker, self._collect):
            self.controller = ControllerProcess(self, self.network, self.metadata)
            for broker_id in range(1, self.config.topology.brokers + 1):
                self.brokers[broker_id] = BrokerProcess(self, self.network, self.metadata, broker_id)
            self.clients = Clients(self, self.brokers, lambda: self.controller.image)
            self.operators = Operators(self, self.clients, self.controller, self.brokers)
            self.nemesis = Nemesis(self, self.network, self.controller, self.brokers)
            try:
                yield self
            finally:
                for broker in self.brokers.values():
                    broker.crash(lose_power=False)
                for owner in (self.controller, self.clients.owner):
                    owner.alive = False
                    self.loop.close_tasks(owner)
                self._run_cleanups()

    def _collect(self, error: BaseException) -> None:
        if isinstance(error, InvariantError):
            self.errors.append(error)
        else:
            self.errors.append(InvariantError(f"the checker failed: {type(error).__name__}: {error}"))

    def _run_cleanups(self) -> None:
        cleanups, self.cleanups = self.cleanups, []
        for cleanup in cleanups:
            cleanup()

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
        return until is not None and until()

    def _after_event(self) -> None:
        """Checks each broker that ran in this event."""
        loop = self.loop
        loop.run_ready()
        while loop.active_owners:
            owners, loop.active_owners = loop.active_owners, {}
            for owner in owners:
                if isinstance(owner, Incarnation) and owner.alive:
                    owner.process.check()
            loop.run_ready()
        if self.errors:
            raise self.errors[0]
        if self.cleanups:
            self._run_cleanups()

    def start(self) -> None:
        """Starts all processes and creates the topics."""
        self.controller.start()
        for broker in self.brokers.values():
            broker.start()
        if not self.run(START_S, lambda: all(broker.server is not None for broker in self.brokers.values())):
            raise InvariantError("progress: not all brokers have started")
        self.operators.create_missing_topics()
        names = self.operators.topic_names()
        if not self.run(START_S, lambda: all(n in self.controller.image.topics.by_name for n in names)):
            raise InvariantError("progress: the topics were not created")

    def start_work(self) -> None:
        """Starts clients, operators and faults."""
        self.clients.start()
        self._recurring = True
        for source in (self.operators.intervals(), self.nemesis.intervals()):
            for action, every_s in source:
                if every_s > 0:
                    self._schedule_next(action, every_s)

    def _schedule_next(self, action: Callable[[], None], every_s: float) -> None:
        def run() -> None:
            if self._recurring:
                action()
                self._schedule_next(action, every_s)

        self.schedule(self.now + self.rng.expovariate(1 / every_s), run)

    # --- the end of a simulation ------------------------------------------------------------------

    def stop_faults(self) -> None:
        """Ends workload and faults: from now on every process is up and reaches every other."""
        self._recurring = self.clients.running = False
        self.config = self.config.without_faults()
        self.network.heal_all()
        self.controller.blocked_until = self.now
        for broker in self.brokers.values():
            if any(disk.failing_errno is not None for disk in broker.disks):
                broker.crash(lose_power=False)
            for disk in broker.disks:
                disk.crash_after_changes = None
            if broker.current is not None:
                broker.current.blocked_until = self.now
            else:
                broker.start()
        if self.metadata.leader.leader_id is None:
            self.metadata.elect()

    def settle(self) -> None:
        """Waits until every partition is replicated completely, and compares the logs with what is
        committed. Raises InvariantError."""
        with self.violation_context():
            if not self.run(RECOVERY_S, lambda: not any(self._unsettled())):
                raise InvariantError(f"progress: after {RECOVERY_S:g} s {'; '.join(self._unsettled())}")
            for key, history in self.checker.partitions.items():
                if not history.deleted and history.image.leader >= 0:
                    self._compare_logs(key, history)

    def _unsettled(self) -> Iterator[str]:
        if self.clients.pending:
            yield f"{self.clients.pending} batches are not acknowledged"
        for broker in self.brokers.values():
            if broker.server is None:
                yield f"{broker.host} does not serve"
                return
            if moves := len(broker.server.moves):
                yield f"{broker.host} still moves {moves} replicas between its directories"
        for key, history in self.checker.partitions.items():
            image = history.image
            if history.deleted or (
                image.leader < 0 and (history.forfeited or self._waits_for_operator(image))
            ):
                continue
            if image.leader < 0 or set(image.isr) != set(image.replicas):
                yield f"{history.name} has leader {image.leader} and ISR {image.isr} of {image.replicas}"
                continue
            logs = [self._real_log(replica, key) for replica in image.replicas]
            ends = [None if log is None else (log.log_end_offset, log.high_watermark) for log in logs]
            if len(set(ends)) != 1 or (ends[0] is not None and ends[0][0] != ends[0][1]):
                yield f"{history.name} ends at {ends} on {image.replicas}"

    def _waits_for_operator(self, image: PartitionImage) -> bool:
        """Whether all replicas that might lead were on disks that are gone. The partition then stays
        offline, because the others would truncate their logs to an empty one."""
        candidates = {*image.isr, *image.elr, *image.last_known_elr}
        return all(self.brokers[broker].has_new_disk for broker in candidates)

    def _real_log(self, broker: int, key: Key) -> PartitionLog | None:
        """The log of a replica. Opens it as a request would, which begins the leader's epoch in it."""
        current = self.brokers[broker].current
        if current is None or current.server is None:
            return None
        for hosted in current.server.replicas.partitions.values():
            if (hosted.topic_id, hosted.partition) == key:
                return current.context.copy().run(lambda hosted: hosted.log, hosted)
        return None

    def _compare_logs(self, key: Key, history: PartitionHistory) -> None:
        models: dict[int, LogModel] = {}
        for replica in history.image.replicas:
            log = self._real_log(replica, key)
            if log is not None:
                models[replica] = read_log(log)
        if not models:
            return
        start = max(model.start for model in models.values())
        reference = models[history.image.leader]
        expected = {base: batch for base, batch in reference.by_base.items() if base >= start}
        for replica, model in models.items():
            found = {base: batch for base, batch in model.by_base.items() if base >= start}
            if history.forfeited:
                # A power failure may have left a gap before a segment whose name was durable, see the docs.
                common = found.keys() & expected.keys()
                differs = any(found[base] != expected[base] for base in common)
            else:
                differs = found != expected
            if differs:
                raise InvariantError(
                    f"logs match: {history.name} differs on {replica} and {history.image.leader}: "
                    f"{sorted(found.values())[:5]} {sorted(expected.values())[:5]}"
                )
            if not history.forfeited and history.committed.match(model) < model.end:
                raise InvariantError(
                    f"logs match: {history.name} on {replica} ends at {model.end} and has what is committed "
                    f"up to {model.matched}"
                )


def run_cluster(
    config: ReplicationConfig, events: int, trace_sink: Callable[[str], None] | None = None
) -> Cluster:
    """Runs one simulation, its final phase without faults, and the comparison of the logs.

    Raises InvariantError with the seed.
    """
    cluster = Cluster(config, trace_sink)
    with cluster.running():
        cluster.start()
        cluster.start_work()
        cluster.run(events=events * config.events_factor)
        cluster.stop_faults()
        cluster.settle()
    return cluster
