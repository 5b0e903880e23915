"""Data files of Delta tables: statistics, later columns, ranges of offsets, and file systems that
are not local."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="PyArrow is not installed (pip install 'quorate[spark]')")
pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

import pyarrow as pa
from pyarrow import parquet

from quorate.pipeline.directories.temporary import delete_left_over, temporary_prefix
from quorate.pipeline.storage import data_files
from quorate.pipeline.storage.data_files import (
    DataFileWriter,
    Place,
    join_files,
    read_file,
    read_groups,
    write_file,
)

TIME = datetime(2026, 11, 24, 12, 0, 0, 5000, tzinfo=UTC)


def events(start: int, end: int) -> pa.Table:
    times = pa.array([TIME] * (end - start), pa.timestamp("us", "UTC"))
    return pa.table({"offset": pa.array(range(start, end), pa.int64()), "timestamp": times})


def test_the_commit_of_a_file_has_its_statistics(tmp_path: Path) -> None:
    place = Place(str(tmp_path), "a b/c", ("offset", "timestamp", "end"))
    table = events(3, 6).append_column("end", pa.array([None, 7, None], pa.int64()))
    file = write_file(place, table)
    assert file is not None
    added = json.loads(file.added())["add"]
    assert json.loads(added["stats"]) == {
        "numRecords": 3,
        "minValues": {"offset": 3, "timestamp": "2026-11-24T12:00:00.005Z", "end": 7},
        "maxValues": {"offset": 5, "timestamp": "2026-11-24T12:00:00.005Z", "end": 7},
        "nullCount": {"offset": 0, "timestamp": 0, "end": 2},
    }
    assert (file.least("offset"), file.greatest("offset"), file.nulls("end")) == (3, 5, 2)
    assert added["partitionValues"] == {"cluster": "a b/c"}
    [path] = tmp_path.glob("*/*.parquet")
    assert path.parent.name == "cluster=a%20b%2Fc"
    assert added["size"] == path.stat().st_size
    assert added["path"].startswith("cluster=a%2520b%252Fc/")
    assert read_file(place, file.path, table.schema) == table


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    place = Place(str(tmp_path), "c", ("offset",))
    assert write_file(place, events(0, 0)) is None
    assert join_files(place, [], events(0, 0).schema) is None
    assert list(tmp_path.glob("*/*.parquet")) == []


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_file_that_cannot_be_completed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    table = "s3a://bucket/events" if is_remote else str(tmp_path / "events")
    writer = DataFileWriter(Place(table, "c", ("offset",)), events(0, 0).schema)
    with pytest.raises(RuntimeError, match="the log is gone"), writer:
        writer.write(events(0, 5))
        assert [path for path in tmp_path.rglob("*") if path.is_file()] != []
        raise RuntimeError("the log is gone")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_and_the_directories_that_are_new_with_it_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    for name in ("fsync_path", "fsync_directory"):
        monkeypatch.setattr(data_files, name, lambda path: synced.append(Path(path).name))
    place = Place(str(tmp_path / "lake" / "events"), "c", ("offset",))
    for expected in (["cluster=c", "events", "lake", tmp_path.name], ["cluster=c"]):
        synced.clear()
        file = write_file(place, events(0, 5))
        assert file is not None
        assert synced == [file.path.rpartition("/")[2], *expected]


def test_a_column_that_came_later_is_null_in_the_rows_before(tmp_path: Path) -> None:
    place = Place(str(tmp_path), "c", ("offset",))
    file = write_file(place, events(0, 2))
    assert file is not None
    wanted = pa.schema([("new", pa.list_(pa.string())), ("offset", pa.int64())])
    assert read_file(place, file.path, wanted).to_pylist() == [{"new": None, "offset": at} for at in (0, 1)]


def test_only_a_range_of_offsets_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "ROWS_PER_GROUP", 10)
    place = Place(str(tmp_path), "c", ("offset",))
    file = write_file(place, events(0, 35))
    assert file is not None
    groups = list(read_groups(place, file.path, events(0, 0).schema, ["offset", "unknown.field"], 8, 21))
    assert [group["offset"].to_pylist() for group in groups] == [[8, 9], [*range(10, 20)], [20]]


def test_files_are_joined_in_order(tmp_path: Path) -> None:
    place = Place(str(tmp_path), "c", ("offset",))
    parts = [write_file(place, events(start, start + 2)) for start in (0, 2, 4)]
    joined = join_files(place, [part.path for part in parts if part], events(0, 0).schema)
    assert joined is not None
    assert joined.stats["numRecords"] == 6
    assert read_file(place, joined.path, events(0, 0).schema) == events(0, 6)


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_table_may_be_in_any_file_system_of_hadoop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here in a view file system, which stands for a directory."""
    if shutil.which("java") is None:
        pytest.skip("Hadoop's file systems need Java 17: java is not on the PATH")
    (tmp_path / "real").mkdir()
    link = {"fs.viewfs.mounttable.test.link./lake": (tmp_path / "real").as_uri()}
    place = Place("viewfs://test/lake/events", "c", ("offset",), link)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = write_file(place, events(0, 5))
    assert file is not None
    assert len(list((tmp_path / "real" / "events").glob("cluster=c/*.parquet"))) == 1
    assert read_file(place, file.path, events(0, 0).schema) == events(0, 5)
    assert list(tmp_path.glob("quorate-*")) == []  # no temporary file is left


