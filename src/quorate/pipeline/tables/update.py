"""Applies the new records of a source to all tables of a lake, incrementally and exactly once.

The events come first. Each entity's table is then computed from the events between the offset that the table
has applied and the one that the events have applied. A run that was killed at any point is continued by the
next one: a table that is behind is computed from where it is. Rows are replaced by ranges of offsets, so that
a range that is applied again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from quorate.dataclass import dataclass
from quorate.pipeline.lake_source import Extent, Source
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.continuation import continuation
from quorate.pipeline.tables.declaration import Entity
from quorate.pipeline.tables.events import ABORT, BEGIN, END, EVENTS, SOURCE_COLUMNS, to_events
from quorate.pipeline.tables.intervals import Batch, intervals
from quorate.pipeline.tables.lake import (
    Lake,
    LakeConflictError,
    LakeError,
    Progress,
    Report,
    commented,
    entity_columns,
)
from quorate.pipeline.tables.schema import migrate
from quorate.pipeline.tables.topics import TOPICS

CHUNK: Final = 5_000_000
"""The records of one commit. A longer log is applied in several commits, which bounds the space that a sort
needs and the work that a kill loses."""

ADVANCE_AFTER: Final = 100_000
"""A table that no record affects is left alone for so many records, because a commit costs more than to look at
the types of these records again. Then it gets an empty commit, so that a run does not look at ever more of them."""

_ATTEMPTS: Final = 5
_THREADS: Final = 3
"""The tables of small entities take little but latency, so some are computed at the same time."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What a run has applied to the tables."""

    cluster: str
    start: int
    """The offset from which it has read."""
    end: int
    """The offset up to which all tables are complete."""
    missing: tuple[int, int] | None = None
    """The offsets that the log did not have any more. A snapshot gives the state after them."""


def update(
    lake: Lake, source: Source, cluster: str | None = None, *, report: Report, chunk: int = CHUNK
) -> Applied:
    """Applies what is new. Repeats it from the new state of the lake if another run has committed meanwhile.
    Raises LakeError if the source is not the log that the lake has read before."""
    for _ in range(_ATTEMPTS):
        try:
            for name in migrate(lake, report):
                derive(lake, name, report)
            return _update(lake, source, cluster, report, chunk)
        except LakeConflictError as error:
            report(f"{error}; continuing from there")
            last = error
    raise last


def migrate_all(lake: Lake, report: Report) -> None:
    """Brings all tables to the current schema, and computes those anew that need it."""
    migrate(lake, report)
    for cluster in lake.clusters():
        derive(lake, cluster, report)


def _update(lake: Lake, source: Source, cluster: str | None, report: Report, chunk: int) -> Applied:
    cluster_id = source.cluster_id()
    name = cluster or cluster_id
    if name is None:
        raise LakeError("the source does not say which cluster it is: give it a name with --cluster")
    applied = lake.applied(EVENTS, name)
    extent = source.extent(applied)
    progress = continuation(lake, source, name, extent, report)
    first = at = progress.end
    if first != applied:
        extent = source.extent(first)
    missing = None
    if extent.snapshot is not None and first:
        missing = first, extent.snapshot - 1
        report(
            f"offsets {missing[0]} to {missing[1]} are not in the log any more: "
            f"the snapshot up to offset {extent.snapshot - 1} gives the state"
        )
    while at < extent.end:
        with _noticing_a_deletion(source, at, extent):
            step = _step(lake, source, extent, at, chunk)
            if step is None:
                break
            part, transactions = step
            rows = source.rows(lake.spark, part, SOURCE_COLUMNS)
            events = to_events(rows, name, cluster_id, transactions=transactions)
            lake.replace(EVENTS, name, events, f"offset >= {at}", progress._replace(end=part.end))
        derive(lake, name, report)
        at = part.end
        extent = Extent(at, extent.end)
    if at == first:
        derive(lake, name, report)  # an earlier run may have ended before it
    return Applied(name, first, at, missing)


@contextmanager
def _noticing_a_deletion(source: Source, at: int, extent: Extent) -> Iterator[None]:
    """Raises LakeConflictError if reading fails because the source has deleted records meanwhile."""
    try:
        yield
    except LakeError:
        raise
    except Exception as error:
        found = source.extent(at)
        if (found.start, found.snapshot) == (extent.start, extent.snapshot):
            raise
        raise LakeConflictError(
            f"the log has lost the records before offset {found.start} meanwhile"
        ) from error


def _step(lake: Lake, source: Source, extent: Extent, at: int, chunk: int) -> tuple[Extent, bool] | None:
    """The next records to apply, and whether they have transactions. Records of a transaction that has not
    ended are left for a later run. None if there are no others."""
    end = min(extent.end, extent.start + chunk)
    while True:
        part = Extent(extent.start, end, extent.snapshot)
        markers = source.rows(lake.spark, part, "offset,type,snapshot", f"{BEGIN},{END},{ABORT}")
        found = (
            markers.where(f.col("snapshot").isNull() & f.col("type").isin(BEGIN, END, ABORT))
            .agg(
                f.max(f.when(f.col("type") == BEGIN, f.col("offset"))).alias("begun"),
                f.max(f.when(f.col("type") != BEGIN, f.col("offset"))).alias("ended"),
            )
            .collect()[0]
        )
        begun, ended = found["begun"], found["ended"]
        if begun is None or (ended is not None and ended > begun):
            return (part, begun is not None) if part.end > at else None
        if begun > extent.start or extent.snapshot is not None:
            return Extent(extent.start, begun, extent.snapshot), ended is not None
        if end == extent.end:
            return None
        end = min(extent.end, end + chunk)


