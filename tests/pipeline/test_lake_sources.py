"""A live quorum as the source of a lake: its cluster id, failovers, a log that has lost its start."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic
from quorate.metadata import records as r
from quorate.pipeline import lake_source
from quorate.pipeline.datasource.options import parse_options
from quorate.pipeline.datasource.source import _check_complete
from quorate.pipeline.datasource.tasks import RangeTask
from quorate.pipeline.lake_source import ControllerSource, Extent, Mark, SourceError, open_source
from quorate.pipeline.live.offsets import OffsetError, Range
from quorate.testing import KafkaCluster
from tests.support.cluster import wait_for

from .conftest import LOG, all_rows, write_log
from .oracle import images, log_records, rows_of

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake


# -- without a quorum ----------------------------------------------------------------------------------


class Tail:
    """The log of a quorum, from `start` on, after a snapshot that ends there."""

    def __init__(self, start: int, committed: int, batch: bytes | None = None) -> None:
        self.start, self.committed, self.batch = start, committed, batch
        self.cluster_id = "c"

    def available(self, offset: int) -> tuple[int, int]:
        if offset > 20:
            raise OffsetError("the metadata log of a test ends at offset 20")
        return max(offset, self.start), self.committed

    def batch_at(self, offset: int) -> bytes | None:
        return self.batch


def source(monkeypatch: pytest.MonkeyPatch, tail: Tail, **properties: str) -> ControllerSource:
    monkeypatch.setattr(lake_source, "QuorumTail", lambda *_: tail)
    found = open_source("controllers://a:1,b:2", properties)
    assert isinstance(found, ControllerSource)
    return found


@pytest.mark.parametrize(
    ("start", "committed", "offset", "expected"),
    [
        (0, 10, 0, Extent(0, 10)),
        (0, 10, 4, Extent(4, 10)),
        (0, 10, 10, Extent(10, 10)),
        (0, 8, 10, Extent(10, 10)),  # a new active controller knows less than the one before
        (6, 10, 4, Extent(6, 10, 6)),
        (6, 10, 6, Extent(6, 10)),
        (6, 3, 0, Extent(6, 6, 6)),
    ],
)
def test_the_quorum_says_from_where_to_where_its_log_can_be_read(
    monkeypatch: pytest.MonkeyPatch, start: int, committed: int, offset: int, expected: Extent
) -> None:
    assert source(monkeypatch, Tail(start, committed)).extent(offset) == expected


def test_a_log_that_ends_before_what_was_applied_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match="ends at offset 20: was the cluster formatted anew"):
        source(monkeypatch, Tail(0, 10)).extent(21)


def test_the_record_at_an_offset_is_known_by_its_epoch_and_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    batch = write_log(tmp_path, 4, [[r.NoOpRecord(), r.NoOpRecord()]], epoch=3).read_bytes()
    assert source(monkeypatch, Tail(0, 10, batch)).mark(5) == Mark(3, 4000)
    assert source(monkeypatch, Tail(0, 10)).mark(5) is None


def test_the_tasks_get_the_properties_of_the_client_and_read_exactly_the_extent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = source(monkeypatch, Tail(0, 10), **{"security.protocol": "SSL"})
    options = found.reader(Extent(6, 10, 6), "offset", "TOPIC_RECORD").options
    assert (options.controllers, options.client) == ("a:1,b:2", {"security.protocol": "SSL"})
    assert (options.selection.columns, options.selection.types) == (("offset",), {"TOPIC_RECORD"})
    assert (options.complete, options.snapshots) == (True, "6")
    assert (options.bounds.first_offset, options.bounds.end_offset) == (0, 10)
    options = found.reader(Extent(4, 1_000_000), "offset").options
    assert (options.bounds.first_offset, options.snapshots) == (4, "none")


def test_properties_of_a_client_are_for_a_live_quorum_only(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="controllers://"):
        open_source(str(tmp_path), {"a": "b"})


@pytest.mark.parametrize(("snapshots", "refused"), [("6", False), ("7", True), ("none", True)])
def test_a_complete_read_takes_no_other_snapshot_than_the_wanted_one(snapshots: str, refused: bool) -> None:
    options = parse_options({"controllers": "a:1", "complete": "true", "snapshots": snapshots})
    tasks = [RangeTask(Range(0, 6, 0, "c", begins_with_snapshot=True)), RangeTask(Range(6, 9, 0, "c"))]
    _check_complete(tasks[1:], options)
    if not refused:
        _check_complete(tasks, options)
        return
    with pytest.raises(ValueError, match="the log of a:1 begins with the snapshot 6"):
        _check_complete(tasks, options)


# -- a running quorum ----------------------------------------------------------------------------------


def create(cluster: KafkaCluster, *names: str) -> None:
    with AdminClient(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 3) for name in names])


def topics_of(lake: Lake) -> set[str]:
    return {row["topic"] for row in lake.read("topics").where("valid_to_offset IS NULL").collect()}


def check_states(lake: Lake, directory: Path) -> None:
    """Compares the newest state of topics, partitions, brokers and features with the controller's image."""
    end = lake.applied("events", lake.clusters()[0])
    image = next(image for offset, image in images(log_records(directory)) if offset == end - 1)
    wanted = rows_of(image)
    for table, key in (
        ("topics", ["topic_id"]),
        ("partitions", ["topic_id", "partition"]),
        ("brokers", ["broker_id"]),
    ):
        rows = [row.asDict() for row in lake.read(table).where("valid_to_offset IS NULL").collect()]
        assert {tuple(row[name] for name in key) for row in rows} == set(wanted[table])
        for row in rows:
            expected = wanted[table][tuple(row[name] for name in key)]
            same = ("topic", "replicas", "isr", "leader", "leader_epoch", "fenced", "broker_epoch")
            assert {name: row[name] for name in same if name in row} == {
                name: expected[name] for name in same if name in expected
            }


