"""Applies the new records of a source to all tables of a lake, incrementally and exactly once.

The events come first. Each entity's table is then computed from the events between the offset that the table
has applied and the one that the events have applied. A run that was killed at any point is continued by the
next one: a table that is behind is computed from where it is. Rows are replaced by ranges of offsets, so that
a range that is applied again changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from quorate.dataclass import dataclass
from quorate.pipeline.lake_source import FEW_RECORDS, Extent, Source, is_little
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.continuation import continuation
from quorate.pipeline.tables.declaration import Entity
from quorate.pipeline.tables.events import (
    BEGIN,
    EVENTS,
    MARKER_COLUMNS,
    MARKERS,
    SOURCE_COLUMNS,
    to_events,
)
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
from quorate.pipeline.tables.session_settings import LITTLE_WORK, settings
from quorate.pipeline.tables.topics import TOPICS

CHUNK: Final = 5_000_000
"""The records of one commit. A longer log is applied in several commits, which bounds the space that a sort
needs and the work that a kill loses."""

ADVANCE_AFTER: Final = 100_000
"""A table that no record affects is left alone for so many records, because a commit costs more than to look at
the types of these records again. Then it gets an empty commit, so that a run does not look at ever more of them."""

LITTLE_BYTES: Final = 2 << 20
"""A table up to this size is written as a whole: that takes less than to find the files with the rows that change, and
to write what is left of these. It also remains one file."""

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
            with lake.pinned():
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
        little = settings(lake.spark, LITTLE_WORK if is_little(extent) else {})
        with little, _noticing_a_deletion(source, at, extent):
            step = _step(lake, source, extent, at, chunk)
            if step is None:
                break
            part, transactions = step
            rows = source.rows(lake.spark, part, SOURCE_COLUMNS)
            markers = _markers(lake, source, part) if transactions else None
            events = to_events(rows, name, cluster_id, markers)
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
        begun, ended = _last_markers(lake, source, part)
        if begun is None or (ended is not None and ended > begun):
            return (part, begun is not None) if part.end > at else None
        if begun > extent.start or extent.snapshot is not None:
            return Extent(extent.start, begun, extent.snapshot), ended is not None
        if end == extent.end:
            return None
        end = min(extent.end, end + chunk)


def _last_markers(lake: Lake, source: Source, part: Extent) -> tuple[int | None, int | None]:
    """The offsets at which the last transaction begins, and at which the last one ends."""
    batches = source.few(part, MARKER_COLUMNS, ",".join(MARKERS))
    if batches is not None:
        rows = [row for batch in batches for row in batch.to_pylist() if row["type"] in MARKERS]
        begun = max([row["offset"] for row in rows if row["type"] == BEGIN], default=None)
        return begun, max([row["offset"] for row in rows if row["type"] != BEGIN], default=None)
    found = (
        _markers(lake, source, part)
        .where(f.col("snapshot").isNull() & f.col("type").isin(*MARKERS))
        .agg(
            f.max(f.when(f.col("type") == BEGIN, f.col("offset"))).alias("begun"),
            f.max(f.when(f.col("type") != BEGIN, f.col("offset"))).alias("ended"),
        )
        .collect()[0]
    )
    return found["begun"], found["ended"]


def _markers(lake: Lake, source: Source, part: Extent) -> DataFrame:
    """The records that begin and end transactions. The columns of the others are not decoded."""
    return source.rows(lake.spark, part, MARKER_COLUMNS, ",".join(MARKERS))


def derive(lake: Lake, cluster: str, report: Report, *, every: bool = False) -> None:
    """Computes the tables of all entities up to the offset that the events have applied. With `every`, those get a
    commit, too, that no record affects. Raises LakeError if the events that a table needs have expired."""
    to = lake.progress(EVENTS, cluster)
    progress = {name: lake.progress(name, cluster) for name in ENTITIES}
    behind = [name for name, found in progress.items() if found.end < to.end]
    if not behind:
        return
    expired = lake.expired(cluster)
    lost = [name for name in behind if progress[name].end < expired]
    if lost:
        raise LakeError(
            f"{', '.join(lost)} of cluster {cluster} in {lake.folder} have lost commits, and events before offset "
            f"{expired}, from which they would be computed again, have expired: restore these tables"
        )
    start = min([progress[name].end for name in behind])
    events = events_between(lake, cluster, start, to.end)
    with settings(lake.spark, LITTLE_WORK if to.end - start <= ADVANCE_AFTER else {}):
        found = _Range.of(lake, cluster, events, start)
    affected = [name for name in behind if found.affects(ENTITIES[name], progress[name].end)]

    def target(name: str) -> Progress:
        return Progress(max(progress[name].generation, to.generation), to.end)

    if affected:
        start = min([progress[name].end for name in affected])
        some, count = events.where(f.col("offset") >= start), to.end - start + found.in_snapshots
        sizes = {name: lake.size_bytes(name) for name in affected}
        whole = {name for name, size in sizes.items() if count <= FEW_RECORDS and size <= LITTLE_BYTES}
        with _prepared(lake, some, count, max(sizes.values())) as prepared:

            def compute(name: str) -> None:
                part = _Part(prepared, found, progress[name].end, whole=name in whole)
                _derive(lake, cluster, ENTITIES[name], part, target(name))

            if TOPICS.name in affected:
                compute(TOPICS.name)
            with ThreadPoolExecutor(_THREADS) as pool:
                for done in [pool.submit(compute, name) for name in affected if name != TOPICS.name]:
                    done.result()
    for name in behind:
        if name not in affected and (every or to.end - progress[name].end > ADVANCE_AFTER):
            lake.advance(name, cluster, target(name))
    report(f"{cluster}: applied up to offset {to.end - 1}")


@contextmanager
def _prepared(lake: Lake, events: DataFrame, records: int, size_bytes: int) -> Iterator[DataFrame]:
    """Events that tables of some size need. Few ones stay in memory, because each table looks at them several times."""
    if records > FEW_RECORDS:
        yield events
        return
    with settings(lake.spark, LITTLE_WORK if size_bytes <= LITTLE_BYTES else {}):
        kept = events.persist()
        try:
            yield kept
        finally:
            kept.unpersist()


@dataclass(frozen=True, slots=True)
class _Range:
    """A range of the events."""

    last: dict[str, int]
    """The last offset of each record type."""
    last_reset: int
    """The offset of the last snapshot that replaces records which the lake has applied, or -1."""
    in_snapshots: int
    """The number of records in snapshots."""

    @classmethod
    def of(cls, lake: Lake, cluster: str, events: DataFrame, start: int) -> _Range:
        """Looks into the events from an offset on. Raises LakeError if some are missing."""
        snapshot = f.col("snapshot")
        rows = (
            events.groupBy("type", f.when(f.col("type") == "SNAPSHOT_HEADER", snapshot).alias("header"))
            .agg(
                f.max("offset").alias("last"),
                f.count("*").alias("rows"),
                f.count(f.when(snapshot.isNull(), 1)).alias("records"),
                f.min(f.when(snapshot.isNull(), f.col("offset"))).alias("log_first"),
                f.max(f.when(snapshot.isNull(), f.col("offset"))).alias("log_last"),
            )
            .collect()
        )
        headers = sorted([row["last"] for row in rows if row["header"] is not None])
        records = sum([row["records"] for row in rows])
        first = min([row["log_first"] for row in rows if row["records"]], default=sys.maxsize)
        last = max([row["log_last"] for row in rows if row["records"]], default=-1)
        # The snapshot with which a lake begins replaces nothing.
        resets = headers[1:] if start == 0 and headers and first > headers[0] else headers
        if not resets and records and records != last - first + 1:
            raise LakeError(
                f"{lake.path(EVENTS)} has {records} records of cluster {cluster} from offset {first} to "
                f"{last}: some are missing or doubled"
            )
        last_of = {row["type"]: row["last"] for row in sorted(rows, key=lambda row: row["last"])}
        return cls(last_of, max(resets, default=-1), sum([row["rows"] for row in rows]) - records)

    def types(self, start: int) -> frozenset[str]:
        """The record types from an offset on."""
        return frozenset([name for name, last in self.last.items() if last >= start])

    def affects(self, entity: Entity, start: int) -> bool:
        """Whether records from an offset on change an entity's table."""
        return bool(self.types(start) & entity.record_types) or self.last_reset >= start > 0


