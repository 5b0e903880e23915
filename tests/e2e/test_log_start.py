"""Partitions whose records were deleted, and waiting writers whose partition changes: three brokers,
with real clients."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from quorate.net.client import Connection
from quorate.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from tests.e2e.test_replication import all_of, cluster
from tests.support import java
from tests.support.cluster import Node, wait_for
from tests.support.ledger import QUIET

TOPIC = "trimmed"


def create(node: Node, replicas: list[int], **config: str) -> None:
    topic = NewTopic(TOPIC, 1, replica_assignment=[replicas], config=config)
    admin = node.admin()
    next(iter(admin.create_topics([topic], operation_timeout=20).values())).result(30)
    await_partition(node, lambda p: set(p.isrs) == set(replicas) and p.leader in replicas)


def await_partition(node: Node, holds: Callable[[object], bool]) -> None:
    """Waits until the condition holds for the partition in the node's metadata."""

    admin = node.admin()

    def probe() -> bool:
        try:
            found = admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
        except KafkaException:
            return False
        return 0 in found and holds(found[0])

    wait_for("the partition's metadata", probe, 60)


def move(node: Node, target: list[int]) -> None:
    """Reassigns the partition."""

    async def ask() -> None:
        connection = await Connection.connect("127.0.0.1", node.broker_port, client_id="test")
        Request = AlterPartitionReassignmentsRequest  # noqa: N806
        part = Request.ReassignablePartition(partition_index=0, replicas=target)
        answer = await connection.call(
            Request(timeout_ms=20_000, topics=[Request.ReassignableTopic(name=TOPIC, partitions=[part])])
        )
        assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0), answer
        connection.close()

    asyncio.run(ask())


def moved(node: Node, replica: int) -> None:
    await_partition(node, lambda p: (p.replicas, p.isrs, p.leader) == ([replica], [replica], replica))  # type: ignore[attr-defined]


def write(nodes: list[Node], count: int, **conf: object) -> list[int]:
    """Writes `count` records. Returns their offsets."""
    offsets: list[int] = []
    failed: list[object] = []

    def delivered(error, message) -> None:  # type: ignore[no-untyped-def]
        if error is None:
            offsets.append(message.offset())
        else:
            failed.append(error)

    producer = Producer({"bootstrap.servers": all_of(nodes), "linger.ms": 0, **QUIET, **conf})
    for i in range(count):
        producer.produce(TOPIC, b"record %d" % i, partition=0, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert not failed, failed[:3]
    return sorted(offsets)


def delete_records(node: Node, timeout_s: float = 10) -> int:
    """Deletes all records. Returns the low watermark."""
    everything = TopicPartition(TOPIC, 0, -1)
    admin = node.admin()
    futures = admin.delete_records([everything], request_timeout=timeout_s, operation_timeout=timeout_s)
    return int(next(iter(futures.values())).result(timeout_s + 5).low_watermark)


def watermarks(nodes: list[Node]) -> tuple[int, int] | None:
    """The log start offset and the high watermark. None if the metadata of the broker still has a former
    leader."""
    consumer = Consumer({"bootstrap.servers": all_of(nodes), "group.id": "none", **QUIET})
    try:
        found = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=20)
    except KafkaException as e:
        if e.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
            raise
        return None
    finally:
        consumer.close()
    return found  # type: ignore[no-any-return]


def await_watermarks(nodes: list[Node], holds: Callable[[tuple[int, int]], bool]) -> None:
    """Waits until the broker's metadata has the leader, and the leader has these offsets."""

    def probe() -> bool:
        found = watermarks(nodes)
        return found is not None and holds(found)

    wait_for("the watermarks", probe)


