"""The tables of a lake: applied once, whatever happens to a run, and the questions to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from quorate.metadata import records as r
from quorate.records.batch import build_metadata_batch

from .conftest import ORDERS, change, config, partition, topic, write_log, write_state

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.lake, pytest.mark.timeout(400)]

LOG = [
    [topic("orders", ORDERS), config("orders", "k", "1"), partition(ORDERS), partition(ORDERS, 1)],  # 0 to 3
    [change(ORDERS, leader=2)],  # 4
    [config("orders", "k", "2")],  # 5
    [change(ORDERS, leader=1), r.BeginTransactionRecord(), change(ORDERS, leader=2)],  # 6 7 8
    [r.EndTransactionRecord()],  # 9
    [r.BeginTransactionRecord(), config("orders", "k", "3"), r.AbortTransactionRecord()],  # 10 11 12
    [r.RemoveTopicRecord(topic_id=ORDERS)],  # 13
]


def apply(lake: Lake, folder: Path, cluster: str | None = "c", **options: Any) -> Any:
    from quorate.pipeline.lake_source import open_source
    from quorate.pipeline.tables.update import update

    return update(lake, open_source(str(folder)), cluster, report=lambda _: None, **options)


def contents(lake: Lake, cluster: str = "c") -> dict[str, list[str]]:
    """All rows of the tables as text, read from the files to which Delta's log refers, without Spark."""
    from pyarrow import parquet

    from quorate.pipeline.tables import ENTITIES

    found = {}
    for name in ("events", *ENTITIES):
        table = Path(lake.path(name))
        paths: set[str] = set()
        for commit in sorted(table.glob("_delta_log/*.json")):
            for action in map(json.loads, commit.read_text().splitlines()):
                paths -= {action["remove"]["path"]} if "remove" in action else set()
                paths |= {action["add"]["path"]} if "add" in action else set()
        files = [table / path for path in paths if path.startswith(f"cluster={cluster}/")]
        if table.is_dir():
            rows = [row for path in files for row in in_utc(parquet.ParquetFile(path).read()).to_pylist()]
            # Spark writes the column by which a table is partitioned into its files, too.
            assert {row.pop("cluster", cluster) for row in rows} <= {cluster}
            found[name] = sorted([str(sorted(row.items())) for row in rows])
    return found


def in_utc(table: Any) -> Any:
    """The same rows, with times in UTC. Files that Spark wrote have nanoseconds without a zone."""
    import pyarrow as pa

    for place, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            times = table.column(place).cast(pa.timestamp("us", "UTC"))
            table = table.set_column(place, column.name, times)
    return table