def derive(lake: Lake, cluster: str, report: Report) -> None:
    """Computes the tables of all entities up to the offset that the events have applied."""
    to = lake.progress(EVENTS, cluster)
    progress = {name: lake.progress(name, cluster) for name in ENTITIES}
    behind = [name for name, found in progress.items() if found.end < to.end]
    if not behind:
        return
    found = _Range.of(lake, cluster, min([progress[name].end for name in behind]), to.end)

    def compute(name: str) -> None:
        start = progress[name]
        target = Progress(max(start.generation, to.generation), to.end)
        if found.affects(ENTITIES[name], start.end):
            _derive(lake, cluster, ENTITIES[name], found, start.end, target)
        elif to.end - start.end > ADVANCE_AFTER:
            lake.advance(name, cluster, target)

    if TOPICS.name in behind:
        compute(TOPICS.name)
    with ThreadPoolExecutor(_THREADS) as pool:
        for done in [pool.submit(compute, name) for name in behind if name != TOPICS.name]:
            done.result()
    report(f"{cluster}: applied up to offset {to.end - 1}")


@dataclass(frozen=True, slots=True)
class _Range:
    """A range of the events."""

    last: dict[str, int]
    """The last offset of each record type."""
    last_reset: int
    """The offset of the last snapshot that replaces records which the lake has applied, or -1."""

    @classmethod
    def of(cls, lake: Lake, cluster: str, start: int, end: int) -> _Range:
        """Looks into the events of a range. Raises LakeError if some are missing."""
        snapshot = f.col("snapshot")
        rows = (
            events_between(lake, cluster, start, end)
            .groupBy("type", f.when(f.col("type") == "SNAPSHOT_HEADER", snapshot).alias("header"))
            .agg(
                f.max("offset").alias("last"),
                f.count(f.when(snapshot.isNull(), 1)).alias("records"),
                f.min(f.when(snapshot.isNull(), f.col("offset"))).alias("log_first"),
                f.max(f.when(snapshot.isNull(), f.col("offset"))).alias("log_last"),
            )
            .collect()
        )
        headers = sorted([row["last"] for row in rows if row["header"] is not None])
        records = sum([row["records"] for row in rows])
        first = min([row["log_first"] for row in rows if row["records"]], default=end)
        last = max([row["log_last"] for row in rows if row["records"]], default=end)
        # The snapshot with which a lake begins replaces nothing.
        resets = headers[1:] if start == 0 and headers and first > headers[0] else headers
        if not resets and records and records != last - first + 1:
            raise LakeError(
                f"{lake.path(EVENTS)} has {records} records of cluster {cluster} from offset {first} to "
                f"{last}: some are missing or doubled"
            )
        last_of = {row["type"]: row["last"] for row in sorted(rows, key=lambda row: row["last"])}
        return cls(last_of, max(resets, default=-1))

    def types(self, start: int) -> frozenset[str]:
        """The record types from an offset on."""
        return frozenset([name for name, last in self.last.items() if last >= start])

    def affects(self, entity: Entity, start: int) -> bool:
        """Whether records from an offset on change an entity's table."""
        return bool(self.types(start) & entity.record_types) or self.last_reset >= start > 0


def events_between(lake: Lake, cluster: str, start: int, end: int) -> DataFrame:
    """The events of a range of offsets."""
    return lake.read(EVENTS, cluster).where((f.col("offset") >= start) & (f.col("offset") < end))


def _derive(lake: Lake, cluster: str, entity: Entity, found: _Range, start: int, target: Progress) -> None:
    """Computes the rows of an entity's table that the events from an offset on change, and replaces them."""
    ends = f.col("valid_to_offset")
    valid = ends.isNull() | (ends >= start)
    batch = Batch(
        events_between(lake, cluster, start, target.end),
        found.types(start),
        found.last_reset >= start,
        lake.read(entity.name, cluster).where(valid & (f.col("valid_from_offset") < start))
        if start
        else None,
        lake.read(TOPICS.name, cluster).where(valid) if entity.names_topics else None,
    )
    columns = [commented(f.col(column.name), column) for column in entity_columns(entity)]
    rows = intervals(entity, batch).withColumn("cluster", f.lit(cluster)).select(*columns)
    condition = f"(valid_to_offset IS NULL OR valid_to_offset >= {start})"
    lake.replace(entity.name, cluster, rows, condition, target)


def complete_end(lake: Lake, cluster: str, entity: Entity) -> int:
    """The offset up to which an entity's table is complete. A table that no record has changed since is behind
    the events, and complete nevertheless."""
    end, own = lake.applied(EVENTS, cluster), lake.applied(entity.name, cluster)
    if own >= end:
        return end
    types = [*entity.record_types, "SNAPSHOT_HEADER"]
    later = events_between(lake, cluster, own, end).where(f.col("type").isin(*types))
    return end if later.isEmpty() else own
