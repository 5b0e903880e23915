"""A reassignment under a throttle on three brokers: it takes the time that the limit asks for, other topics
are replicated without delay meanwhile, and the end of the throttle ends the waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)

from quorate.net.client import Connection
from quorate.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from tests.e2e.test_replication import all_of, cluster
from tests.support.cluster import Node, wait_for
from tests.support.ledger import QUIET

pytestmark = pytest.mark.timeout(280)

MOVED, OTHER = "moved", "other"
SIZE = 4_000_000
SIDES = ("leader", "follower")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    """Three brokers, with 4 MB in a partition that only broker 1 has."""
    with cluster(tmp_path, "qqq") as nodes:
        admin = nodes[0].admin()
        topics = [
            NewTopic(MOVED, 1, replica_assignment=[[1]], config={"max.message.bytes": "200000"}),
            NewTopic(OTHER, 1, replica_assignment=[[1, 2]]),
        ]
        for future in admin.create_topics(topics, operation_timeout=20).values():
            future.result(30)
        producer = Producer(
            {"bootstrap.servers": all_of(nodes), "batch.size": 100_000, "acks": "all", **QUIET}
        )
        for _ in range(SIZE // 50_000):
            producer.produce(MOVED, b"x" * 50_000, partition=0)
        assert producer.flush(120) == 0
        yield nodes


def alter(node: Node, kind: ResourceType, name: str, values: dict[str, str | None]) -> None:
    """Sets configurations, or removes those whose value is None."""
    entries = [
        ConfigEntry(
            key,
            value or "",
            source=ConfigSource.UNKNOWN_CONFIG,
            incremental_operation=AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE,
        )
        for key, value in values.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin = node.admin()
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def throttle(node: Node, bytes_per_s: int | None, sides: tuple[str, ...] = SIDES) -> None:
    """Sets the limit of brokers 1 and 2, and throttles the replicas of the moved topic. None ends it."""
    replicas = None if bytes_per_s is None else "*"
    alter(
        node,
        ResourceType.TOPIC,
        MOVED,
        {f"{side}.replication.throttled.replicas": replicas for side in sides},
    )
    rate = None if bytes_per_s is None else str(bytes_per_s)
    for broker in ("1", "2"):
        alter(
            node, ResourceType.BROKER, broker, {f"{side}.replication.throttled.rate": rate for side in sides}
        )


def move(node: Node) -> None:
    """Moves the topic from broker 1 to broker 2."""

    async def ask() -> None:
        connection = await Connection.connect("127.0.0.1", node.broker_port, client_id="test")
        Request = AlterPartitionReassignmentsRequest  # noqa: N806
        part = Request.ReassignablePartition(partition_index=0, replicas=[2])
        topic = Request.ReassignableTopic(name=MOVED, partitions=[part])
        answer = await connection.call(Request(timeout_ms=20_000, topics=[topic]))
        assert answer.responses[0].partitions[0].error_code == 0, answer
        connection.close()

    asyncio.run(ask())


def is_moved(node: Node) -> bool:
    partition = node.admin().list_topics(MOVED, timeout=10).topics[MOVED].partitions.get(0)
    return partition is not None and (partition.replicas, partition.isrs) == ([2], [2])


def copied(node: Node) -> int:
    log = node.data / f"{MOVED}-0" / f"{0:020d}.log"
    return log.stat().st_size if log.exists() else 0


@pytest.mark.parametrize("side", SIDES)
def test_a_throttled_move_takes_the_time_that_the_limit_asks_for(nodes: list[Node], side: str) -> None:
    """Each side alone keeps the limit. One response, of a megabyte at most, may be ahead of it."""
    rate = 500_000
    throttle(nodes[0], rate, (side,))
    started = time.monotonic()
    move(nodes[0])
    producer = Producer({"bootstrap.servers": all_of(nodes), "acks": "all", "linger.ms": 0, **QUIET})
    others = 0
    while not is_moved(nodes[0]):
        # At any time no more is copied than the limit allows, so that the last bytes keep it too.
        size = copied(nodes[1])
        assert size <= (time.monotonic() - started) * rate + 1_100_000
        producer.produce(OTHER, b"y", partition=0)
        assert producer.flush(20) == 0
        others += size < SIZE
    assert time.monotonic() - started >= (SIZE - 1_100_000) / rate
    assert others >= 3  # records of another topic that reached all replicas while the move waited


def test_a_throttle_is_changed_while_replicas_move(nodes: list[Node]) -> None:
    throttle(nodes[0], 1000)
    move(nodes[0])
    wait_for("the first bytes", lambda: copied(nodes[1]) > 0)
    assert copied(nodes[1]) < SIZE / 2
    throttle(nodes[0], None)
    wait_for("the move", lambda: is_moved(nodes[0]), 60)


def test_a_throttle_holds_after_a_restart(nodes: list[Node]) -> None:
    throttle(nodes[0], 1000)
    for node in nodes[:2]:
        node.stop()
        node.start()
    move(nodes[2])
    wait_for("the first bytes", lambda: copied(nodes[1]) > 0)
    deadline = time.monotonic() + 3
    wait_for("three seconds", lambda: time.monotonic() > deadline)
    assert copied(nodes[1]) < SIZE / 2
    throttle(nodes[2], None)
    wait_for("the move", lambda: is_moved(nodes[2]), 60)
