"""Reading files into columns, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quorate.metadata import records as r
from quorate.metadata.errors import MetadataError
from quorate.pipeline.decoder import COLUMNS, read_slice
from quorate.pipeline.layout import Slice, group, scan, slices

from .conftest import GONE, ORDERS, change, config, partition, topic, write_log, write_state


def rows_of(part: Slice, **options: Any) -> list[dict[str, Any]]:
    names = [name for name, _ in COLUMNS]
    return [
        dict(zip(names, row, strict=True))
        for columns in read_slice(part, **options)
        for row in zip(*columns.values(), strict=True)
    ]


def all_rows(folder: Path, **options: Any) -> list[dict[str, Any]]:
    layout = scan(folder)
    return [row for part in slices(layout, snapshots=layout.snapshots) for row in rows_of(part, **options)]


def test_a_log_becomes_rows_with_the_columns_of_their_entities(tmp_path: Path) -> None:
    broker = r.BrokerRegistrationChangeRecord(broker_id=7, broker_epoch=1, fenced=1)
    write_log(
        tmp_path, 5, [[topic("orders", ORDERS), partition(ORDERS, 3)], [config("orders", "a", None), broker]]
    )
    rows = all_rows(tmp_path)
    assert [(row["offset"], row["type"], row["version"], row["epoch"], row["timestamp"]) for row in rows] == [
        (5, "TOPIC_RECORD", 0, 1, 5_000_000),
        (6, "PARTITION_RECORD", 2, 1, 5_000_000),
        (7, "CONFIG_RECORD", 0, 1, 7_000_000),
        (8, "BROKER_REGISTRATION_CHANGE_RECORD", 2, 1, 7_000_000),
    ]
    assert (rows[0]["topic_id"], rows[0]["topic_name"]) == ("AQEBAQEBAQEBAQEBAQEBAQ", "orders")
    assert (rows[1]["partition"], rows[1]["topic_id"]) == (3, "AQEBAQEBAQEBAQEBAQEBAQ")
    assert (rows[2]["resource_type"], rows[2]["resource_name"], rows[2]["key"], rows[2]["value"]) == (
        "TOPIC",
        "orders",
        "a",
        None,
    )
    assert rows[3]["broker_id"] == 7
    assert json.loads(rows[1]["json"])["isr"] == [1, 2]
    assert {row["snapshot"] for row in rows} == {None}


def test_a_log_of_kafka_is_read_whole_control_records_too(kafka: Path) -> None:
    rows = [row for row in all_rows(kafka / "data") if row["snapshot"] is None]
    assert [row["offset"] for row in rows] == list(range(73))
    assert [row["type"] for row in rows[:3]] == ["LEADER_CHANGE", "KRAFT_VERSION", "KRAFT_VOTERS"]
    assert all(row["control"] for row in rows[:3])
    assert json.loads(rows[2]["json"])["voters"][0]["voterId"] == 1


def test_rows_of_a_snapshot_stand_at_the_last_offset_that_it_contains(tmp_path: Path) -> None:
    write_state(tmp_path, 40, [topic("orders", ORDERS), partition(ORDERS)])
    rows = all_rows(tmp_path)
    assert {(row["offset"], row["snapshot"]) for row in rows} == {(39, 40)}
    assert [row["type"] for row in rows] == [
        "SNAPSHOT_HEADER",
        "FEATURE_LEVEL_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "SNAPSHOT_FOOTER",
    ]
    assert [row["position"] for row in rows] == [0, 1, 2, 3, 4]


def test_a_half_written_end_of_the_newest_segment_is_not_read(tmp_path: Path) -> None:
    path = write_log(tmp_path, 0, [[topic("orders", ORDERS)], [partition(ORDERS)]])
    whole = path.read_bytes()
    first = len(whole) - 12 - int.from_bytes(whole[8:12], "big")
    for cut in range(len(whole) - first + 1, len(whole)):
        path.write_bytes(whole[:cut])
        assert [row["offset"] for row in all_rows(tmp_path)] == [0]
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert [row["offset"] for row in all_rows(tmp_path)] == [0]


def test_damage_elsewhere_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = write_log(tmp_path, 0, [[topic("orders", ORDERS)], [partition(ORDERS)]])
    write_log(tmp_path, 2, [[topic("gone", GONE)]])
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(
        MetadataError, match=r"00000000000000000000\.log: the batch at byte \d+ has a wrong checksum"
    ):
        all_rows(tmp_path)
    path.write_bytes(whole[:-1])
    with pytest.raises(MetadataError, match="is cut"):
        all_rows(tmp_path)


def test_a_range_of_offsets_is_read_from_the_segments_that_may_hold_it(tmp_path: Path) -> None:
    for base in (0, 2, 4):
        write_log(tmp_path, base, [[r.NoOpRecord()], [r.NoOpRecord()]])
    chosen = list(slices(scan(tmp_path), snapshots=(), start_offset=3, end_offset=4))
    assert [Path(part.path).name for part in chosen] == ["00000000000000000002.log"]
    assert [row["offset"] for row in rows_of(chosen[0], start_offset=3, end_offset=4)] == [3]


def test_a_segment_that_was_renamed_for_deletion_is_still_read(tmp_path: Path) -> None:
    path = write_log(tmp_path, 0, [[r.NoOpRecord()]])
    (part,) = slices(scan(tmp_path), snapshots=())
    path.rename(f"{path}.deleted")
    assert len(rows_of(part)) == 1


def test_a_big_segment_is_cut_at_batches_of_its_index(tmp_path: Path) -> None:
    batches = [[change(ORDERS, leader=n)] for n in range(200)]
    path = write_log(tmp_path, 0, batches)  # type: ignore[arg-type]
    data = path.read_bytes()
    size = int.from_bytes(data[8:12], "big") + 12
    index = b"".join([n.to_bytes(4, "big") + (n * size).to_bytes(4, "big") for n in range(0, 128, 10)])
    path.with_suffix(".index").write_bytes(index + bytes(80))
    cut = list(slices(scan(tmp_path), snapshots=(), slice_bytes=size * 30))
    assert len(cut) > 3
    assert [row["offset"] for part in cut for row in rows_of(part)] == list(range(200))
    path.with_suffix(".index").write_bytes(
        index.replace((30 * size).to_bytes(4, "big"), (30 * size + 1).to_bytes(4, "big"))
    )
    assert len(list(slices(scan(tmp_path), snapshots=(), slice_bytes=size * 30))) == 1


def test_small_files_share_a_task() -> None:
    parts = [Slice(str(n), 0, -1, 40) for n in range(5)]
    assert [len(task) for task in group(parts, 100)] == [2, 2, 1]


def test_the_snapshot_below_the_log_is_the_base_of_its_history(tmp_path: Path) -> None:
    for end in (10, 20, 30):
        write_state(tmp_path, end, [])
    write_log(tmp_path, 18, [[r.NoOpRecord()]])
    layout = scan(tmp_path)
    assert layout.base_snapshot() == layout.snapshots[1]
    assert [snapshot.end_offset for snapshot in layout.resets()] == [10, 20]
    write_log(tmp_path, 0, [[r.NoOpRecord()]])
    assert scan(tmp_path).resets() == []


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_directory_without_a_log_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=name):
        scan(tmp_path / name)
