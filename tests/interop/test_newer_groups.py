"""Groups of the newer protocol (KIP-848) that Apache Kafka has created are kept and readable here, and work
again under Kafka."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from quorate.admin.errors import ErrorCode, KafkaError
from quorate.admin.sync import AdminClient
from quorate.admin.types import OffsetAndMetadata, TopicPartition
from tests.support import java
from tests.support.cluster import BIN, Node, running

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def consume(node: Node, group: str, count: int) -> str:
    """Reads through Kafka's console consumer, with the newer protocol."""
    return java.run(
        CONSUMER, "--bootstrap-server", node.bootstrap, "--topic", "t", "--group", group, "--max-messages", count,
        "--from-beginning", "--consumer-property", "group.protocol=consumer",
        "--consumer-property", "auto.commit.interval.ms=100",
    )  # fmt: skip


def stop(node: Node) -> None:
    assert node.stop() in ((0,) if node.impl == "quorate" else (0, 143)), (
        "Java says that it ended by a signal"
    )


def test_a_group_of_the_newer_protocol_is_kept(tmp_path: Path) -> None:
    java.require_java()
    node = Node(tmp_path / "node", impl="java")
    with running(node):
        produce = [str(BIN / "kafka-console-producer"), "--bootstrap-server", node.bootstrap, "--topic", "t"]
        subprocess.run(produce, input="".join(f"{i}\n" for i in range(20)), text=True, check=True, timeout=60)
        assert consume(node, "left", 5) == "0\n1\n2\n3\n4\n"
        command = java.command(
            CONSUMER, "--bootstrap-server", node.bootstrap, "--topic", "t", "--group", "live", "--from-beginning",
            "--consumer-property", "group.protocol=consumer", "--consumer-property", "auto.commit.interval.ms=100",
        )  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as live:
            assert live.stdout is not None
            for _ in range(20):
                assert live.stdout.readline()
            node.kill()
            live.kill()

        node.impl = "quorate"
        node.start()
        with AdminClient(node.bootstrap) as admin:
            listed = {g.group_id: (g.group_type, g.state) for g in admin.list_groups()}
            assert listed["live"] == ("consumer", "Stable")
            assert listed["left"] == ("consumer", "Empty")
            committed = admin.list_group_offsets("left")[TopicPartition("t", 0)]
            assert isinstance(committed, OffsetAndMetadata) and committed.offset == 5
            refused = admin.delete_groups(["live"])["live"]
            assert refused is not None and refused.code is ErrorCode.NON_EMPTY_GROUP
            denied = admin.alter_group_offsets("live", {TopicPartition("t", 0): OffsetAndMetadata(1)})[
                TopicPartition("t", 0)
            ]
            assert isinstance(denied, KafkaError)
            # Without members its offsets may be moved, as Kafka lets them be.
            assert admin.alter_group_offsets("left", {TopicPartition("t", 0): OffsetAndMetadata(7)}) == {
                TopicPartition("t", 0): None
            }
        stop(node)

        node.impl = "java"
        node.start()
        assert consume(node, "left", 3) == "7\n8\n9\n"
        with AdminClient(node.bootstrap) as admin:
            assert {g.group_id for g in admin.list_groups(types=["consumer"])} == {"left", "live"}
        stop(node)


def test_a_classic_member_takes_over_an_empty_group_of_the_newer_protocol(tmp_path: Path) -> None:
    java.require_java()
    node = Node(tmp_path / "node", impl="java")
    with running(node):
        produce = [str(BIN / "kafka-console-producer"), "--bootstrap-server", node.bootstrap, "--topic", "t"]
        subprocess.run(produce, input="".join(f"{i}\n" for i in range(20)), text=True, check=True, timeout=60)
        assert consume(node, "g", 5) == "0\n1\n2\n3\n4\n"
        stop(node)
        node.impl = "quorate"
        node.start()
        command = [
            str(BIN / "kafka-console-consumer"),
            "--bootstrap-server",
            node.bootstrap,
            "--topic",
            "t",
            "--group",
            "g",
        ]
        done = subprocess.run(
            [*command, "--max-messages", "2"], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout == "5\n6\n"
        with AdminClient(node.bootstrap) as admin:
            assert [(g.group_id, g.group_type) for g in admin.list_groups()] == [("g", "classic")]
        stop(node)
        node.impl = "java"
        node.start()
        done = subprocess.run(
            [*command, "--max-messages", "2"], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout == "7\n8\n"
        with AdminClient(node.bootstrap) as admin:
            assert [(g.group_id, g.group_type) for g in admin.list_groups()] == [("g", "classic")]
        stop(node)
