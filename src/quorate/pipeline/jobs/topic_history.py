"""Computes the history of every topic of a cluster from a metadata log directory.

Each row is an event: a topic was created or deleted, a partition was added or changed (leader, ISR,
replicas, ELR), a config was set or removed. It has the offset and the time of its record. This module
reads the log, sends the records to the processes of Spark, and writes the events.
`quorate.pipeline.history.topic_events` computes the events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from quorate.pipeline.datasource.options import Options, parse_options
from quorate.pipeline.datasource.source import MetadataLogReader
from quorate.pipeline.datasource.tasks import FileTask, read_task
from quorate.pipeline.history.steps import POSITION
from quorate.pipeline.history.topic_events import (
    EVENT_COLUMNS,
    EVENT_SCHEMA,
    RECORD_COLUMNS,
    RECORD_TYPES,
    config_events,
    divide,
    topic_events,
)
from quorate.pipeline.storage.jobs import packed, unpacked

_EVENT_DDL: Final = (
    "topic string, topic_id string, offset bigint, timestamp timestamp, event string, partition int, "
    f"changes array<struct<field:string,old:string,new:string>>, snapshot bigint, {POSITION} bigint"
)

_PART_BYTES: Final = 32 << 20
"""The bytes of the log whose events a process computes at a time."""

_DIVIDED_ROWS: Final = 1 << 16
"""The rows that a task collects before it divides them: every division gives each part a message."""
_ROWS: Final = 1 << 14
"""The rows of a batch that Spark gets."""

_SENT: Final = pa.schema([("part", pa.int32()), ("rows", pa.binary())])


def history(spark: SparkSession, path: str) -> DataFrame:
    """Returns the events of all topics, unordered, with EVENT_COLUMNS and `position`.

    `position` orders events of the same offset.
    """

    def batches(events: pa.Table) -> pa.Table:
        return pa.Table.from_batches(events.to_batches(_ROWS), EVENT_SCHEMA)

    return _by_parts(spark, path, lambda _, events: batches(events), _EVENT_DDL)


def write_parquet(spark: SparkSession, path: str, folder: str, topics: Collection[str] = ()) -> None:
    """Writes the events of all topics, or of some, as Parquet files to a new local folder.

    The tasks write the files themselves, because Spark's writer of rows takes longer than all the rest.
    If there is no event, one file without rows is written: readers take the schema from it. Raises
    OSError, also if the folder exists.
    """
    Path(folder).mkdir(parents=True)

    def write(part: int, events: pa.Table) -> pa.Table:
        if topics:
            events = events.filter(pc.is_in(events["topic"], value_set=pa.array(topics)))
        if events.num_rows:
            _write_part(folder, part, events)
        return pa.table({"events": [events.num_rows]})

    counts = _by_parts(spark, path, write, "events bigint").collect()
    if not any(row["events"] for row in counts):
        _write_part(folder, 0, EVENT_SCHEMA.empty_table())
    Path(folder, "_SUCCESS").touch()


def _write_part(folder: str, part: int, events: pa.Table) -> None:
    parquet.write_table(events.select(EVENT_COLUMNS), f"{folder}/part-{part:05}.snappy.parquet")


def _by_parts(
    spark: SparkSession, path: str, work: Callable[[int, pa.Table], pa.Table], ddl: str
) -> DataFrame:
    """Calls a function with the number and the events of each part, and returns the rows of its results."""
    tasks, options = _tasks(path)
    count = 1 + _size(tasks) // _PART_BYTES

    def send(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in [number for batch in numbers for number in batch["id"].to_pylist()]:
            for part, rows in _sent(read_task(tasks[number], options), count):
                yield pa.RecordBatch.from_pydict({"part": [part], "rows": [packed(rows)]}, _SENT)

    def receive(found: pa.Table) -> pa.Table:
        rows = pa.concat_tables([unpacked(data.as_py()) for data in found["rows"]])
        part = found["part"][0].as_py()
        return work(part, topic_events(rows) if part < count else config_events(rows))

    sent = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(send, "part int, rows binary")
    return sent.groupBy("part").applyInArrow(receive, ddl)


def history_here(path: str, limit_bytes: int) -> pa.Table | None:
    """Computes the same events as `history` in this process, without Spark. Returns None if the log is larger
    than a limit."""
    tasks, options = _tasks(path)
    if _size(tasks) > limit_bytes:
        return None
    batches = [batch for task in tasks for batch in read_task(task, options)]
    if not batches:
        return EVENT_SCHEMA.empty_table()
    rows = pa.Table.from_batches(batches)
    return pa.concat_tables([topic_events(rows), config_events(rows)])


def _tasks(path: str) -> tuple[Sequence[Any], Options]:
    options = parse_options(
        {
            "path": path,
            "snapshots": "resets",
            "columns": ",".join(RECORD_COLUMNS),
            "types": ",".join(sorted(RECORD_TYPES)),
        }
    )
    return MetadataLogReader(options).partitions(), options


def _size(tasks: Sequence[FileTask]) -> int:
    return sum([part.size_bytes for task in tasks for part in task.parts])


def _sent(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[tuple[int, pa.Table]]:
    """Yields the records of a task by part, many rows at a time."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum([found.num_rows for found in waiting]) >= _DIVIDED_ROWS:
            yield from divide(pa.Table.from_batches(waiting), count)
            waiting = []
    if waiting:
        yield from divide(pa.Table.from_batches(waiting), count)