@pytest.mark.parametrize("stop", ["SIGTERM", "SIGKILL", pytest.param("to Kafka", marks=pytest.mark.java)])
@pytest.mark.timeout(180)
def test_a_moved_partition_with_deleted_records_keeps_its_offsets(tmp_path: Path, stop: str) -> None:
    """The new replica starts empty at offset 50, also after a restart with either implementation."""
    if stop == "to Kafka":
        java.require_java()
    with cluster(tmp_path, "qqq", release="4.1" if stop == "to Kafka" else None) as nodes:
        create(nodes[0], [1])
        assert write(nodes, 50) == list(range(50))
        assert delete_records(nodes[0]) == 50
        move(nodes[0], [2])
        moved(nodes[0], 2)
        await_watermarks(nodes, lambda found: found == (50, 50))
        target = nodes[1]
        if stop == "SIGKILL":
            target.kill()
        else:
            assert target.stop() == 0
        if stop == "to Kafka":
            target.impl = "java"
        target.start()
        moved(nodes[0], 2)
        await_watermarks(nodes, lambda found: found == (50, 50))
        assert write(nodes, 1) == [50]


@pytest.mark.timeout(180)
def test_replicas_with_deleted_records_agree_on_their_offsets_after_all_were_killed(tmp_path: Path) -> None:
    """The first leader must not reset the others to offset 0."""
    with cluster(tmp_path, "qqq") as nodes:
        create(nodes[0], [1])
        assert write(nodes, 50) == list(range(50))
        assert delete_records(nodes[0]) == 50
        move(nodes[0], [2, 3])
        await_partition(
            nodes[0], lambda p: p.replicas == [2, 3] and set(p.isrs) == {2, 3} and p.leader in (2, 3)
        )  # type: ignore[attr-defined]
        for node in nodes[1:]:
            node.kill()
        for node in nodes[1:]:
            node.start(wait=False)
        for node in nodes[1:]:
            node.wait_ready()
        await_partition(nodes[0], lambda p: set(p.isrs) == {2, 3} and p.leader in (2, 3))  # type: ignore[attr-defined]
        await_watermarks(nodes, lambda found: found == (50, 50))
        assert write(nodes, 10, acks="all") == list(range(50, 60))
        segments = [node.data / f"{TOPIC}-0" / f"{50:020d}.log" for node in nodes[1:]]
        wait_for("equal logs", lambda: segments[0].read_bytes() == segments[1].read_bytes())


@pytest.mark.timeout(120)
def test_followers_that_learn_of_records_and_of_their_deletion_in_one_response_continue(
    tmp_path: Path,
) -> None:
    """One response gives a follower a new high watermark and a log start offset that equals it."""
    with cluster(tmp_path, "qqq") as nodes:
        create(nodes[0], [1, 2, 3])
        for round_ in range(5):
            assert len(write(nodes, 20, acks=1)) == 20
            end = 20 * (round_ + 1)
            await_watermarks(nodes, lambda found, end=end: found[1] == end)  # type: ignore[misc]
            assert delete_records(nodes[0]) == end
        assert write(nodes, 1, acks="all") == [100]


@pytest.mark.timeout(120)
def test_a_waiting_write_is_acknowledged_when_its_follower_is_no_longer_a_replica(tmp_path: Path) -> None:
    with cluster(tmp_path, "qqq") as nodes:
        create(nodes[0], [1, 2], **{"min.insync.replicas": "1"})
        follower = nodes[1].proc
        assert follower is not None
        done: list[tuple[object, int]] = []
        producer = Producer(
            {
                "bootstrap.servers": nodes[0].bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "request.timeout.ms": 60_000,
                **QUIET,
            }
        )
        write(nodes[:1], 1, acks="all")
        os.kill(follower.pid, signal.SIGSTOP)
        try:
            producer.produce(
                TOPIC,
                b"waiting",
                partition=0,
                on_delivery=lambda error, message: done.append((error, message.offset())),
            )
            segment = nodes[0].data / f"{TOPIC}-0" / f"{0:020d}.log"
            wait_for(
                "the record to be in the leader's log",
                lambda: producer.poll(0) or b"waiting" in segment.read_bytes(),
            )
            assert not done
            move(nodes[0], [1])
            asked = time.monotonic()
            wait_for("the acknowledgement", lambda: producer.poll(0.05) or done, 20)
            assert done == [(None, 1)]
            assert time.monotonic() - asked < 10
        finally:
            os.kill(follower.pid, signal.SIGCONT)
