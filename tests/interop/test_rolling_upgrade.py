"""A cluster goes from Apache Kafka 4.1 to our nodes, gets the feature levels of 4.4, and goes on to
Apache Kafka 4.4 and back to ours: node by node, on the same directories, without losing anything.
Without the levels of 4.4 it goes back to Apache Kafka 4.1, too."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from quorate.admin.client import AdminClient
from quorate.admin.errors import KafkaError, NetError
from tests.support import java
from tests.support.cluster import BIN, Node, free_ports, wait_for
from tests.support.ledger import CODECS, Ledger

pytestmark = [pytest.mark.java, pytest.mark.timeout(400)]

IDS = (1, 2, 3)
OLD, NEW = java.VERSIONS
LEVELS = {"metadata.version": 33, "share.version": 2, "streams.version": 1, "group.version": 1}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    """Three nodes with both roles."""
    for version in java.VERSIONS:
        java.require_java(version)
    ports = free_ports(6)
    voters = dict(zip(IDS, ports, strict=False))
    made = [
        Node(
            tmp_path / f"n{i}",
            node_id=i,
            impl="java",
            static=True,
            voters=voters,
            controller_port=voters[i],
            broker_port=ports[i + 2],
            extra={"offsets.topic.replication.factor": 3, "min.insync.replicas": 2},
        )
        for i in IDS
    ]
    try:
        yield made
    except BaseException:
        print(*(f"--- {n.node_id} {n.impl}\n{n.log_tail(40)}" for n in made), sep="\n")
        raise
    finally:
        for node in made:
            node.kill()


def bootstrap(nodes: list[Node]) -> str:
    return ",".join(node.bootstrap for node in nodes)


def all_in_sync(nodes: list[Node]) -> None:
    """Until each partition has all its replicas in sync, so that the next node may be stopped."""
    admin = nodes[0].admin()

    def look() -> bool:
        found = admin.list_topics(timeout=10)
        return len(found.brokers) == len(nodes) and all(
            len(partition.isrs) == len(partition.replicas)
            for topic in found.topics.values()
            for partition in topic.partitions.values()
        )

    wait_for("all replicas to be in sync", look, 90, 0.1)


def roll(nodes: list[Node], impl: str, kafka: str, ledger: Ledger) -> None:
    """Restarts one node after the other as another implementation, writing in between."""
    for node in nodes:
        all_in_sync(nodes)
        assert node.stop() in (0, 143)
        node.impl, node.kafka = impl, kafka
        others = [other for other in nodes if other is not node]
        ledger.produce(bootstrap(others), "events", 20, f"{impl} {kafka} {node.node_id}", acks="all")
        node.start(timeout_s=120)
    all_in_sync(nodes)


def levels(node: Node) -> dict[str, int]:
    async def ask() -> dict[str, int]:
        async with AdminClient(node.bootstrap) as admin:
            return dict((await admin.describe_features()).finalized)

    try:
        return asyncio.run(ask())
    except (KafkaError, NetError):
        return {}


def cluster_of_4_1(nodes: list[Node], ledger: Ledger) -> None:
    """Starts Apache Kafka 4.1, with records of all codecs, a configuration and committed offsets."""
    for node in nodes:
        node.format()
    for node in nodes:
        node.start(wait=False)
    for node in nodes:
        node.wait_ready(120)
    admin = nodes[0].admin()
    admin.create_topics([NewTopic("events", 3, 3)], operation_timeout=30)["events"].result()
    ledger.partitions["events"] = 3
    for codec in CODECS:
        ledger.produce(bootstrap(nodes), "events", 30, "first", codec, acks="all")
    ledger.set_config(admin, "events", "retention.ms", "86400000")
    ledger.commit(bootstrap(nodes), "readers", "events", 100)


def test_from_kafka_4_1_through_ours_to_kafka_4_4_and_back_to_ours(nodes: list[Node]) -> None:
    ledger = Ledger(patience_s=20)
    cluster_of_4_1(nodes, ledger)

    roll(nodes, "quorate", OLD, ledger)
    ledger.verify(nodes[0].admin(), bootstrap(nodes))
    assert levels(nodes[0])["metadata.version"] == 27

    words = ["--bootstrap-server", bootstrap(nodes), "upgrade", "--release-version", "4.4"]
    done = subprocess.run(
        [str(BIN / "kafka-features"), *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wait_for("the levels of 4.4", lambda: levels(nodes[1]).items() >= LEVELS.items(), 30, 0.1)
    ledger.produce(bootstrap(nodes), "events", 30, "upgraded", acks="all")

    roll(nodes, "java", NEW, ledger)
    wait_for("the levels of 4.4", lambda: levels(nodes[2]).items() >= LEVELS.items(), 30, 0.1)
    ledger.create(nodes[1].admin(), "later", 2)
    ledger.produce(bootstrap(nodes), "later", 20, "last", acks="all")
    ledger.verify(nodes[2].admin(), bootstrap(nodes))

    roll(nodes, "quorate", NEW, ledger)
    assert levels(nodes[0]).items() >= LEVELS.items()
    ledger.verify(nodes[0].admin(), bootstrap(nodes))


def test_back_to_kafka_4_1_from_kafka_4_4_and_from_ours(nodes: list[Node]) -> None:
    """At the levels of 4.1, which each of the three understands."""
    ledger = Ledger(patience_s=20)
    cluster_of_4_1(nodes, ledger)
    for impl, kafka in (("java", NEW), ("quorate", NEW), ("java", OLD), ("quorate", OLD), ("java", NEW)):
        roll(nodes, impl, kafka, ledger)
        assert levels(nodes[0])["metadata.version"] == 27
    ledger.create(nodes[1].admin(), "later", 2)
    ledger.produce(bootstrap(nodes), "later", 20, "last", acks="all")
    ledger.verify(nodes[2].admin(), bootstrap(nodes))
