"""What is known of a range of the events without looking at them again."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")
pytest.importorskip("pyarrow", reason="PyArrow is not installed (pip install 'quorate[spark]')")

import pyarrow as pa

from quorate.pipeline.applying.summary import Summary
from quorate.pipeline.tables import ENTITIES

TOPIC, CHANGE, HEADER = "TOPIC_RECORD", "PARTITION_CHANGE_RECORD", "SNAPSHOT_HEADER"


def summary(*rows: tuple[int, str, int | None]) -> Summary:
    """The summary of rows with offset, type and snapshot."""
    offsets, kinds, snapshots = zip(*rows, strict=True)
    columns = [pa.array(offsets, pa.int64()), pa.array(kinds), pa.array(snapshots, pa.int64())]
    return Summary.of(pa.table(columns, names=["offset", "type", "snapshot"]))


def test_ranges_are_joined() -> None:
    found = Summary.joined(
        [
            summary((4, TOPIC, None), (5, CHANGE, None)),
            Summary(),
            summary((6, CHANGE, None), (7, CHANGE, None)),
        ]
    )
    assert (found.last, found.counts) == ({TOPIC: 4, CHANGE: 7}, {TOPIC: 1, CHANGE: 3})
    assert (found.records, found.first, found.end, found.is_complete) == (4, 4, 8, True)
    assert (found.types(4), found.types(5), found.types(8)) == ({TOPIC, CHANGE}, {CHANGE}, set())
    assert found.count(ENTITIES["topics"]) == 1
    assert found.count(ENTITIES["partitions"]) == 3


def test_missing_and_doubled_records_are_noticed() -> None:
    one, far = summary((4, TOPIC, None)), summary((6, CHANGE, None))
    assert not Summary.joined([one, far]).is_complete
    assert not Summary.joined([one, one]).is_complete
    assert Summary().is_complete


def test_only_the_snapshot_with_which_a_lake_begins_replaces_nothing() -> None:
    first = summary((9, HEADER, 10), (9, TOPIC, 10), (10, CHANGE, None))
    assert first.resets(0) == ()
    assert first.resets(4) == (9,)
    assert first.records == 1
    later = summary((19, HEADER, 20), (19, TOPIC, 20), (20, CHANGE, None))
    assert Summary.joined([first, later]).resets(0) == (19,)
    after_records = summary((0, TOPIC, None), (1, CHANGE, None), (9, HEADER, 10), (10, CHANGE, None))
    assert after_records.resets(0) == (9,)
