"""Reading files into columns, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quorate.metadata import records as r
from quorate.pipeline.datasource.bounds import Bounds
from quorate.pipeline.datasource.columns import Selection, select
from quorate.pipeline.directories.layout import Slice, group, scan, slices

from .conftest import (
    GONE,
    ORDERS,
    all_rows,
    change,
    config,
    partition,
    rows_of,
    topic,
    write_log,
    write_state,
)


def test_a_log_becomes_rows_with_the_columns_of_their_entities(tmp_path: Path) -> None:
    broker = r.BrokerRegistrationChangeRecord(broker_id=7, broker_epoch=1, fenced=1)
    write_log(
        tmp_path, 5, [[topic("orders", ORDERS), partition(ORDERS, 3)], [config("orders", "a", None), broker]]
    )
    rows = all_rows(tmp_path)
    assert [
        (row["offset"], row["type"], row["version"], row["epoch"], row["timestamp"].timestamp())
        for row in rows
    ] == [
        (5, "TOPIC_RECORD", 0, 1, 5),
        (6, "PARTITION_RECORD", 2, 1, 5),
        (7, "CONFIG_RECORD", 0, 1, 7),
        (8, "BROKER_REGISTRATION_CHANGE_RECORD", 2, 1, 7),
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


def test_a_range_of_offsets_is_read_from_the_segments_that_may_hold_it(tmp_path: Path) -> None:
    for base in (0, 2, 4):
        write_log(tmp_path, base, [[r.NoOpRecord()], [r.NoOpRecord()]])
    chosen = list(slices(scan(tmp_path), snapshots=(), start_offset=3, end_offset=4))
    assert [Path(part.path).name for part in chosen] == ["00000000000000000002.log"]
    assert [row["offset"] for row in rows_of(chosen[0], bounds=Bounds(3, 4))] == [3]


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


def test_a_big_snapshot_is_cut_at_its_batches(tmp_path: Path) -> None:
    path = write_state(
        tmp_path, 9_000, [topic("orders", ORDERS), *[partition(ORDERS, n) for n in range(2_000)]]
    )
    layout = scan(tmp_path)
    cut = list(slices(layout, snapshots=layout.snapshots, slice_bytes=path.stat().st_size // 4))
    assert [part.start for part in cut] == sorted({part.start for part in cut})
    assert len(cut) in (3, 4)
    rows = [row for part in cut for row in rows_of(part)]
    assert [row["position"] for row in rows] == list(range(2_004))
    assert {row["offset"] for row in rows} == {8_999}


def test_columns_and_types_are_chosen(tmp_path: Path) -> None:
    write_log(tmp_path, 0, [[topic("orders", ORDERS), partition(ORDERS, 3), config("orders", "a", "b")]])
    chosen = select("offset,partition_record.leader,partition_record.isr", "PARTITION_RECORD")
    assert all_rows(tmp_path, selection=chosen) == [
        {"offset": 1, "partition_record": {"leader": 1, "isr": [1, 2]}}
    ]
    assert select(types="TOPIC_RECORD").columns[-3:] == ("committed", "topic_record", "corrupt")


@pytest.mark.parametrize(
    ("columns", "types", "message"),
    [
        ("offset,nothing", None, "nothing is not one of offset, epoch, "),
        ("topic_record.leader", None, "topic_record has no field leader, only name, topic_id"),
        (None, "TOPIC", "TOPIC is not one of ABORT_TRANSACTION_RECORD, "),
        ("", None, "names no column"),
    ],
)
def test_an_unknown_column_or_type_is_refused_with_the_known_ones(
    columns: str | None, types: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        select(columns, types)


def test_times_bound_the_batches_that_are_read(tmp_path: Path) -> None:
    write_log(tmp_path, 0, [[r.NoOpRecord()] for _ in range(6)])
    bounds = Bounds(first_time_ms=2_000, last_time_ms=4_000)
    assert [row["offset"] for row in all_rows(tmp_path, bounds=bounds)] == [2, 3, 4]


def test_records_that_a_snapshot_contains_are_known_to_be_committed(tmp_path: Path) -> None:
    write_log(tmp_path, 0, [[r.NoOpRecord()] for _ in range(6)])
    write_state(tmp_path, 4, [])
    rows = [row for row in all_rows(tmp_path) if row["snapshot"] is None]
    assert [row["committed"] for row in rows] == [True] * 4 + [False] * 2


WHO = r.NoOpRecord(principal="User:alice", client_id="cli", address="10.0.0.1", api=19, reason="why")


def test_the_rows_of_a_batch_name_who_caused_it(tmp_path: Path) -> None:
    write_log(tmp_path, 0, [[topic("orders", ORDERS), WHO], [topic("gone", GONE), r.NoOpRecord()]])
    names = ("principal", "client_id", "address", "api", "reason")
    rows = all_rows(tmp_path)
    assert [tuple(row[name] for name in names) for row in rows] == (
        [("User:alice", "cli", "10.0.0.1", 19, "why")] * 2 + [(None,) * 5] * 2
    )


@pytest.mark.parametrize("types", [None, {"TOPIC_RECORD"}, {"NO_OP_RECORD"}])
def test_each_change_of_a_batch_has_its_own_author(tmp_path: Path, types: set[str] | None) -> None:
    """Raft writes changes that are made at the same time as one batch. A NoOpRecord ends each of them, also
    one without an author; the records after the last one have none."""
    batches = [
        [topic("a", ORDERS), WHO, topic("b", GONE), r.NoOpRecord(reason="session expired")],
        [topic("c", ORDERS), r.NoOpRecord(), topic("d", GONE), WHO, topic("e", GONE)],
        [topic("f", ORDERS)],
        [WHO],
        [r.AbortTransactionRecord(reason="failover"), topic("g", GONE), WHO],
    ]
    alice, expired, nobody = ("User:alice", "why"), (None, "session expired"), (None, None)
    expected = [
        ("TOPIC_RECORD", *alice), ("NO_OP_RECORD", *alice),
        ("TOPIC_RECORD", *expired), ("NO_OP_RECORD", *expired),
        ("TOPIC_RECORD", *nobody), ("NO_OP_RECORD", *nobody),
        ("TOPIC_RECORD", *alice), ("NO_OP_RECORD", *alice), ("TOPIC_RECORD", *nobody),
        ("TOPIC_RECORD", *nobody),
        ("NO_OP_RECORD", *alice),
        ("ABORT_TRANSACTION_RECORD", None, "failover"), ("TOPIC_RECORD", *alice), ("NO_OP_RECORD", *alice),
    ]  # fmt: skip
    write_log(tmp_path, 0, batches)
    rows = all_rows(tmp_path, selection=Selection(types=None if types is None else frozenset(types)))
    assert [(row["type"], row["principal"], row["reason"]) for row in rows] == [
        row for row in expected if types is None or row[0] in types
    ]


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
