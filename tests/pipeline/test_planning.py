"""A plan from the tables of a lake equals the one from the running cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.admin.client import AdminClient
from quorate.admin.types import NewTopic
from quorate.metadata import records as r
from quorate.pipeline.lake_source import open_source
from quorate.pipeline.planning import planned_cluster
from quorate.pipeline.tables.update import update
from quorate.planner.cluster import Cluster
from quorate.planner.sizes import ReplicaSizes
from quorate.testing import KafkaCluster
from quorate.tools import quorate
from quorate.tools.cluster import log_dirs
from quorate.tools.plan.collect import collect
from tests.pipeline.conftest import LEVEL, ORDERS, partition, topic, write_log

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


async def running(servers: str) -> Cluster:
    """Creates topics, and collects the partitions and brokers of the cluster."""
    async with AdminClient(servers) as admin:
        await admin.create_topics(
            [
                NewTopic("planned-b", assignment={0: [2, 1], 1: [1, 2], 2: [2, 1]}),
                NewTopic("planned-a", assignment={0: [2], 1: [2], 2: [2]}),
            ]
        )
        return await collect(admin, 1.0)


def apply(lake: Lake, source: Path, name: str | None = None) -> None:
    update(lake, open_source(str(source)), name, report=lambda _: None)


@pytest.fixture(scope="module")
def filled(lakes: Callable[[], Lake], brokers: KafkaCluster) -> tuple[Lake, Cluster]:
    """A lake with the cluster `c` as it is, and the cluster that the brokers give."""
    found, lake = asyncio.run(running(brokers.bootstrap_servers)), lakes()
    apply(lake, brokers.data_directory(1), "c")
    return lake, found


def test_the_lake_gives_the_cluster_that_the_brokers_give(filled: tuple[Lake, Cluster]) -> None:
    lake, expected = filled
    sizes = ReplicaSizes()
    partitions = zip(expected.topic_of, expected.index_of, expected.sizes, strict=True)
    for name, index, size in partitions:
        sizes.add(expected.topics[name], index, 1, size)
    capacities = {broker.id: broker.capacity for broker in expected.brokers}
    found = planned_cluster(lake, "c", sizes=sizes, capacities=capacities)
    assert vars(found) == vars(expected)
    assert planned_cluster(lake, "c").sizes.tolist() == [0] * len(expected)


def plan(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> tuple[str, str]:
    """Runs `quorate plan`. Returns what it prints on stdout and stderr."""
    capsys.readouterr()
    assert quorate.main(["plan", *map(str, words)]) == status
    return capsys.readouterr()


def files(folder: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in sorted(folder.iterdir())}


def test_the_command_makes_the_plan_of_the_running_cluster(
    filled: tuple[Lake, Cluster], brokers: KafkaCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, _ = filled
    servers = brokers.bootstrap_servers
    wanted = ["--disk-limit", "100", "--wave-moves", "1"]
    plan(capsys, "--bootstrap-server", servers, *wanted, "--out", tmp_path / "running")
    expected = files(tmp_path / "running")
    assert expected["plan.json"]["summary"]["replicasToMove"] > 0

    out, err = plan(
        capsys, "--lake", lake.folder, "--bootstrap-server", servers, *wanted, "--out", tmp_path / "asked"
    )
    assert files(tmp_path / "asked") == expected
    assert out.startswith("Cluster c at offset ")
    assert err == ""

    log_dirs.main(["--describe", "--bootstrap-server", servers])
    (tmp_path / "sizes").write_text(capsys.readouterr().out)
    words = ["--lake", lake.folder, "--cluster", "c", "--log-dirs", tmp_path / "sizes", *wanted]
    out, err = plan(capsys, *words, "--out", tmp_path / "file")
    assert files(tmp_path / "file") == expected
    assert f"quorate plan --bootstrap-server HOST:PORT --execute {tmp_path / 'file'}" in out
    assert err == "Note: kafka-log-dirs does not tell how full disks are, so --disk-limit has no effect.\n"

    out, err = plan(capsys, "--lake", lake.folder, "--json")
    assert json.loads(out)["clusterId"] == brokers.cluster_id
    assert "the tables have no bytes" in err


def test_a_plan_is_made_for_the_cluster_as_it_was(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reassignment is under way between the times 4 and 6.

    No lake knows the id of a log without its folder.
    """
    change = {"adding_replicas": [2], "replicas": [1, 2], "removing_replicas": [1]}
    write_log(
        tmp_path,
        0,
        [
            [LEVEL],
            [r.RegisterBrokerRecord(broker_id=b, fenced=False) for b in (1, 2)],
            [topic("orders", ORDERS), partition(ORDERS, replicas=[1], isr=[1])],
            [partition_change(**change)],
            [partition_change(replicas=[2], isr=[2], leader=2, adding_replicas=[], removing_replicas=[])],
        ],
    )
    apply(lake, tmp_path, "c")
    out, _ = plan(capsys, "--lake", lake.folder, "--drain", 1, "--json", "--at", 4)
    assert (json.loads(out)["offset"], json.loads(out)["replicasToMove"]) == (4, 1)
    out, _ = plan(capsys, "--lake", lake.folder, "--drain", 1)
    assert out.splitlines()[2] == "Nothing to change: 1 partitions"
    _, err = plan(capsys, "--lake", lake.folder, "--at", "1970-01-01T00:00:05", status=1)
    assert err.startswith(
        "Error: partitions in a reassignment at offset 5 of cluster c: 1, among them orders-0."
    )
    _, err = plan(capsys, "--lake", lake.folder, "--at", 99, status=1)
    assert err == "Error: offset 99 of cluster c is not applied yet: the last is 6\n"
    _, err = plan(capsys, "--lake", lake.folder, "--out", tmp_path / "plan", status=1)
    assert "The lake does not know the id of cluster c" in err


