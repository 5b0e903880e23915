"""Three brokers, replication factor 3: a leader is killed, nothing acknowledged is lost, and all logs
end up byte-equal."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic

from quorate.net.client import Connection
from quorate.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from tests.support import java
from tests.support.cluster import Node, free_ports, wait_for
from tests.support.ledger import QUIET, read_partition

TOPIC = "copied"
PARTITIONS = 3
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def rack(node_id: int) -> str:
    return f"rack-{node_id}"


@contextlib.contextmanager
def cluster(
    directory: Path, implementations: str, release: str | None = None, *, racks: bool = False
) -> Iterator[list[Node]]:
    """Three nodes with both roles, "q" ours and "j" Apache Kafka's, in a static quorum.

    `release` is that of the features, 4.1 if a node is Apache Kafka's. With `racks`, each node has
    a rack, and serves the consumers there.
    """
    ports = free_ports(6)
    voters = dict(zip((1, 2, 3), ports, strict=False))
    nodes = [
        Node(
            directory / f"n{i}",
            node_id=i,
            impl={"q": "quorate", "j": "java"}[implementations[i - 1]],
            release="4.1" if "j" in implementations else release,
            static=True,
            voters=voters,
            controller_port=voters[i],
            broker_port=ports[i + 2],
            extra={
                "replica.lag.time.max.ms": 3000,
                "broker.session.timeout.ms": 4000,
                "offsets.topic.replication.factor": 3,
                **({"broker.rack": rack(i), "replica.selector.class": RACK_AWARE} if racks else {}),
            },
        )
        for i in voters
    ]
    try:
        for node in nodes:
            node.format()
            node.start(wait=False)
        for node in nodes:
            node.wait_ready()
        yield nodes
    except BaseException:
        for node in nodes:
            print(f"-- node {node.node_id}\n{node.log_tail()}")
        raise
    finally:
        for node in nodes:
            node.kill()


def all_of(nodes: list[Node]) -> str:
    return ",".join(node.bootstrap for node in nodes)


def partitions(node: Node):  # type: ignore[no-untyped-def]
    admin = node.admin()
    try:
        return admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
    except KafkaException:
        return {}


def in_sync(node: Node, ids: set[int]) -> bool:
    found = partitions(node)
    return len(found) == PARTITIONS and all(set(p.isrs) == ids and p.leader in ids for p in found.values())


def write(nodes: list[Node], tag: str, count: int, acknowledged: dict[int, list[bytes]]) -> None:
    failed: list[object] = []
    got: list[tuple[int, int, bytes]] = []

    def delivered(error, message) -> None:  # type: ignore[no-untyped-def]
        if error is None:
            got.append((message.partition(), message.offset(), message.value()))
        else:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": all_of(nodes),
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 2,
            **QUIET,
        }
    )
    for i in range(count):
        producer.produce(TOPIC, f"{tag}-{i}".encode() * 8, partition=i % PARTITIONS, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert not failed, failed[:3]
    for partition, _, value in sorted(got):
        acknowledged.setdefault(partition, []).append(value)


def segment(node: Node, partition: int) -> bytes:
    return (node.data / f"{TOPIC}-{partition}" / f"{0:020d}.log").read_bytes()


@pytest.mark.parametrize(
    "implementations",
    ["qqq", pytest.param("qjq", marks=pytest.mark.java), pytest.param("jqj", marks=pytest.mark.java)],
)
@pytest.mark.timeout(280)
def test_a_leader_dies_and_returns(tmp_path: Path, implementations: str) -> None:
    if "j" in implementations:
        java.require_java()
    with cluster(tmp_path, implementations) as nodes:
        admin = nodes[0].admin()
        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        next(iter(admin.create_topics([topic], operation_timeout=20).values())).result(30)
        wait_for("all replicas to be in sync", lambda: in_sync(nodes[0], {1, 2, 3}))
        written: dict[int, list[bytes]] = {}
        write(nodes, "before", 300, written)

        victim = next(n for n in nodes if n.node_id == partitions(nodes[0])[0].leader)
        others = [n for n in nodes if n is not victim]
        victim.kill()
        wait_for("the others to go on", lambda: in_sync(others[0], {n.node_id for n in others}), 60)
        write(others, "meanwhile", 300, written)

        victim.start()
        wait_for("the victim to be in sync again", lambda: in_sync(others[0], {1, 2, 3}), 60)
        write(nodes, "after", 300, written)
        for partition in range(PARTITIONS):
            assert read_partition(all_of(nodes), TOPIC, partition) == written[partition]
            wait_for(
                f"the logs of partition {partition} to be equal",
                lambda partition=partition: len({segment(n, partition) for n in nodes}) == 1,
                20,
            )


def move(node: Node, partition: int, target: list[int]) -> None:
    """Requests another set of replicas for the partition."""

    async def ask() -> None:
        connection = await Connection.connect("127.0.0.1", node.broker_port, client_id="test")
        Request = AlterPartitionReassignmentsRequest  # noqa: N806
        part = Request.ReassignablePartition(partition_index=partition, replicas=target)
        request = Request(
            timeout_ms=20_000, topics=[Request.ReassignableTopic(name=TOPIC, partitions=[part])]
        )
        answer = await connection.call(request)
        assert answer.error_code == 0, answer
        assert answer.responses[0].partitions[0].error_code == 0, answer
        connection.close()

    asyncio.run(ask())


@pytest.mark.timeout(120)
def test_a_replica_moves_with_its_data(tmp_path: Path) -> None:
    with cluster(tmp_path, "qqq") as nodes:
        admin = nodes[0].admin()
        topic = NewTopic(TOPIC, PARTITIONS, 1)
        next(iter(admin.create_topics([topic], operation_timeout=20).values())).result(30)
        written: dict[int, list[bytes]] = {}
        write(nodes, "before", 300, written)
        old = partitions(nodes[0])[0].leader
        new = old % 3 + 1
        source, target = nodes[old - 1], nodes[new - 1]
        before = segment(source, 0)
        move(nodes[0], 0, [new])
        wait_for(
            "the move to be complete",
            lambda: (
                (p := partitions(nodes[0]).get(0)) is not None
                and (p.replicas, p.isrs, p.leader) == ([new], [new], new)
            ),
        )
        assert segment(target, 0) == before
        wait_for("the old replica to go", lambda: not (source.data / f"{TOPIC}-0").exists())
        write(nodes, "after", 300, written)
        assert read_partition(all_of(nodes), TOPIC, 0) == written[0]
