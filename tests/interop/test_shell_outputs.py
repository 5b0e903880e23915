"""Our kafka-metadata-shell and Apache Kafka's on the same files: the same text."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic
from tests.support import java
from tests.support.cluster import BIN, Node, running

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

MAIN = "org.apache.kafka.shell.MetadataShell"


@pytest.fixture(scope="module", params=["quorate", "java"])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The metadata log of a node that has ended, as a segment."""
    java.require_tools(java.LATEST_VERSION)
    base = tmp_path_factory.mktemp(f"shell-{request.param}") / "node"
    node = Node(base, impl=request.param, kafka=java.LATEST_VERSION, release="4.3")
    with running(node):
        with AdminClient(node.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", 2, configs={"retention.ms": "77"}), NewTopic("other")])
            admin.alter_scram(upserts=[("ann", 1, 4096, b"salt" * 8, b"p" * 32)])
            admin.delete_topics(["other"])
        node.stop()
    yield node.data / "__cluster_metadata-0" / "00000000000000000000.log"


def ours(path: Path, *words: str) -> str:
    command = [str(BIN / "kafka-metadata-shell"), "--snapshot", str(path), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["tree", "/image"],
        ["find", "/image"],
        ["ls", "/image/topics", "/image/cluster/brokers"],
        [
            "cat",
            "/image/topics/byName/or*/?",
            "/image/topics/byName/*/{0,name}",
            "/image/nowhere",
            "/image",
        ],
    ],
    ids=lambda words: words[0],
)
def test_the_same_text(log: Path, words: list[str]) -> None:
    theirs = java.run(MAIN, "--snapshot", log, *words, version=java.LATEST_VERSION)
    assert without_start_times(ours(log, *words)).splitlines() == theirs.splitlines()


def without_start_times(text: str) -> str:
    """Kafka's registrations of brokers have no start time (KIP-536)."""
    lines = [line.partition(", startTimeMs=") for line in text.splitlines()]
    return "\n".join(before + (")" if found else "") for before, found, _ in lines)