def test_a_quorum_says_where_its_log_ends_and_which_record_is_where(tmp_path: Path) -> None:
    with KafkaCluster(controllers=3, brokers=1, separate_roles=True) as cluster:
        create(cluster, "orders")
        with closing(open_source(f"controllers://{cluster.bootstrap_controllers}")) as found:
            with AdminClient(cluster.bootstrap_servers) as admin:
                assert found.cluster_id() == admin.describe_cluster().cluster_id
                leader = admin.describe_quorum().leader_id
            before = found.extent(0)
            assert (before.start, before.snapshot) == (0, None)
            assert before.end > 10
            marks = [found.mark(offset) for offset in range(0, before.end, 5)]
            cluster.kill(leader)
            create(cluster, "after-the-failover")
            after = found.extent(before.end)
            assert (after.start, after.snapshot) == (before.end, None)
            wait_for("new records", lambda: found.extent(before.end).end > before.end)
            assert [found.mark(offset) for offset in range(0, before.end, 5)] == marks
            other = next(node for node in cluster.controller_ids if node != leader)
            rows = {row["offset"]: row for row in all_rows(cluster.data_directory(other))}
            written = [rows[offset] for offset in range(0, before.end, 5)]
            assert marks == [
                Mark(row["epoch"], round(row["timestamp"].timestamp() * 1000)) for row in written
            ]
            with pytest.raises(SourceError, match="was the cluster formatted anew"):
                found.extent(before.end + 1_000_000)


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_lake_follows_a_quorum_through_a_failover(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from quorate.pipeline.tables import update as module
    from quorate.tools.lake.pipeline import main

    client = tmp_path / "client.properties"
    client.write_text("client.id=lake\nrequest.timeout.ms=10000\n")
    with KafkaCluster(controllers=3, brokers=1, separate_roles=True) as cluster:
        create(cluster, "orders")
        where = f"controllers://{cluster.bootstrap_controllers}"
        run = ["run", "--source", where, "--lake", lake.folder, "--command-config", str(client)]
        assert main(run) == 0
        assert "applied up to offset" in capsys.readouterr().out
        assert topics_of(lake) == {"orders"}
        with AdminClient(cluster.bootstrap_servers) as admin:
            assert lake.clusters() == [admin.describe_cluster().cluster_id]
            leader = admin.describe_quorum().leader_id
        original = module.update
        rounds: list[int] = []

        def followed(*arguments: Any, **options: Any) -> Any:
            if not rounds:
                cluster.kill(leader)
                create(cluster, "after-the-failover")
            rounds.append(1)
            done = original(*arguments, **options)
            if "after-the-failover" in topics_of(lake):
                raise KeyboardInterrupt
            return done

        monkeypatch.setattr(module, "update", followed)
        assert main([*run, "--follow", "--interval", "0.1"]) == 130
        epochs = {row["epoch"] for row in lake.read("events").select("epoch").distinct().collect()}
        assert len(epochs) > 1
        other = next(node for node in cluster.controller_ids if node != leader)
        end = lake.applied("events", lake.clusters()[0])
        log = cluster.data_directory(other) / LOG
        wait_for("the log", lambda: max(offset for offset, _ in log_records(log)) >= end)
        check_states(lake, log)


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_lake_begins_with_the_snapshot_of_a_quorum_whose_log_has_lost_its_start(
    lakes: Callable[[], Lake], kafka: Path
) -> None:
    from quorate.pipeline.tables.lake import LakeError
    from quorate.pipeline.tables.update import update

    lake = lakes()
    state = max((kafka / "running" / LOG).glob("*.checkpoint"))
    with KafkaCluster(snapshot=state) as cluster:
        found = open_source(f"controllers://{cluster.bootstrap_controllers}")
        done = update(lake, found, "c", report=lambda _: None)
        begin = lake.read("events").where("snapshot IS NOT NULL").selectExpr("max(snapshot)").collect()[0][0]
        assert 0 < begin < done.end
        assert {row["committed"] for row in lake.read("events").select("committed").distinct().collect()} == {
            True
        }
        assert topics_of(lake) != set()
        # The same name must not be used for another cluster.
        monkey = pytest.MonkeyPatch()
        with (
            monkey.context() as patch,
            pytest.raises(LakeError, match=r"has the id .* is of cluster another"),
        ):
            patch.setattr(found, "cluster_id", lambda: "another")
            update(lake, found, "c", report=lambda _: None)
        found.close()
