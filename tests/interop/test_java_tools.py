"""Apache Kafka's own tools and Java clients, unmodified, on our node."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.support import java
from tests.support.cluster import Node, running

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    java.require_java()
    with running(Node(tmp_path_factory.mktemp("tools") / "node")) as n:
        yield n


def tool(node: Node, name: str, *args: object, stdin: str | None = None, controller: bool = False) -> str:
    """Standard output of a tool that must succeed."""
    where = (
        ("--bootstrap-controller", f"127.0.0.1:{node.controller_port}")
        if controller
        else ("--bootstrap-server", node.bootstrap)
    )
    cmd = java.command(f"{TOOLS}.{name}", *where, *args)
    done = subprocess.run(cmd, input=stdin, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, f"{name} {args}\n{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout


def test_topics_records_groups_and_configs_through_kafkas_tools(node: Node) -> None:
    tool(
        node,
        "TopicCommand",
        "--create",
        "--topic",
        "orders",
        "--partitions",
        3,
        "--config",
        "retention.ms=86400000",
    )
    described = tool(node, "TopicCommand", "--describe", "--topic", "orders")
    assert "PartitionCount: 3" in described and "retention.ms=86400000" in described

    sent = "".join(f"k{i}:value-{i}\n" for i in range(50))
    for codec in ("zstd", "lz4"):
        tool(
            node,
            "ConsoleProducer",
            "--topic",
            "orders",
            "--property",
            "parse.key=true",
            "--property",
            "key.separator=:",
            "--compression-codec",
            codec,
            stdin=sent,
        )
    got = tool(
        node,
        "consumer.ConsoleConsumer",
        "--topic",
        "orders",
        "--group",
        "java",
        "--from-beginning",
        "--max-messages",
        100,
        "--property",
        "print.key=true",
        "--property",
        "key.separator=:",
        "--timeout-ms",
        30000,
    )
    assert sorted(line for line in got.splitlines() if line.startswith("k")) == sorted(2 * sent.splitlines())

    groups = tool(node, "consumer.group.ConsumerGroupCommand", "--describe", "--group", "java")
    rows = [line.split() for line in groups.splitlines() if line.startswith("java")]
    assert sum(int(r[3]) for r in rows) == 100 and sum(int(r[5]) for r in rows) == 0
    ends = tool(node, "GetOffsetShell", "--topic", "orders")
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends.splitlines() if line.startswith("orders:")) == 100
    tool(
        node,
        "consumer.group.ConsumerGroupCommand",
        "--reset-offsets",
        "--group",
        "java",
        "--topic",
        "orders",
        "--to-earliest",
        "--execute",
    )
    again = tool(
        node,
        "consumer.ConsoleConsumer",
        "--topic",
        "orders",
        "--group",
        "java",
        "--max-messages",
        100,
        "--timeout-ms",
        30000,
    )
    assert len([line for line in again.splitlines() if line.startswith("value-")]) == 100
    tool(node, "consumer.group.ConsumerGroupCommand", "--delete", "--group", "java")
    assert "java" not in tool(node, "consumer.group.ConsumerGroupCommand", "--list").split()

    tool(node, "TopicCommand", "--alter", "--topic", "orders", "--partitions", 5)
    assert "PartitionCount: 5" in tool(node, "TopicCommand", "--describe", "--topic", "orders")
    tool(node, "TopicCommand", "--delete", "--topic", "orders")
    assert "orders" not in tool(node, "TopicCommand", "--list").split()


def test_the_cluster_through_kafkas_tools(node: Node) -> None:
    assert "Cluster ID: " in java.run(
        f"{TOOLS}.ClusterTool", "cluster-id", "--bootstrap-server", node.bootstrap
    )
    status = tool(node, "MetadataQuorumCommand", "describe", "--status")
    assert (
        "LeaderId:               1" in status and f"CONTROLLER://127.0.0.1:{node.controller_port}" in status
    )
    assert "Leader" in tool(node, "MetadataQuorumCommand", "describe", "--replication", controller=True)
    assert "metadata.version" in tool(node, "FeatureCommand", "describe")
    assert "Fetch(1): 4 to 18" in tool(node, "BrokerApiVersionsCommand")
    dirs = tool(node, "LogDirsCommand", "--describe")
    assert str(node.data) in dirs


@pytest.mark.parametrize("acks", ["1", "all"])
def test_kafkas_performance_tools_run(node: Node, acks: str) -> None:
    topic = f"perf-{acks}"
    tool(node, "TopicCommand", "--create", "--topic", topic, "--partitions", 2)
    out = java.run(
        f"{TOOLS}.ProducerPerformance",
        "--topic",
        topic,
        "--num-records",
        20000,
        "--record-size",
        512,
        "--throughput",
        -1,
        "--producer-props",
        f"bootstrap.servers={node.bootstrap}",
        f"acks={acks}",
        "enable.idempotence=" + str(acks == "all").lower(),
    )
    assert "20000 records sent" in out
    read = java.run(
        f"{TOOLS}.ConsumerPerformance",
        "--bootstrap-server",
        node.bootstrap,
        "--topic",
        topic,
        "--messages",
        20000,
    )
    assert int(read.strip().splitlines()[-1].split(",")[4]) >= 20000
