"""Nodes of Apache Kafka skip the records that say who made a change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quorate.tools.quorate import main
from tests.support import java
from tests.support.mixed import MixedQuorum

pytestmark = [pytest.mark.java, pytest.mark.timeout(400)]

PATIENCE_S = 150.0
PATIENT = {"controller.quorum.fetch.timeout.ms": 8_000, "controller.quorum.request.timeout.ms": 8_000}
"""On a busy machine no follower may take a slow leader for dead."""


def test_a_controller_of_kafka_follows_and_leads_after_changes_with_authors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka's dump tool prints all records, with these as NoOpRecords.

    The changes that Kafka's controller makes as the leader have no author.
    """
    quorum = MixedQuorum(tmp_path, "qjq", extra=dict(PATIENT), kafka=java.LATEST_VERSION)
    quorum.format()
    with quorum.killed_at_the_end():
        quorum.start(PATIENCE_S)
        quorum.whole(PATIENCE_S)
        quorum.lead("quorate")
        quorum.create("by-quorate", PATIENCE_S)
        quorum.whole(PATIENCE_S)
        quorum.lead("java")
        quorum.create("by-java", PATIENCE_S)
        quorum.whole(PATIENCE_S)
    quorum.disks_agree(["by-quorate", "by-java"])
    quorum.dumps_agree(lambda: capsys.readouterr().out)
    authors = {}
    for name in ("by-quorate", "by-java"):
        capsys.readouterr()
        assert main(["metadata", "log", name, "--directory", str(quorum.controller(2).data), "--json"]) == 0
        created = json.loads(capsys.readouterr().out.splitlines()[0])
        assert created["topics"] == [name]
        authors[name] = (created["api"], created["principal"], created["address"], bool(created["clientId"]))
    assert authors == {
        "by-quorate": ("CREATE_TOPICS", "User:ANONYMOUS", "127.0.0.1", True),
        "by-java": (None, None, None, False),
    }
