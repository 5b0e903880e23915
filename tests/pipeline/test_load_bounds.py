"""The options of a load say which rows it has, so that less is read: exactly the rows that a filter
would leave."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")

from quorate.metadata import records as r
from quorate.metadata.framing import encode_record
from quorate.pipeline.datasource.columns import LOG_COLUMNS
from quorate.pipeline.datasource.options import parse_options
from quorate.pipeline.datasource.source import MetadataLogReader
from quorate.records.batch import build_control_batch, build_metadata_batch
from quorate.records.control import ControlRecordType, LeaderChangeMessage

from .conftest import ORDERS, config, partition, topic, write_state

Row = dict[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = 253_402_300_799_999
TIMES = [-(10**9), -1, 0, 1, 999, 1000, 1001, 10**12, 10**13, LAST_MS, LAST_MS + 1, 1 << 62]
"""Of the log's batches, in ms. The last two are in no calendar."""

TYPES = ["TOPIC_RECORD", "CONFIG_RECORD", "NO_OP_RECORD", "LEADER_CHANGE", "SNAPSHOT_HEADER"]
COLUMNS = ",".join([*LOG_COLUMNS, "topic_record", "config_record.value"])


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
            for _ in range(14):
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


def read(given: dict[str, str]) -> list[Row]:
    reader = MetadataLogReader(parse_options(given))
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def matches(row: Row, given: dict[str, str]) -> bool:
    """Whether the options leave a row of all."""
    time = row["timestamp"]
    if "startTime" in given or "endTime" in given:
        first, end = (given.get(name) for name in ("startTime", "endTime"))
        if time is None or (first is not None and time < moment(first)):
            return False
        if end is not None and time >= moment(end):
            return False
    if row["snapshot"] is not None:
        return given.get("snapshots") != "none" and row["type"] in given.get("types", row["type"])
    return int(given.get("startOffset", 0)) <= row["offset"] < int(given.get("endOffset", 1 << 60)) and row[
        "type"
    ] in given.get("types", row["type"])


def moment(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def any_time(rng: random.Random) -> str:
    time = EPOCH + timedelta(milliseconds=rng.choice(TIMES[:-2]))
    nudge = rng.randint(-2, 2 if time.year < 9999 else 0)
    time += timedelta(microseconds=nudge)
    if rng.random() < 0.3 and time.year < 9999:
        return time.astimezone(UTC).isoformat()
    return time.replace(tzinfo=None).isoformat()


@pytest.mark.parametrize("seed", range(4))
def test_random_options_find_the_rows_that_filters_would_leave(log: Path, seed: int) -> None:
    rng = random.Random(seed)
    every = read({"path": str(log), "columns": COLUMNS})
    assert {row["snapshot"] is None for row in every} == {True, False}
    assert any(row["timestamp"] is None for row in every)
    found = 0
    for _ in range(60):
        possible = {
            "startOffset": str(rng.randrange(50)),
            "endOffset": str(rng.randrange(70)),
            "startTime": any_time(rng),
            "endTime": any_time(rng),
            "types": ",".join(rng.sample(TYPES, rng.randint(1, 3))),
            "snapshots": rng.choice(["none", "all"]),
        }
        some = {name: value for name, value in possible.items() if rng.random() < 0.3}
        given = {"path": str(log), "columns": COLUMNS, "sliceBytes": rng.choice(["1", "500", "1000000"])}
        rows = read(given | some)
        assert rows == [row for row in every if matches(row, some)], some
        found += len(rows)
    assert found > 60, "the options leave rows"


@pytest.mark.parametrize("milliseconds", TIMES[:-2])
@pytest.mark.parametrize("microseconds", [-1, 0, 1])
def test_a_time_is_exact_to_the_microsecond(log: Path, milliseconds: int, microseconds: int) -> None:
    if milliseconds == LAST_MS and microseconds > 0:
        microseconds = 999
    time = (EPOCH + timedelta(milliseconds=milliseconds, microseconds=microseconds)).isoformat()
    every = read({"path": str(log), "columns": COLUMNS})
    for name in ("startTime", "endTime"):
        assert read({"path": str(log), "columns": COLUMNS, name: time}) == [
            row for row in every if matches(row, {name: time})
        ]


def test_files_outside_of_the_offsets_are_not_opened(log: Path) -> None:
    def suffixes(**given: str) -> set[str]:
        reader = MetadataLogReader(parse_options({"path": str(log), **given}))
        paths = [Path(part.path) for task in reader.partitions() for part in task.parts]
        last = max(log.glob("*.log"))  # where it ends is not known before it is read
        return {path.suffix for path in paths if path != last}

    assert suffixes() == {".log", ".checkpoint"}
    assert suffixes(startOffset=str(1 << 40), snapshots="none") == set()
    assert suffixes(snapshots="none") == {".log"}
    assert suffixes(endOffset="0") == {".checkpoint"}


def test_a_snapshot_that_is_not_there_is_refused(log: Path) -> None:
    (end,) = [int(path.stem[:20]) for path in log.glob("*.checkpoint")]
    rows = read({"path": str(log), "columns": COLUMNS, "snapshots": str(end)})
    assert {row["snapshot"] for row in rows} == {None, end}
    with pytest.raises(ValueError, match=f"has no snapshot {end + 1}, only {end}"):
        read({"path": str(log), "columns": COLUMNS, "snapshots": str(end + 1)})
