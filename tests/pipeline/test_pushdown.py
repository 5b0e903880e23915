"""Filters that are pushed down to the data source reduce what is read, and not what is found."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from pyspark.sql import datasource as d

from quorate.metadata import records as r
from quorate.metadata.framing import encode_record
from quorate.pipeline.datasource.options import parse_options
from quorate.pipeline.datasource.source import FilteringReader, MetadataLogReader
from quorate.records.batch import build_control_batch, build_metadata_batch
from quorate.records.control import ControlRecordType, LeaderChangeMessage

from .conftest import ORDERS, config, partition, topic, write_state

Row = dict[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = [-(10**9), -1, 0, 1, 999, 1000, 1001, 10**12, 10**13, 253_402_300_799_999]
TYPES = [
    "TOPIC_RECORD",
    "CONFIG_RECORD",
    "NO_OP_RECORD",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "NO_SUCH_TYPE",
    "",
]

COMPARISONS: dict[Any, Callable[[Any, Any], bool]] = {
    d.EqualTo: operator.eq,
    d.GreaterThan: operator.gt,
    d.GreaterThanOrEqual: operator.ge,
    d.LessThan: operator.lt,
    d.LessThanOrEqual: operator.le,
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log in three segments with a snapshot in the middle, and times that go back and forth."""
    rng = random.Random(1)
    folder = tmp_path_factory.mktemp("log")
    change = LeaderChangeMessage(leader_id=1, voters=[], granting_voters=[]).encode(0)
    kinds = [[topic("orders", ORDERS), partition(ORDERS)], [config("orders", "k", "v")], [r.NoOpRecord()]]
    times = cycle(rng.sample(TIMES, len(TIMES)))
    offset = 0
    for _ in range(3):
        with (folder / f"{offset:020d}.log").open("wb") as out:
            for _ in range(12):
                place = {"base_offset": offset, "leader_epoch": 1, "timestamp": next(times)}
                if rng.random() < 0.2:
                    out.write(build_control_batch([(ControlRecordType.LEADER_CHANGE, change)], **place))
                    offset += 1
                else:
                    values = [encode_record(record, 0) for record in rng.choice(kinds)]
                    out.write(build_metadata_batch(values, **place))
                    offset += len(values)
    write_state(folder, offset // 2, [topic("orders", ORDERS), partition(ORDERS)])
    return folder


def read(reader: MetadataLogReader) -> list[Row]:
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def holds(found: Any, row: Row) -> bool | None:
    """Whether a filter holds for a row, or None if that is not known because of a null."""
    if isinstance(found, d.Not):
        inner = holds(found.child, row)
        return None if inner is None else not inner
    value = row[found.attribute[0]]
    match found:
        case d.IsNull():
            return value is None
        case d.IsNotNull():
            return value is not None
        case d.EqualNullSafe():
            return bool(value == found.value)
        case d.In():
            if value is None:
                return None
            return True if value in found.value else None if None in found.value else False
        case d.StringStartsWith():
            return None if value is None else value.startswith(found.value)
        case _:
            return None if None in (value, found.value) else COMPARISONS[type(found)](value, found.value)


def any_filter(rng: random.Random) -> Any:
    column = rng.choice(
        ["offset", "offset", "timestamp", "timestamp", "type", "type", "snapshot", "position"]
    )
    values: dict[str, Callable[[], Any]] = {
        "timestamp": lambda: (
            EPOCH + timedelta(milliseconds=rng.choice(TIMES), microseconds=rng.randint(-2, 2))
        ),
        "type": lambda: rng.choice(TYPES),
    }
    numbers = [*range(-2, 60), 1 << 40, (1 << 63) - 1, -(1 << 63)]
    value = values.get(column, lambda: rng.choice(numbers))
    match rng.randrange(8):
        case 0:
            found = rng.choice([d.IsNull, d.IsNotNull])((column,))
        case 1:
            listed = tuple([value() for _ in range(rng.randrange(4))]) + rng.choice([(), (None,)])
            found = d.In((column,), listed)
        case 2 if column == "type":
            found = d.StringStartsWith((column,), "T")
        case 3:
            found = d.EqualNullSafe((column,), rng.choice([None, value()]))
        case 4:
            found = d.EqualTo((column,), None)
        case _:
            found = rng.choice(list(COMPARISONS))((column,), value())
    return d.Not(found) if rng.random() < 0.2 else found


def check(given: dict[str, str], filters: list[Any]) -> None:
    options = parse_options(given)
    reader = FilteringReader(options)
    assert list(reader.pushFilters(filters)) == filters, "Spark evaluates all of them again"
    wanted, found = (
        [row for row in rows if all(holds(each, row) for each in filters)]
        for rows in (read(MetadataLogReader(options)), read(reader))
    )
    assert found == wanted, (given, filters)


@pytest.mark.parametrize("comparison", COMPARISONS, ids=lambda found: found.__name__)
def test_comparisons_with_every_time_find_every_row(log: Path, comparison: Any) -> None:
    for time in TIMES:
        for microseconds in (-1, 0, 1) if time < TIMES[-1] else (-1, 0):
            value = EPOCH + timedelta(milliseconds=time, microseconds=microseconds)
            check({"path": str(log)}, [comparison(("timestamp",), value)])


@pytest.mark.parametrize("seed", range(4))
def test_random_filters_find_the_same_rows_as_without_push_down(log: Path, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        given = {"path": str(log), "sliceBytes": rng.choice(["1", "500", "1000000"])}
        if rng.random() < 0.3:
            given["startOffset"] = str(rng.randrange(40))
        if rng.random() < 0.3:
            given["endOffset"] = str(rng.randrange(60))
        check(given, [any_filter(rng) for _ in range(rng.randint(1, 3))])


@pytest.mark.parametrize(
    ("found", "suffixes"),
    [
        ([d.GreaterThanOrEqual(("offset",), 1 << 40)], set()),
        ([d.LessThan(("offset",), 1)], {".log"}),
        ([d.IsNotNull(("snapshot",))], {".checkpoint"}),
        ([d.IsNull(("snapshot",))], {".log"}),
        ([d.In(("type",), ("TOPIC_RECORD",))], {".log", ".checkpoint"}),
    ],
)
def test_files_without_a_row_that_a_filter_leaves_are_not_opened(
    log: Path, found: list[Any], suffixes: set[str]
) -> None:
    reader = FilteringReader(parse_options({"path": str(log)}))
    list(reader.pushFilters(found))
    paths = [Path(part.path) for task in reader.partitions() for part in task.parts]
    last = max(log.glob("*.log"))  # where it ends is not known before it is read
    assert {path.suffix for path in paths if path != last} == suffixes