def partition_change(**changes: object) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(partition_id=0, topic_id=ORDERS, **changes)  # type: ignore[arg-type]


def test_wrong_options_are_refused(
    filled: tuple[Lake, Cluster], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, _ = filled
    (tmp_path / "wrong").write_text('{"brokers": [{"broker": 1}]}\n')
    for words, message in (
        (["--at", 3], "--cluster, --at and --log-dirs belong to --lake"),
        (["--lake", tmp_path], f"Error: {tmp_path} is not a lake: quorate-pipeline run"),
        (["--lake", lake.folder, "--cluster", "d"], "Error: choose a cluster with --cluster: c"),
        (["--lake", lake.folder, "--at", "noon"], "Error: noon is neither an offset nor a time"),
        (["--lake", lake.folder, "--log-dirs", tmp_path / "none"], "Cannot read "),
        (
            ["--lake", lake.folder, "--log-dirs", tmp_path / "wrong"],
            f"{tmp_path / 'wrong'} is not the output of kafka-log-dirs --describe",
        ),
        (
            ["--lake", lake.folder, "--log-dirs", "x", "-b", "localhost:1"],
            "Only one of --log-dirs and --bootstrap-server may tell the bytes of replicas",
        ),
        (["--lake", lake.folder, "--execute", "x"], "--execute, --pause and --cancel take an existing plan"),
    ):
        _, err = plan(capsys, *words, status=1)
        assert err.startswith(message), words


def test_brokers_of_another_cluster_are_refused(
    filled: tuple[Lake, Cluster], capsys: pytest.CaptureFixture[str]
) -> None:
    lake, _ = filled
    with KafkaCluster(brokers=1) as other:
        _, err = plan(capsys, "--lake", lake.folder, "-b", other.bootstrap_servers, status=1)
        assert f"but the brokers at {other.bootstrap_servers} belong to {other.cluster_id}" in err
