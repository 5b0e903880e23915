"""Writes new records to the table `events`: a few in this process, more in the processes of Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from quorate.dataclass import dataclass
from quorate.pipeline.applying.summary import Summary
from quorate.pipeline.datasource.options import Options
from quorate.pipeline.datasource.source import MetadataLogReader
from quorate.pipeline.datasource.tasks import read_task
from quorate.pipeline.lake_source import Extent, Source, is_little
from quorate.pipeline.storage.data_files import DataFile, DataFileWriter, Place
from quorate.pipeline.storage.jobs import each
from quorate.pipeline.tables.events import (
    BEGIN,
    EVENT_SCHEMA,
    MARKER_COLUMNS,
    MARKERS,
    SOURCE_COLUMNS,
    Transactions,
    to_events,
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """Records that were written to the table `events`."""

    start: int
    end: int
    summary: Summary
    files: tuple[DataFile, ...]
    rows: pa.Table | None
    """The rows, if there are few."""


@dataclass(frozen=True, slots=True)
class Markers:
    """The records of a range that begin and end transactions."""

    offsets: Any
    kinds: tuple[str, ...]

    @property
    def last_begin(self) -> int | None:
        """Where the last transaction begins."""
        return self._last(begins=True)

    @property
    def last_end(self) -> int | None:
        """Where the last one ends."""
        return self._last(begins=False)

    def before(self, offset: int) -> Markers:
        """Those before an offset."""
        kept = self.offsets < offset
        return Markers(
            self.offsets[kept], tuple([kind for kind, has in zip(self.kinds, kept, strict=True) if has])
        )

    def _last(self, *, begins: bool) -> int | None:
        found = zip(self.offsets.tolist(), self.kinds, strict=True)
        return max([at for at, kind in found if (kind == BEGIN) is begins], default=None)


def find_markers(spark: SparkSession, source: Source, extent: Extent) -> Markers:
    """The markers of transactions in an extent. The columns of the other records are not decoded."""
    reader = source.reader(extent, MARKER_COLUMNS, ",".join(MARKERS))
    parts = [part for part in _results(spark, extent, reader, _markers_of) if part[1]]
    offsets = np.concatenate([part[0] for part in parts]) if parts else np.zeros(0, np.int64)
    return Markers(offsets, tuple([kind for part in parts for kind in part[1]]))


def _results(spark: SparkSession, extent: Extent, reader: MetadataLogReader, work: Any) -> list[Any]:
    tasks, options = reader.partitions(), reader.options
    if is_little(extent):
        return [work(task, options) for task in tasks]
    return each(spark, tasks, lambda task: work(task, options))


def _markers_of(task: Any, options: Options) -> tuple[Any, list[str]]:
    offsets: list[int] = []
    kinds: list[str] = []
    for batch in read_task(task, options):
        chosen = pc.and_(pc.is_in(batch["type"], value_set=pa.array(MARKERS)), pc.is_null(batch["snapshot"]))
        found = batch.filter(chosen)
        offsets += found["offset"].to_pylist()
        kinds += map(sys.intern, found["type"].to_pylist())  # one object for each kind: there may be millions
    return np.array(offsets, np.int64), kinds


def write_events(
    spark: SparkSession, source: Source, extent: Extent, at: int, markers: Markers, place: Place
) -> Arrival:
    """Writes the files of an extent, and does not commit them."""
    cluster_id = source.cluster_id()
    transactions = Transactions.of(markers.offsets, markers.kinds)
    reader = source.reader(extent, SOURCE_COLUMNS)
    options = reader.options
    if is_little(extent):
        batches = [
            batch
            for task in reader.partitions()
            for batch in _events_of(task, options, cluster_id, transactions)
        ]
        rows = pa.Table.from_batches(batches, EVENT_SCHEMA)
        file, summary = _written(place, iter([rows] if rows.num_rows else []))
        return Arrival(at, extent.end, summary, _all(file), rows)

    def write(task: Any) -> tuple[DataFile | None, Summary]:
        found = _events_of(task, options, cluster_id, transactions)
        return _written(place, (pa.Table.from_batches([batch]) for batch in found))

    results = each(spark, reader.partitions(), write)
    files = tuple([file for found, _ in results for file in _all(found)])
    return Arrival(at, extent.end, Summary.joined([summary for _, summary in results]), files, None)


def _all(file: DataFile | None) -> tuple[DataFile, ...]:
    return () if file is None else (file,)


def _events_of(
    task: Any, options: Options, cluster_id: str | None, transactions: Transactions
) -> Iterator[pa.RecordBatch]:
    for batch in read_task(task, options):
        yield to_events(batch, cluster_id, transactions)


def _written(place: Place, tables: Iterator[pa.Table]) -> tuple[DataFile | None, Summary]:
    parts = []
    with DataFileWriter(place, EVENT_SCHEMA) as writer:
        for table in tables:
            writer.write(table)
            parts.append(Summary.of(table))
        return writer.close(), Summary.joined(parts)
