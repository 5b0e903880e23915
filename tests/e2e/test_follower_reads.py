"""librdkafka reads from the follower in its rack (KIP-392) while replicas move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType

from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic, PartitionDescription, TopicPartition
from tests.e2e.test_replication import all_of, cluster, rack
from tests.e2e.test_replication_throttle import alter
from tests.support.cluster import Node, wait_for
from tests.support.numbered_load import NumberedLoad, NumberedReader

pytestmark = pytest.mark.timeout(280)

TOPIC, PARTITIONS = "read", 6
OLD, OTHER, NEW = 1, 2, 3
"""The broker that leads first, another one, and the one in the rack of the reader."""
COPIED_BYTES_PER_S = 150_000
"""A replica on the old leader is copied for several seconds, so that the reader gets there before its end."""
RECORDS = 1500
ROUNDS = 3


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    with cluster(tmp_path, "qqq", racks=True) as nodes:
        yield nodes


def all_partitions(admin: AdminClient, holds: Callable[[PartitionDescription], bool]) -> None:
    """Waits until this holds for all partitions."""

    def look() -> bool:
        return all(map(holds, admin.describe_topics([TOPIC])[TOPIC].partitions))

    wait_for("the partitions", look, 60, 0.05)


def move(admin: AdminClient, *replicas: int) -> None:
    """Moves all partitions to these brokers, and waits until the copies are complete."""
    errors = admin.alter_partition_reassignments(
        {TopicPartition(TOPIC, p): list(replicas) for p in range(PARTITIONS)}
    )
    assert not any(errors.values()), errors
    all_partitions(admin, lambda p: sorted(p.isr) == sorted(p.replicas) == sorted(replicas))


def test_a_consumer_in_a_rack_reads_on_while_leaders_change_and_replicas_move(nodes):
    """The leader loses its replica to the reader's rack, and gets it back as a follower. librdkafka returns
    to the former leader for a moment, and must neither remain there nor reset its position. The reader has no
    policy to reset it, and fails then."""
    servers = all_of(nodes)
    with AdminClient(servers, api_timeout_s=30) as admin:
        topic = NewTopic(
            TOPIC,
            assignment={p: [OLD, OTHER, NEW] for p in range(PARTITIONS)},
            configs={"min.insync.replicas": "2", "follower.replication.throttled.replicas": "*"},
        )
        assert not any(admin.create_topics([topic]).values())
        limit = {"follower.replication.throttled.rate": str(COPIED_BYTES_PER_S)}
        alter(nodes[0], ResourceType.BROKER, str(OLD), limit)
        load = NumberedLoad(servers, TOPIC, PARTITIONS, per_s=600)
        reader = NumberedReader(servers, TOPIC, PARTITIONS, rack(NEW))

        def read_on() -> None:
            load.flows()
            wanted = [p.produced for p in load.partitions]
            wait_for(
                f"the reader, which reads from {reader.read_from} at {reader.next}, to get to {wanted}",
                lambda: reader.failure or all(at >= end for at, end in zip(reader.next, wanted, strict=True)),
            )
            assert reader.failure is None, reader.failure

        try:
            wait_for("records", lambda: load.acknowledged > RECORDS)
            for _ in range(ROUNDS):
                wait_for("the reader to read in its rack", lambda: reader.read_from == [NEW] * PARTITIONS)
                move(admin, NEW, OTHER)
                read_on()
                move(admin, NEW, OTHER, OLD)
                read_on()
                move(admin, OLD, OTHER, NEW)
                admin.elect_leaders(0, [TopicPartition(TOPIC, p) for p in range(PARTITIONS)])
                all_partitions(admin, lambda p: p.leader == OLD)
            load.pause()
            reader.reaches([p.produced for p in load.partitions])
        finally:
            reader.stop()
            load.stop()
