"""The waves of `quorate plan` are carried out and verified by Apache Kafka's kafka-reassign-partitions."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic
from quorate.testing import KafkaCluster
from tests.support import java
from tests.support.cluster import BIN, wait_for

pytestmark = [pytest.mark.java, pytest.mark.timeout(280)]

MAIN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=3) as found:
        yield found


def replicas(admin: AdminClient, topic: str) -> dict[int, tuple[int, ...]]:
    return {p.partition: p.replicas for p in admin.describe_topics([topic])[topic].partitions}


@pytest.mark.parametrize("version", java.VERSIONS)
def test_kafkas_tool_executes_and_verifies_each_wave_and_the_rollback(
    cluster: KafkaCluster, version: str, tmp_path: Path
) -> None:
    java.require_tools(version)
    topic, folder = f"t-{version}", tmp_path / "plan"
    before = {0: (1, 2), 1: (1, 2), 2: (1, 2), 3: (2, 1)}

    def kafkas(*words: str) -> str:
        where = ["--bootstrap-server", cluster.bootstrap_servers, "--reassignment-json-file"]
        command = java.command(MAIN, *where, *words, version=version)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def carried_out(file: Path) -> None:
        assert "Successfully started partition reassignment" in kafkas(str(file), "--execute")
        wait_for(f"the end of {file.name}", lambda: not admin.list_partition_reassignments())
        shown = kafkas(str(file), "--verify")
        assert "is completed." in shown
        assert "is still in progress" not in shown and "There is no active" not in shown

    with AdminClient(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, assignment=before)])
        command = [str(BIN / "quorate"), "plan", "--bootstrap-server", cluster.bootstrap_servers]
        command += ["--disk-limit", "100", "--wave-moves", "1", "--out", str(folder)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        waves = sorted(folder.glob("wave-*.json"))
        assert len(waves) > 1
        for wave in waves:
            carried_out(wave)
        held = [b for found in replicas(admin, topic).values() for b in found]
        assert max(held.count(b) for b in (1, 2, 3)) <= 3
        carried_out(folder / "rollback.json")
        assert replicas(admin, topic) == before
        admin.delete_topics([topic])
