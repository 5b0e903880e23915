"""Simulations of complete brokers on virtual time, and the bugs in replication that they must catch."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from quorate.broker.replication import log_reader
from quorate.broker.replication.fetcher.replica_fetcher import ReplicaFetcher
from quorate.broker.replication.partition import Partition
from quorate.broker.replication.replica_state import FollowerState, PendingIsr
from quorate.controller.replication.partition_change import PartitionChangeBuilder
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.partition.producer_state import ProducerStates
from quorate.protocol.errors import ErrorCode, KafkaError
from simulation.checker.invariants import InvariantError
from simulation.replication.cluster import Cluster, run_cluster
from simulation.replication.config import ReplicationConfig, Topology
from simulation.replication.operators import Operators
from simulation.replication.runner import run_seed

Patch = pytest.MonkeyPatch
EVENTS = 3000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_clusters_without_faults_keep_every_invariant() -> None:
    cluster = run_cluster(ReplicationConfig(seed=1), 1500)
    assert cluster.clients.acknowledged > 50
    assert cluster.clients.consumed > 50


@pytest.mark.parametrize("seed", range(3))
def test_clusters_under_faults_keep_every_invariant(seed: int) -> None:
    run_seed(seed, 1500)


def test_a_seed_gives_the_same_history_each_time() -> None:
    def history(seed: int) -> tuple[list[str], int, float]:
        trace: list[str] = []
        cluster = run_cluster(ReplicationConfig.from_seed(seed), 1000, trace.append)
        return trace, cluster.events, cluster.now

    assert history(6) == history(6)


def test_topics_that_cannot_be_created_are_requested_one_request_after_the_other(monkeypatch: Patch) -> None:
    requests: list[float] = []
    topology = Topology(brokers=2, replicas=3, topics=3)
    cluster = Cluster(ReplicationConfig(seed=1, topology=topology))
    creation = Operators._creation

    def counted(self: Operators, names: list[str]) -> Any:
        requests.append(cluster.now)
        return creation(self, names)

    monkeypatch.setattr(Operators, "_creation", counted)
    with cluster.running():
        cluster.controller.start()
        for broker in cluster.brokers.values():
            broker.start()
        cluster.run(60, lambda: all(broker.server is not None for broker in cluster.brokers.values()))
        for _ in range(3):
            cluster.operators.create_missing_topics()
        cluster.run(20, events=20_000)
    assert len(requests) > 10
    assert min(later - sooner for sooner, later in pairwise(requests)) >= 0.2


@pytest.mark.slow
def test_every_kind_of_fault_and_work_occurs() -> None:
    found: Counter[str] = Counter()
    for seed in range(60):
        found.update(run_seed(seed, EVENTS).coverage)
        if all(found[kind] for kind in KINDS):
            return
    assert [kind for kind in KINDS if not found[kind]] == []


KINDS = (
    "connections reset",
    "controlled shutdowns",
    "controllers replaced",
    "deaths within a step",
    "failing disks",
    "fetch: OFFSET_NOT_AVAILABLE",
    "kills",
    "last known leaders elected",
    "links cut",
    "links cut one way",
    "logs moved",
    "new disks",
    "old disks",
    "pauses",
    "power failures",
    "produce: NOT_ENOUGH_REPLICAS",
    "produce: NOT_LEADER_OR_FOLLOWER",
    "produce: REQUEST_TIMED_OUT",
    "reassignments",
    "reassignments cancelled",
    "records deleted",
    "topics deleted",
    "torn writes",
    "unclean elections",
    "unsynced writes lost",
)


# --- planted bugs ---------------------------------------------------------------------------------


def high_watermark_from_any_follower(patch: Patch) -> None:
    """Counts the farthest follower instead of the slowest member of the ISR."""

    def increment(self: Partition, log: PartitionLog | None = None) -> bool:
        log = log or self.log
        ends = [state.log_end_offset for state in self.followers.values()]
        return self._move_high_watermark(log, max(ends, default=log.log_end_offset))

    patch.setattr(Partition, "maybe_increment_high_watermark", increment)


def high_watermark_without_a_pending_member(patch: Patch) -> None:
    """Does not wait for a replica that the controller may have added to the ISR already (KIP-497)."""
    patch.setattr(Partition, "maximal_isr", lambda self: self.isr)
    patch.setattr(FollowerState, "is_caught_up", lambda self, end, now, lag: self.log_end_offset == end)


def truncate_to_the_high_watermark(patch: Patch) -> None:
    """Truncates a new follower to its high watermark, as before KIP-101."""
    add = ReplicaFetcher.add

    def hasty(self: ReplicaFetcher, partition: Partition) -> None:
        partition.truncate_to(partition.log.high_watermark)
        add(self, partition)

    patch.setattr(ReplicaFetcher, "add", hasty)


def shrink_before_the_commit(patch: Patch) -> None:
    """Uses a smaller ISR before the controller has committed it."""
    request = Partition._request_isr

    def hasty(self: Partition, isr: tuple[int, ...], *, expands: bool) -> None:
        request(self, isr, expands=expands)
        if not expands:
            self.isr = isr

    patch.setattr(Partition, "_request_isr", hasty)


def log_start_before_the_high_watermark(patch: Patch) -> None:
    """Lets a follower move its log start before its high watermark."""

    def follow(self: Partition, high_watermark: int, log_start_offset: int) -> None:
        log = self.log
        if log.log_start_offset < log_start_offset:
            self._move_log_start(log, log_start_offset, "planted")
        self._move_high_watermark(log, min(high_watermark, log.log_end_offset))

    patch.setattr(Partition, "follow_offsets", follow)


def delete_above_the_high_watermark(patch: Patch) -> None:
    """Deletes records up to the log end."""

    def delete(self: Partition, offset: int) -> tuple[int, int]:
        self.log._move_log_start(self.log.log_end_offset)
        return self.log.log_end_offset, self.low_watermark()

    patch.setattr(Partition, "delete_records", delete)


def apply_a_stale_answer(patch: Patch) -> None:
    """Applies every response to an AlterPartition, whatever has happened since the request."""

    def altered(
        self: Partition, pending: PendingIsr, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
    ) -> None:
        self.pending_isr = None
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.maybe_increment_high_watermark()

    patch.setattr(Partition, "isr_altered", altered)


def count_a_fetch_of_an_old_epoch(patch: Patch) -> None:
    """Serves followers of every leader epoch, and believes that their logs are the leader's."""

    def check(self: Partition, current_leader_epoch: int, *, only_leader: bool = True) -> None:
        if only_leader and not self.is_leader:
            raise self.not_leader()

    patch.setattr(Partition, "check_leader", check)
    patch.setattr(log_reader, "_diverging", lambda partition, log, part: None)