def events_between(lake: Lake, cluster: str, start: int, end: int) -> DataFrame:
    """The events of a range of offsets."""
    return lake.read(EVENTS, cluster).where((f.col("offset") >= start) & (f.col("offset") < end))


@dataclass(frozen=True, slots=True)
class _Part:
    """What a table is computed from."""

    events: DataFrame
    range: _Range
    start: int
    """The offset that the table has applied."""
    whole: bool
    """Whether the table is written as a whole."""


def _derive(lake: Lake, cluster: str, entity: Entity, part: _Part, target: Progress) -> None:
    """Computes the rows of an entity's table that the events from an offset on change, and replaces them."""
    start, ends = part.start, f.col("valid_to_offset")
    valid = ends.isNull() | (ends >= start)
    batch = Batch(
        part.events.where(f.col("offset") >= start),
        part.range.types(start),
        part.range.last_reset >= start,
        lake.read(entity.name, cluster).where(valid & (f.col("valid_from_offset") < start))
        if start
        else None,
        lake.read(TOPICS.name, cluster).where(valid) if entity.names_topics else None,
    )
    columns = [commented(f.col(column.name), column) for column in entity_columns(entity)]
    rows = intervals(entity, batch).withColumn("cluster", f.lit(cluster)).select(*columns)
    condition = f"(valid_to_offset IS NULL OR valid_to_offset >= {start})"
    if part.whole and start:
        ended = lake.read(entity.name, cluster).where(ends < start).select(rows.columns)
        rows, condition = ended.union(rows).coalesce(1), "true"
    lake.replace(entity.name, cluster, rows, condition, target)


def complete_end(lake: Lake, cluster: str, entity: Entity) -> int:
    """The offset up to which an entity's table is complete. A table that no record has changed since is behind
    the events, and complete nevertheless, unless events that it has not applied have expired."""
    end, own = lake.applied(EVENTS, cluster), lake.applied(entity.name, cluster)
    if own >= end:
        return end
    if own < lake.expired(cluster):
        return own
    types = [*entity.record_types, "SNAPSHOT_HEADER"]
    later = events_between(lake, cluster, own, end).where(f.col("type").isin(*types))
    return end if later.isEmpty() else own
