"""`quorate plan` on a cluster of six brokers in three racks."""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.admin import sync
from quorate.admin.types import LogDirDescription, NewTopic, ReplicaSize, TopicPartition
from quorate.protocol.config_resource import ConfigResourceType
from quorate.testing import KafkaCluster
from quorate.tools.plan import execute
from quorate.tools.plan.log_dirs import capacity_of
from quorate.tools.plan.options import size
from tests.support import java
from tests.support.cluster import BIN, Node, running, wait_for
from tests.support.numbered_load import NumberedLoad
from tests.tools.shell import Shell

TOOL = "quorate"
RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
BROKERS = sorted(RACKS)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Node 1 is the controller and a broker. Nodes 2 to 6 are brokers."""
    with KafkaCluster(brokers=6) as found:
        found.stop()
        for broker, rack in RACKS.items():
            with found.properties_file(broker).open("a") as properties:
                properties.write(f"\nbroker.rack={rack}\n")
        found.start()
        yield found


@pytest.fixture(scope="module")
def admin(cluster: KafkaCluster) -> Iterator[sync.AdminClient]:
    with sync.AdminClient(cluster.bootstrap_servers) as client:
        yield client


@pytest.fixture
def sh(
    cluster: KafkaCluster, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    return Shell(cluster, capfdbinary, monkeypatch)


@pytest.fixture
def topic(admin: sync.AdminClient, request: pytest.FixtureRequest) -> Iterator[str]:
    """Twelve partitions, all of them on the brokers 1 to 3 and led by broker 1."""
    name = f"t-{request.node.originalname}"
    assert admin.create_topics([NewTopic(name, assignment={p: [1, 2, 3] for p in range(12)})]) == {name: None}
    yield name
    assert admin.delete_topics([name]) == {name: None}


def planned(sh: Shell, *args: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sh(TOOL, "plan", "--disk-limit", 100, "--json", *args))
    return found


def assignment(admin: sync.AdminClient, topic: str) -> dict[int, tuple[int, tuple[int, ...]]]:
    """The leader and the replicas of each partition."""
    return {p.partition: (p.leader, p.replicas) for p in admin.describe_topics([topic])[topic].partitions}


def counts(admin: sync.AdminClient, topic: str) -> dict[int, int]:
    found = [b for _, replicas in assignment(admin, topic).values() for b in replicas]
    return {b: found.count(b) for b in BROKERS}


def process(servers: str, *args: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [BIN / "quorate", "plan", "--bootstrap-server", servers, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until(tool: subprocess.Popen[str], text: str) -> str:
    """Reads lines up to the one that contains a text."""
    assert tool.stdout is not None
    seen = ""
    for line in tool.stdout:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"ended without {text!r}:\n{seen}")


def produce(sh: Shell, topic: str, records: int) -> None:
    load = NumberedLoad(sh.servers, topic, 12, per_s=5000)
    wait_for("records", lambda: load.acknowledged > records)
    load.pause()
    load.stop()


def throttles(admin: sync.AdminClient, topic: str) -> list[str]:
    resources = [(ConfigResourceType.TOPIC, topic), *((ConfigResourceType.BROKER, str(b)) for b in BROKERS)]
    found = admin.describe_configs(resources)
    return [
        entry.name
        for entries in found.values()
        if isinstance(entries, list)
        for entry in entries
        if "throttled" in entry.name and "DYNAMIC" in entry.source.name and entry.value
    ]


def test_a_plan_for_balance_is_carried_out_under_load(
    sh: Shell, admin: sync.AdminClient, topic: str, tmp_path: Path
) -> None:
    load = NumberedLoad(sh.servers, topic, 12, per_s=2000)
    wait_for("records", lambda: load.acknowledged > 4000)
    folder = tmp_path / "plan"
    shown = sh(TOOL, "plan", "--disk-limit", 100, "--wave-moves", 4, "--out", folder)
    waves = sorted(folder.glob("wave-*.json"))
    assert len(waves) > 2
    assert "racks (hard)     holds   holds" in shown
    assert f"--execute {folder}" in shown
    assert counts(admin, topic) == {1: 12, 2: 12, 3: 12, 4: 0, 5: 0, 6: 0}, "a plan changes nothing"
    done = sh(TOOL, "plan", "--execute", folder, "--throttle", 5_000_000, "--interval", 0.2)
    assert "The inter-broker throttle limit was set to 5000000 B/s" in done
    assert f"Wave {len(waves)} of {len(waves)}: completed" in done
    assert done.splitlines()[-1].startswith("Verified: ")
    assert counts(admin, topic) == dict.fromkeys(BROKERS, 6)
    found = assignment(admin, topic)
    assert [leader for leader, _ in found.values()] == [replicas[0] for _, replicas in found.values()]
    assert sorted(leader for leader, _ in found.values()) == sorted([*BROKERS, *BROKERS])
    assert all({RACKS[b] for b in replicas} == {"a", "b", "c"} for _, replicas in found.values())
    wait_for("the removal of throttles", lambda: not throttles(admin, topic))
    load.pause()
    load.stop()
    ends = admin.list_offsets({TopicPartition(topic, p): -1 for p in range(12)})
    assert sum(end.offset for end in ends.values() if not isinstance(end, Exception)) == load.acknowledged
    assert planned(sh)["changedPartitions"] == 0, "a balanced cluster stays as it is"
    again = sh(TOOL, "plan", "--execute", folder)
    assert "Wave 1 of" in again and "was completed already" in again


def test_a_plan_is_written_as_reassignments_of_kafka(sh: Shell, topic: str, tmp_path: Path) -> None:
    shown = planned(sh, "--drain", 1, "--out", tmp_path / "plan")
    waves = [json.loads(path.read_text()) for path in sorted((tmp_path / "plan").glob("wave-*.json"))]
    entries = [entry for wave in waves for entry in wave["partitions"]]
    assert {entry["topic"] for entry in entries} == {topic}
    assert {frozenset(entry["replicas"]) for entry in entries} == {frozenset({4, 2, 3})}
    assert all(wave["version"] == 1 for wave in waves)
    assert shown["replicasToMove"] == 12
    back = json.loads((tmp_path / "plan" / "rollback.json").read_text())
    assert [entry["replicas"] for entry in back["partitions"]] == [[1, 2, 3]] * 12
    broker = next(entry for entry in shown["brokers"] if entry["broker"] == 1)
    assert (broker["state"], broker["before"]["replicas"], broker["after"]["replicas"]) == ("draining", 12, 0)


def test_an_execution_is_paused_interrupted_and_resumed(
    sh: Shell, admin: sync.AdminClient, topic: str, tmp_path: Path
) -> None:
    """Broker 4 does not run, so that the first wave cannot complete before it is started."""
    folder = tmp_path / "plan"
    planned(sh, "--drain", 1, "--wave-moves", 6, "--out", folder)
    sh.cluster.kill(4)
    tool = process(sh.servers, "--execute", folder, "--interval", 0.2)
    read_until(tool, "waiting for broker 4, which is not available")
    tool.send_signal(signal.SIGINT)
    assert tool.wait(30) == 130
    assert len(admin.list_partition_reassignments()) == 6
    tool = process(sh.servers, "--execute", folder, "--interval", 0.2)
    assert "Wave 1 of 2: started 0 partitions, 6 were under way" in read_until(tool, "Wave 1 of 2: started")
    sh(TOOL, "plan", "--pause", folder)
    sh.cluster.start(4)
    assert "Wave 1 of 2: completed" in read_until(
        tool, "Paused before wave 2 of 2. To continue: quorate plan"
    )
    assert tool.wait(30) == 0
    assert counts(admin, topic)[4] == 6
    assert sh(TOOL, "plan", "--execute", folder).splitlines()[-1] == (
        "Verified: 12 partitions with the planned replicas, 12 led by the preferred one"
    )
    assert counts(admin, topic) == {1: 0, 2: 12, 3: 12, 4: 12, 5: 0, 6: 0}


def test_an_execution_that_is_killed_at_any_point_is_resumed(
    sh: Shell, admin: sync.AdminClient, topic: str, tmp_path: Path
) -> None:
    """It is killed by SIGKILL shortly after each line that it prints for the first time."""
    folder, rng = tmp_path / "plan", random.Random(3)
    load = NumberedLoad(sh.servers, topic, 12, per_s=2000)
    wait_for("records", lambda: load.acknowledged > 4000)
    planned(sh, "--drain", 1, "--add", "5,6", "--wave-moves", 3, "--out", folder)
    waves = len(list(folder.glob("wave-*.json")))
    assert waves >= 4
    words = ("--execute", folder, "--throttle", 5_000_000, "--interval", 0.2)
    seen: set[str] = set()
    kills = 0
    while kills < 10:
        tool = process(sh.servers, *words)
        assert tool.stdout is not None
        for line in tool.stdout:
            step = line.partition(",")[0].rstrip()
            if step not in seen and "left" not in line:
                seen.add(step)
                time.sleep(rng.uniform(0, 0.1))  # so that the step is interrupted at different points
                tool.kill()
                kills += 1
                break
        else:
            break
        tool.communicate()
    assert kills >= 8
    assert sh(TOOL, "plan", *words).splitlines()[-1].startswith("Verified: 12 partitions")
    assert not admin.list_partition_reassignments()
    wait_for("the removal of throttles", lambda: not throttles(admin, topic))
    assert counts(admin, topic)[1] == 0
    assert all(leader == replicas[0] for leader, replicas in assignment(admin, topic).values())
    load.pause()
    load.stop()
    ends = admin.list_offsets({TopicPartition(topic, p): -1 for p in range(12)})
    assert sum(end.offset for end in ends.values() if not isinstance(end, Exception)) == load.acknowledged


def test_a_plan_is_cancelled(sh: Shell, admin: sync.AdminClient, topic: str, tmp_path: Path) -> None:
    """All moves go to broker 4, which does not run."""
    folder = tmp_path / "plan"
    planned(sh, "--drain", 1, "--out", folder)
    sh.cluster.kill(4)
    try:
        tool = process(sh.servers, "--execute", folder)
        read_until(tool, "Wave 1 of 1: started 12 partitions")
        wait_for("broker 4 is fenced", lambda: 4 not in {n.id for n in admin.describe_cluster().nodes})
        assert sh.refused(TOOL, "plan").startswith("Partitions in a reassignment: 12, among them")
        shown = sh(TOOL, "plan", "--cancel", folder).splitlines()
        assert shown[0] == "Cancelled the moves of 12 partitions"
        read_until(tool, "Wave 1 of 1 was changed or cancelled by others")
        assert tool.wait(30) == 1
    finally:
        sh.cluster.start(4)
    assert counts(admin, topic) == {1: 12, 2: 12, 3: 12, 4: 0, 5: 0, 6: 0}


def test_partitions_that_others_have_moved_since_are_left_alone(
    sh: Shell, admin: sync.AdminClient, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "SETTLE_S", 1.0)
    folder = tmp_path / "plan"
    planned(sh, "--drain", 1, "--out", folder)
    admin.alter_partition_reassignments({TopicPartition(topic, 5): [2, 3]})
    wait_for("the end of the reassignment", lambda: not admin.list_partition_reassignments())
    refused = sh.refused(TOOL, "plan", "--execute", folder)
    assert refused == (
        f"{topic}-5 has the replicas 2,3, but the plan expects 1,2,3 and is to give it "
        f"{','.join(map(str, wave_target(folder, 5)))}. Make a new plan."
    )
    assert counts(admin, topic)[1] == 11


def wave_target(folder: Path, partition: int) -> list[int]:
    (found,) = [
        entry["replicas"]
        for path in folder.glob("wave-*.json")
        for entry in json.loads(path.read_text())["partitions"]
        if entry["partition"] == partition
    ]
    return list(found)


def test_a_replication_factor_is_changed_for_topics_of_a_pattern(
    sh: Shell, admin: sync.AdminClient, topic: str, tmp_path: Path
) -> None:
    sh(TOOL, "plan", "--replication-factor", 2, "--topic", "t-test_a_repl.*", "--out", tmp_path / "plan")
    sh(TOOL, "plan", "--execute", tmp_path / "plan")
    assert {len(replicas) for _, replicas in assignment(admin, topic).values()} == {2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--drain", "9"], "No plan: there is no broker 9; the brokers are 1, 2, 3, 4, 5, 6"),
        (["--drain-rack", "x"], "There is no rack x. The racks are: a, b, c"),
        (["--replication-factor", "2"], "--replication-factor and --topic belong together"),
        (["--replication-factor", "2", "--topic", "none"], "No topic has a name like none"),
        (["--replication-factor", "7", "--topic", "t-.*"], "No plan: partition"),
        (
            ["--execute", "/", "--balance"],
            "--execute, --pause and --cancel take an existing plan and no purpose",
        ),
        (["--execute", "/nowhere"], "/nowhere is not the folder of a plan: No such file or directory"),
        (["--out", "/proc"], "/proc exists and is not an empty folder"),
    ],
)
def test_wrong_options_are_refused_in_one_line(
    sh: Shell, topic: str, options: list[str], message: str
) -> None:
    assert sh.refused(TOOL, "plan", *options).startswith(message)


def test_a_plan_for_another_cluster_is_refused(sh: Shell, topic: str, tmp_path: Path) -> None:
    planned(sh, "--drain", 1, "--out", tmp_path)
    path = tmp_path / "plan.json"
    path.write_text(path.read_text().replace(sh.cluster.cluster_id, "5L6g3nShT-eMCtK--X86sw"))
    assert sh.refused(TOOL, "plan", "--execute", tmp_path).startswith(
        f"{tmp_path} is a plan for the cluster 5L6g3nShT-eMCtK--X86sw, but this one is "
    )


def test_disks_that_are_too_full_get_no_replica(sh: Shell, topic: str) -> None:
    produce(sh, topic, 100)
    refused = sh.refused(TOOL, "plan", "--drain", 1, "--disk-limit", 0)
    assert refused.startswith("No plan: no broker that could have a replica of partition t-")


@pytest.mark.java
@pytest.mark.timeout(900)
def test_a_cluster_of_apache_kafka_is_planned_and_executed(tmp_path: Path) -> None:
    first = Node(tmp_path / "1", 1, impl="java", kafka=java.LATEST_VERSION)
    others = [
        Node(tmp_path / str(b), b, "broker", "java", voters=first.voters, kafka=java.LATEST_VERSION)
        for b in (2, 3)
    ]
    folder = tmp_path / "plan"
    slow = {"timeout_s": 240}
    with (
        running(first, **slow),
        running(others[0], **slow),
        running(others[1], **slow),
        sync.AdminClient(first.bootstrap) as admin,
    ):
        wait_for("three brokers", lambda: len(admin.describe_cluster().nodes) == 3)
        admin.create_topics([NewTopic("t", assignment={p: [1, 2] for p in range(6)})])
        load = NumberedLoad(first.bootstrap, "t", 6)
        wait_for("records", lambda: load.acknowledged > 500)
        made = process(first.bootstrap, "--disk-limit", 100, "--wave-moves", 3, "--out", folder)
        assert made.wait(60) == 0
        tool = process(first.bootstrap, "--execute", folder, "--throttle", 5_000_000)
        verified = read_until(tool, "Verified").splitlines()[-1]
        assert re.fullmatch(r"Verified: (\d) partitions .* replicas, \1 led by the preferred one", verified)
        assert tool.wait(30) == 0
        load.pause()
        load.stop()
        found = assignment(admin, "t")
        assert sorted(leader for leader, _ in found.values()) == [1, 1, 2, 2, 3, 3]
        replicas = [b for _, partition in found.values() for b in partition]
        assert [replicas.count(b) for b in (1, 2, 3)] == [4, 4, 4]
        ends = admin.list_offsets({TopicPartition("t", p): -1 for p in range(6)})
        assert sum(end.offset for end in ends.values() if not isinstance(end, Exception)) == load.acknowledged


def directory(total: int, usable: int, *sizes: int, error: str | None = None) -> LogDirDescription:
    replicas = {TopicPartition("t", p): ReplicaSize(size, 0, False) for p, size in enumerate(sizes)}
    return LogDirDescription("/d", error, total, usable, replicas)


@pytest.mark.parametrize(
    ("directories", "limit", "capacity"),
    [
        ([directory(1000, 600, 100)], 1.0, 700),
        ([directory(1000, 600, 100)], 0.8, 500),
        ([directory(1000, 600, 100), directory(1000, 600, 50)], 0.8, 550),
        ([directory(1000, 600, 100), directory(500, 500)], 0.8, 900),
        ([directory(1000, 100, 50)], 0.8, 0),
        ([directory(1000, 600, 100), directory(0, 0, error="KAFKA_STORAGE_ERROR")], 0.8, 500),
        ([directory(-1, -1, 100)], 0.8, None),
        ([], 0.8, None),
    ],
    ids=["all", "80 %", "one volume", "two volumes", "over it", "one is offline", "unknown", "none"],
)
def test_the_capacity_of_a_broker(
    directories: list[LogDirDescription], limit: float, capacity: int | None
) -> None:
    assert capacity_of(directories, limit) == capacity


@pytest.mark.parametrize(("text", "value"), [("5", 5), ("2K", 2048), ("50g", 50 << 30), ("1GiB", 1 << 30)])
def test_a_number_of_bytes(text: str, value: int) -> None:
    assert size(text) == value


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5G", "5X"])
def test_a_wrong_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expects a number of bytes, such as 500M or 50G"):
        size(text)