def judge_offsets_as_a_follower(patch: Patch) -> None:
    """A follower finds what it does not have yet out of range, as Kafka's do."""

    def out_of_range(*_: object) -> KafkaError:
        return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)

    patch.setattr(log_reader, "_not_available", out_of_range)


def append_twice(patch: Patch) -> None:
    """Does not recognise the retry of an idempotent producer."""
    prepare = ProducerStates.prepare

    def forgetful(self: ProducerStates, header: Any, *args: Any) -> Any:
        self.producers.pop(header.producer_id, None)
        return prepare(self, header, *args)

    patch.setattr(ProducerStates, "prepare", forgetful)


def elect_any_replica(patch: Patch) -> None:
    """Elects replicas outside of ISR and ELR."""
    patch.setattr(PartitionChangeBuilder, "_is_valid", PartitionChangeBuilder._may_lead)


@dataclass(frozen=True)
class Planted:
    plant: Callable[[Patch], None]
    caught_by: str
    """One of these invariants."""
    seeds: int
    """It is caught by one of so many seeds."""


PLANTED = [
    Planted(high_watermark_from_any_follower, "committed stays", 10),
    Planted(high_watermark_without_a_pending_member, "committed stays", 60),
    Planted(truncate_to_the_high_watermark, "committed stays", 40),
    Planted(shrink_before_the_commit, "metadata|committed stays", 40),
    Planted(log_start_before_the_high_watermark, "progress|log start|logs match", 80),
    Planted(delete_above_the_high_watermark, "log start", 20),
    Planted(apply_a_stale_answer, "metadata|committed stays", 60),
    Planted(count_a_fetch_of_an_old_epoch, "committed stays|logs match|progress", 60),
    Planted(judge_offsets_as_a_follower, "position", 60),
    Planted(append_twice, "producer", 20),
    Planted(elect_any_replica, "leader", 20),
]


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.plant.__name__)
def test_a_planted_bug_is_caught(planted: Planted, monkeypatch: Patch) -> None:
    planted.plant(monkeypatch)
    with pytest.raises(InvariantError, match=rf"seed \d+, event \d+, [0-9.]+ s: ({planted.caught_by})"):
        for seed in range(planted.seeds):
            run_seed(seed, EVENTS)