def test_the_temporary_files_of_a_process_that_was_killed_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not young ones, those of a process that runs, and those of others."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    names = {
        "old and dead": f"quorate-{ended.pid}-a", "young and dead": f"quorate-{ended.pid}-b",
        "old and alive": f"quorate-{os.getpid()}-c", "of another program": "quorate-report-d",
    }  # fmt: skip
    for what, name in names.items():
        (tmp_path / name).touch()
        if not what.startswith("young"):
            os.utime(tmp_path / name, (0, 0))
    delete_left_over()
    assert temporary_prefix() == f"quorate-{os.getpid()}-"
    assert {path.name for path in tmp_path.iterdir()} == {*names.values()} - {names["old and dead"]}


def test_what_spark_wrote_has_the_types_of_what_arrow_wrote(tmp_path: Path) -> None:
    """Spark's times are INT96 without a zone, and a struct may lack fields that came later."""
    kind = pa.struct([("id", pa.int32()), ("names", pa.list_(pa.string()))])
    later = pa.struct([("id", pa.int32()), ("new", pa.int16()), ("names", pa.list_(pa.string()))])
    schema = pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("record", later)])
    times = [TIME, datetime(2500, 1, 1, tzinfo=UTC)]
    naive = pa.array([time.replace(tzinfo=None) for time in times], pa.timestamp("us"))
    records = pa.array([{"id": 7, "names": ["a"]}, None], kind)
    table = pa.table({"offset": pa.array([5, 6], pa.int64()), "timestamp": naive, "record": records})
    parquet.write_table(table, tmp_path / "spark.parquet", use_deprecated_int96_timestamps=True)
    place = Place(str(tmp_path), "c", ())
    expected = [
        {"offset": 5, "timestamp": times[0], "record": {"id": 7, "new": None, "names": ["a"]}},
        {"offset": 6, "timestamp": times[1], "record": None},
    ]
    read = read_file(place, "spark.parquet", schema)
    groups = list(read_groups(place, "spark.parquet", schema, schema.names, 0, 9))
    assert [rows.schema for rows in (read, *groups)] == [schema, schema]
    assert read.to_pylist() == groups[0].to_pylist() == expected
    [group] = read_groups(place, "spark.parquet", schema, ["offset", "record.new", "record.id"], 6, 7)
    assert group.schema.field("record").type == pa.struct([("id", pa.int32()), ("new", pa.int16())])
    assert group.to_pylist() == [{"offset": 6, "record": None}]
