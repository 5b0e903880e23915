"""Metadata transactions in a quorum with Apache Kafka's controllers and brokers (KIP-868)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support import java
from tests.support.cluster import Node
from tests.support.metadata_disk import FOLDER
from tests.support.mixed import MixedQuorum
from tests.support.transactions import LIMIT, create, kill_within, markers

pytestmark = [pytest.mark.java, pytest.mark.timeout(400)]

COMPLETE, UNFINISHED = 10_500, 40_000
PATIENCE_S = 120.0
PATIENT = {"controller.quorum.fetch.timeout.ms": 8_000, "controller.quorum.request.timeout.ms": 8_000}
"""On a busy machine no follower may take a slow leader for dead."""


def partition_counts(node: Node) -> dict[str, int]:
    """The topics that a broker shows."""
    topics = node.admin().list_topics(timeout=20).topics
    return {name: len(topic.partitions) for name, topic in topics.items()}


def test_a_java_controller_follows_a_transaction_and_aborts_that_of_a_killed_leader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker of Apache Kafka that reads the aborted records and later ones at once may show the aborted
    ones (`MetadataBatchLoader`); whether it reads them at once depends on how much of the transaction was
    written. Therefore the limit of a request is Kafka's unless it is configured."""
    quorum = MixedQuorum(
        tmp_path, "qjj", brokers_of="qj", extra={**LIMIT, **PATIENT}, kafka=java.LATEST_VERSION
    )
    quorum.format()
    late = quorum.brokers.pop()
    with quorum.killed_at_the_end():
        try:
            quorum.start(PATIENCE_S)
            quorum.whole(PATIENCE_S)
            led = quorum.lead("quorate")
            asyncio.run(create(led, "complete", COMPLETE))
            asyncio.run(kill_within(led, quorum.controller(2).data / FOLDER, "unfinished", UNFINISHED))
            assert quorum.leader().impl == "java"
            quorum.create("after", PATIENCE_S)
            assert partition_counts(quorum.broker).items() >= {("complete", COMPLETE), ("after", 1)}
            assert "unfinished" not in partition_counts(quorum.broker)
            led.start(wait=False)
            late.start(wait=False)
            late.wait_ready(PATIENCE_S)
            quorum.whole(PATIENCE_S)
            shown = partition_counts(late)
            assert shown.items() >= {("complete", COMPLETE), ("after", 1)}
        finally:
            late.kill()
    quorum.disks_agree(["complete", "after"])
    capsys.readouterr()
    quorum.dumps_agree(lambda: capsys.readouterr().out)
    log = max((quorum.controller(2).data / FOLDER).glob("*.log"))
    printed = java.run(
        "kafka.tools.DumpLogSegments",
        "--cluster-metadata-decoder",
        "--files",
        str(log),
        version=java.LATEST_VERSION,
    )
    found = markers(printed)[2:]
    begin, end, abort = (f"{kind}_TRANSACTION_RECORD" for kind in ("BEGIN", "END", "ABORT"))
    assert found == [begin, end, begin, abort]
