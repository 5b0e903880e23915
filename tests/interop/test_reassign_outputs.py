"""Our kafka-reassign-partitions and Apache Kafka's, side by side on one cluster of ours: the same text."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic, TopicPartition
from quorate.testing import KafkaCluster
from tests.support import java
from tests.support.cluster import BIN

pytestmark = [pytest.mark.java, pytest.mark.timeout(280)]

MAIN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Partition 0 of `moving` is being moved from broker 2 to broker 3, which does not run."""
    java.require_tools(java.LATEST_VERSION)
    with KafkaCluster(brokers=3) as found:
        with AdminClient(found.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("moving", assignment={0: [1, 2], 1: [2, 1], 2: [1, 2]})])
            found.stop(3)
            admin.alter_partition_reassignments({TopicPartition("moving", 0): [1, 3]})
        yield found


def both(cluster: KafkaCluster, *words: str) -> list[tuple[int, str]]:
    """Status and text of our tool and of Kafka's, which prints its errors on stdout and its log on stderr."""
    where = ["--bootstrap-server", cluster.bootstrap_servers]
    mine, theirs = (
        subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        for command in (
            [str(BIN / "kafka-reassign-partitions"), *where, *words],
            java.command(MAIN, *where, *words, version=java.LATEST_VERSION),
        )
    )
    return [
        (mine.returncode, (mine.stdout + mine.stderr).rstrip()),
        (theirs.returncode, theirs.stdout.rstrip()),
    ]


@pytest.mark.parametrize(
    ("words", "plan"),
    [
        (["--list"], None),
        (["--verify", "--preserve-throttles"], [(0, [1, 3]), (1, [2, 1]), (2, [2, 1])]),
        (["--verify"], [(1, [2, 1])]),
        (["--execute"], [(1, [1, 2])]),
        (["--execute", "--additional"], [(1, [2, 1])]),
        (["--execute", "--additional", "--disallow-replication-factor-change"], [(1, [2])]),
        (["--cancel", "--preserve-throttles"], [(0, [1, 3])]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and isinstance(value[0], str) else "",
)
def test_the_same_text(
    cluster: KafkaCluster, tmp_path: Path, words: list[str], plan: list[tuple[int, list[int]]] | None
) -> None:
    if plan is not None:
        path = tmp_path / "plan.json"
        partitions = [{"topic": "moving", "partition": p, "replicas": replicas} for p, replicas in plan]
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        words = [*words, "--reassignment-json-file", str(path)]
    mine, theirs = both(cluster, *words)
    if (
        "--cancel" in words
    ):  # it is cancelled by the first tool; Kafka's tool ends its last line by no newline
        assert mine == (
            0,
            "Successfully cancelled partition reassignment for: moving-0\n"
            "None of the specified partition moves are active.",
        )
        assert theirs == (
            0,
            "None of the specified partition reassignments are active.\n"
            "None of the specified partition moves are active.",
        )
    else:
        assert mine == theirs


def test_the_same_current_assignment(cluster: KafkaCluster, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_text('{"version": 1, "topics": [{"topic": "moving"}]}')
    mine, theirs = both(
        cluster, "--generate", "--topics-to-move-json-file", str(path), "--broker-list", "1,2"
    )
    shown = [text.splitlines() for _, text in (mine, theirs)]
    assert shown[0][:4] == shown[1][:4]
    proposed = [json.loads(lines[4]) for lines in shown]
    assert [[sorted(p["replicas"]) for p in plan["partitions"]] for plan in proposed] == 2 * [3 * [[1, 2]]]