@pytest.fixture(scope="module")
def whole(lakes: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake after one run that read all of LOG."""
    folder = tmp_path_factory.mktemp("log")
    write_log(folder, 0, LOG)
    lake = lakes()
    apply(lake, folder)
    return lake


@pytest.fixture(scope="module")
def undisturbed(whole: Lake) -> dict[str, list[str]]:
    """Its rows."""
    return contents(whole)


@pytest.fixture(scope="module")
def half(lakes: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake after two runs, of which the second one met a transaction that had not ended."""
    folder = tmp_path_factory.mktemp("log")
    lake = lakes()
    for batches, span in ((1, (0, 4)), (4, (4, 7))):
        write_log(folder, 0, LOG[:batches])
        done = apply(lake, folder)
        assert (done.start, done.end) == span
    return lake


@pytest.fixture
def begun(half: Lake, copied: Callable[[Lake], Lake]) -> Lake:
    """A copy of this lake."""
    return copied(half)


def test_runs_apply_what_is_new_and_leave_an_open_transaction_for_later(
    begun: Lake, tmp_path: Path, undisturbed: dict[str, list[str]]
) -> None:
    before = contents(begun)
    write_log(tmp_path, 0, LOG[:4])
    done = apply(begun, tmp_path)
    assert (done.start, done.end) == (7, 7)
    assert contents(begun) == before
    write_log(tmp_path, 0, LOG)
    done = apply(begun, tmp_path)
    assert (done.start, done.end) == (7, 14)
    assert contents(begun) == undisturbed


@pytest.mark.parametrize("table", ["events", "partitions"])
def test_a_run_that_ended_before_it_wrote_a_table_is_continued(
    begun: Lake,
    tmp_path: Path,
    undisturbed: dict[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    table: str,
) -> None:
    from quorate.pipeline.tables.lake import Lake as Tables

    write_log(tmp_path, 0, LOG)
    original = Tables.commit

    def dies(self: Lake, name: str, *rest: Any) -> None:
        if name == table:
            raise KeyboardInterrupt
        original(self, name, *rest)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Tables, "commit", dies)
        apply(begun, tmp_path)
    assert begun.applied(table, "c") == 7
    apply(begun, tmp_path)
    assert contents(begun) == undisturbed


def test_of_two_runs_at_once_both_end_and_nothing_is_doubled(
    begun: Lake, tmp_path: Path, undisturbed: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from quorate.pipeline.tables import update as module

    write_log(tmp_path, 0, LOG)
    original = module._step

    def overtaken(*arguments: Any) -> Any:
        step = original(*arguments)
        with monkeypatch.context() as patch:
            patch.setattr(module, "_step", original)
            write_log(tmp_path, 0, LOG[:6])
            apply(begun, tmp_path)  # another run applies a part of the same records first
            write_log(tmp_path, 0, LOG)
        return step

    with monkeypatch.context() as patch:
        patch.setattr(module, "_step", overtaken)
        apply(begun, tmp_path)
    assert contents(begun) == undisturbed


def test_two_runs_that_commit_at_the_same_moment_both_end_and_nothing_is_doubled(
    begun: Lake, tmp_path: Path, undisturbed: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from quorate.pipeline.tables.lake import Lake as Tables

    write_log(tmp_path, 0, LOG)
    original = Tables.commit
    both, met = Barrier(2), set()

    def together(self: Lake, table: str, *rest: Any) -> None:
        if (self, table) not in met:
            met.add((self, table))
            both.wait(120)
        original(self, table, *rest)

    monkeypatch.setattr(Tables, "commit", together)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(apply, Tables(begun.spark, begun.folder), tmp_path) for _ in range(2)]
        assert {run.result().end for run in runs} == {14}
    assert contents(begun) == undisturbed


def test_a_log_that_was_cleaned_past_the_last_run_continues_from_its_snapshot(
    lake: Lake, tmp_path: Path
) -> None:
    kept, gone, late = bytes([1] * 16), bytes([2] * 16), bytes([3] * 16)
    before, after = tmp_path / "before", tmp_path / "after"
    write_log(before, 0, [[topic("kept", kept), partition(kept), topic("gone", gone), partition(gone)]])
    apply(lake, before)
    write_state(after, 20, [topic("kept", kept), partition(kept), topic("late", late)])
    write_log(after, 20, [[change(kept, leader=2)]])
    assert apply(lake, after).missing == (4, 19)

    def spans(table: str) -> list[tuple[Any, ...]]:
        rows = lake.read(table).select("topic", "valid_from_offset", "valid_to_offset").collect()
        return sorted([tuple(row) for row in rows])

    assert spans("topics") == [("gone", 2, 19), ("kept", 0, None), ("late", 19, None)]
    assert spans("partitions") == [("gone", 3, 19), ("kept", 1, 20), ("kept", 20, None)]


def test_records_that_are_deleted_during_a_run_are_replaced_by_their_snapshot(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quorate.pipeline.tables import update as module

    segment = write_log(tmp_path, 0, LOG[:4])
    original = module._step

    def cleaned(*arguments: Any) -> Any:
        step = original(*arguments)
        if segment.exists():
            segment.unlink()
            write_state(tmp_path, 7, [topic("orders", ORDERS), partition(ORDERS, leader=1)])
            write_log(tmp_path, 7, [[change(ORDERS, leader=2)]])
        return step

    monkeypatch.setattr(module, "_step", cleaned)
    apply(lake, tmp_path)
    rows = lake.read("partitions").select("valid_from_offset", "valid_to_offset", "leader").collect()
    assert sorted([tuple(row) for row in rows], key=str) == [(6, 7, 1), (7, None, 2)]


@pytest.mark.parametrize("table", ["events", "partitions"])
def test_a_lost_commit_of_a_table_is_made_again(
    begun: Lake, tmp_path: Path, undisturbed: dict[str, list[str]], table: str
) -> None:
    last = max(Path(begun.path(table), "_delta_log").glob("*.json"))
    last.unlink()
    for checksum in (last.with_suffix(".crc"), last.with_name(f".{last.name}.crc")):  # Delta's, Hadoop's
        checksum.unlink(missing_ok=True)
    other = "partitions" if table == "events" else "events"
    assert (begun.applied(table, "c"), begun.applied(other, "c")) == (4, 7)
    write_log(tmp_path, 0, LOG)
    apply(begun, tmp_path)
    assert contents(begun) == undisturbed


def test_a_lake_without_delta_s_checkpoints_is_continued_where_its_commits_end(
    begun: Lake, tmp_path: Path, undisturbed: dict[str, list[str]], copied: Callable[[Lake], Lake]
) -> None:
    """A run keeps no state outside of the tables' commits."""
    jvm: Any = begun.spark._jvm
    for table in ("events", "partitions"):
        path = begun.path(table)
        jvm.org.apache.spark.sql.delta.DeltaLog.forTable(begun.spark._jsparkSession, path).checkpoint()
    moved = copied(begun)
    lost = {
        path
        for name in ("*.checkpoint*", "_last_checkpoint", "*.crc")
        for path in Path(moved.folder).rglob(name)
    }
    assert {path.name for path in lost} > {
        "_last_checkpoint",
        f"{1:020d}.checkpoint.parquet",
        f"{1:020d}.crc",
    }
    for path in lost:
        path.unlink()
    write_log(tmp_path, 0, LOG)
    assert apply(moved, tmp_path).start == 7
    assert contents(moved) == undisturbed


def test_a_record_of_a_later_release_ends_the_run_and_changes_nothing(
    begun: Lake, tmp_path: Path, undisturbed: dict[str, list[str]]
) -> None:
    path = write_log(tmp_path, 0, LOG[:5])
    before = contents(begun)
    of_type_99 = build_metadata_batch([b"\x01\x63\x00\x00"], base_offset=10, leader_epoch=1, timestamp=10_000)
    path.write_bytes(path.read_bytes() + of_type_99)
    with pytest.raises(Exception, match="99"):
        apply(begun, tmp_path)
    assert contents(begun) == before
    write_log(tmp_path, 0, LOG)
    assert apply(begun, tmp_path).end == 14
    assert contents(begun) == undisturbed


def test_a_lake_holds_several_clusters_with_the_same_topics(
    whole: Lake, tmp_path: Path, undisturbed: dict[str, list[str]], copied: Callable[[Lake], Lake]
) -> None:
    lake = copied(whole)
    write_log(tmp_path, 0, LOG[:1])
    apply(lake, tmp_path, "d")
    assert contents(lake, "c") == undisturbed
    assert len(contents(lake, "d")["events"]) == 4


def test_another_log_under_the_same_name_is_refused(lake: Lake, tmp_path: Path) -> None:
    from quorate.pipeline.tables.lake import LakeError

    (tmp_path / "meta.properties").write_text("cluster.id=one\n")
    log = tmp_path / "__cluster_metadata-0"
    write_log(log, 0, LOG[:4])
    apply(lake, tmp_path)
    before = contents(lake)
    write_log(log, 0, LOG[:1])
    with pytest.raises(LakeError, match="ends at offset 4, but the lake has applied cluster c up to 6"):
        apply(lake, tmp_path)
    write_log(log, 0, LOG, epoch=2)
    with pytest.raises(LakeError, match=r"differs .* of cluster c from offset 0 on: it was formatted anew"):
        apply(lake, tmp_path)
    (tmp_path / "meta.properties").write_text("cluster.id=two\n")
    with pytest.raises(LakeError, match="has the id one, but the source is of cluster two"):
        apply(lake, tmp_path)
    assert contents(lake) == before


def test_records_that_were_never_committed_are_taken_back(
    begun: Lake, tmp_path: Path, undisturbed: dict[str, list[str]]
) -> None:
    lost = [change(ORDERS, leader=-1, isr=[]), r.RemoveTopicRecord(topic_id=ORDERS)]
    write_log(tmp_path, 0, [*LOG[:3], LOG[3][:1]])
    other = write_log(tmp_path, 7, [lost], epoch=2)
    apply(begun, tmp_path)
    assert begun.applied("topics", "c") == 9
    other.unlink()
    write_log(tmp_path, 0, LOG)
    apply(begun, tmp_path)
    assert contents(begun) == undisturbed


def test_the_commands_answer_from_the_tables(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from quorate.tools.lake.pipeline import main

    write_log(tmp_path, 0, LOG)

    def ask(*words: str) -> str:
        command, *others = words
        assert main([command, "--lake", lake.folder, *others]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    assert "applied up to offset 13" in ask("run", "--source", str(tmp_path), "--cluster", "c")
    assert ask("state", "--entity", "partitions", "--at", "6").splitlines()[0].split() == [
        "TOPIC", "ID", "PARTITION", "TOPIC", "REPLICAS", "ISR", "REMOVING", "REPLICAS", "ADDING", "REPLICAS",
        "ELR", "LEADER", "LEADER", "EPOCH",
    ]  # fmt: skip
    rows = [
        json.loads(line)
        for line in ask("state", "--entity", "partitions", "--at", "8", "--json").splitlines()
    ]
    assert [(row["topic"], row["partition"], row["leader"], row["leader_epoch"]) for row in rows] == [
        ("orders", 0, 1, 2),
        ("orders", 1, 1, 0),
    ]
    in_time = ask("state", "--entity", "configs", "--at", "1970-01-01T00:00:04.5", "--json")
    assert json.loads(in_time)["value"] == "1"
    assert ask("state", "--entity", "topics", "--json") == ""
    lines = ask("diff", "--from", "3", "--to", "9").splitlines()
    assert [line[: line.index("{")] + line[line.index("}") :] for line in lines] == [
        "~ configs }: value 1 -> 2",
        "~ partitions }: leader 1 -> 2, leader_epoch 0 -> 3, partition_epoch 0 -> 3",
    ]
    told = [
        json.loads(line)
        for line in ask("history", "--entity", "configs", "--key", "key=k", "--json").splitlines()
    ]
    assert [(row["value"], row["valid_from_offset"], row["to_record"]) for row in told] == [
        ("1", 1, "CONFIG_RECORD"),
        ("2", 5, "REMOVE_TOPIC_RECORD"),
    ]
    led = [json.loads(line) for line in ask("leaders", "--json").splitlines()]
    assert [(row["broker_id"], row["gained"], row["lost"], row["created"]) for row in led] == [
        (1, 1, 2, 2),
        (2, 2, 1, 0),
    ]
    assert main(["state", "--lake", lake.folder, "--entity", "topics", "--at", "99"]) == 1
    assert "offset 99 of cluster c is not applied yet: the last is 13" in capsys.readouterr().err
