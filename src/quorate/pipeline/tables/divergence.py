"""Finds where a source and what a lake has applied of it diverge, and takes back what was never committed.

A directory may end in records that its node wrote and that were not committed. The next leader replaces them.
Two logs that agree in the leader epoch at an offset are equal up to it (Log Matching in Raft), so the first
offset at which lake and source differ is found by bisection.

A run that was killed is continued by `update.catch_up`, table by table.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import functions as f

from quorate.dataclass import dataclass
from quorate.pipeline.lake_source import Extent, Mark, Source
from quorate.pipeline.storage.data_files import read_groups
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.events import ABORT, BEGIN, END, EVENT_SCHEMA, EVENTS
from quorate.pipeline.tables.lake import Lake, LakeError, Progress, Report, overlapping

_COLUMNS: Final = ("offset", "cluster_id", "epoch", "timestamp", "snapshot")


def take_back_divergence(
    lake: Lake, source: Source, cluster: str, extent: Extent, report: Report
) -> Progress:
    """Takes back what the source does not have, and returns the progress from which it continues.

    Raises LakeError if it is another log.
    """
    progress = lake.progress(EVENTS, cluster)
    ahead = max([lake.applied(name, cluster) for name in ENTITIES])
    if ahead > progress.end:
        report(
            f"{cluster}: {lake.path(EVENTS)} has lost commits: what is computed from the records "
            f"{progress.end} to {ahead - 1} is taken back"
        )
        progress = _take_back(lake, cluster, progress.end)
    if progress.end == 0:
        return progress
    if extent.end < progress.end:
        raise LakeError(
            f"the log ends at offset {extent.end}, but the lake has applied cluster {cluster} up to "
            f"{progress.end - 1}: the log was formatted anew, or this copy of it is behind"
        )
    last = progress.end - 1
    written, known = lake.last_records.get(cluster, (None, None))
    applied = known if written == progress else _record(lake, cluster, last)
    _check_cluster(source, cluster, applied)
    if _agree(source, applied):
        return progress
    start = _first_difference(lake, source, cluster, last)
    report(
        f"{cluster}: records {start} to {last} were never committed, and others took their place; "
        "they are taken back"
    )
    return _take_back(lake, cluster, start)


@dataclass(frozen=True, slots=True)
class Record:
    """A record in the lake."""

    offset: int
    cluster_id: str | None
    mark: Mark
    in_snapshot: bool

    @classmethod
    def last_of(cls, events: pa.Table) -> Record:
        """The last one of some events."""
        row = events.select(_COLUMNS).slice(events.num_rows - 1).to_pylist()[0]
        mark = Mark(row["epoch"], round(row["timestamp"].timestamp() * 1000))
        return cls(row["offset"], row["cluster_id"], mark, row["snapshot"] is not None)


def _record(lake: Lake, cluster: str, offset: int) -> Record | None:
    """The record at an offset in the lake, or of the snapshot that ends there."""
    place = lake.place(EVENTS, cluster)
    for file in lake.files(EVENTS, cluster, overlapping(offset, offset + 1)):
        for group in read_groups(place, file.path, EVENT_SCHEMA, _COLUMNS, offset, offset + 1):
            return Record.last_of(group)
    return None


def _check_cluster(source: Source, cluster: str, applied: Record | None) -> None:
    """Raises LakeError if the source is of a cluster with another id."""
    here, there = None if applied is None else applied.cluster_id, source.cluster_id()
    if None not in (here, there) and here != there:
        raise LakeError(
            f"cluster {cluster} of this lake has the id {here}, but the source is of cluster {there}: "
            "give it another name with --cluster"
        )


def _agree(source: Source, applied: Record | None) -> bool:
    """Whether the source has the same record as the lake, as far as both have one."""
    if applied is None or applied.in_snapshot:
        return True
    there = source.mark(applied.offset)
    return there is None or applied.mark == there


def _first_difference(lake: Lake, source: Source, cluster: str, last: int) -> int:
    """The first offset that must be taken back.

    Raises LakeError if the logs have nothing in common, or if the records there were committed.
    """
    events = lake.read(EVENTS, cluster).where(f.col("snapshot").isNull())
    low: int = events.agg(f.min("offset")).collect()[0][0]
    high = last
    if not _agree(source, _record(lake, cluster, low)):
        raise LakeError(
            f"the log differs from what the lake has applied of cluster {cluster} from offset {low} "
            "on: it was formatted anew"
        )
    while high - low > 1:
        middle = (low + high) // 2
        if _agree(source, _record(lake, cluster, middle)):
            low = middle
        else:
            high = middle
    expired = lake.expired(cluster)
    if high <= expired:
        raise LakeError(
            f"the log differs from what the lake has applied of cluster {cluster} from offset "
            f"{high} on, perhaps from an earlier one: the events before offset {expired} have "
            "expired, so what to take back is not known. Begin a new lake"
        )
    before, kind = events.where(f.col("offset") < high), f.col("type")
    row = before.agg(
        f.max(f.when(kind == BEGIN, f.col("offset"))).alias("begun"),
        f.max(f.when(kind.isin(END, ABORT), f.col("offset"))).alias("ended"),
    ).collect()[0]
    if row["begun"] is not None and row["begun"] > (row["ended"] or -1):
        high = row["begun"]
    if not events.where((f.col("offset") >= high) & f.col("committed")).isEmpty():
        raise LakeError(
            f"the log differs from committed records of cluster {cluster} in the lake from offset {high} on"
        )
    return high


def _take_back(lake: Lake, cluster: str, start: int) -> Progress:
    """Removes what all tables have of the records from an offset on. The events come last, so that a run that
    is killed meanwhile begins again."""
    lake.last_records.pop(cluster, None)
    lake.seen.pop(cluster, None)
    found = {name: lake.progress(name, cluster) for name in (*ENTITIES, EVENTS)}
    generation = max([progress.generation for progress in found.values()]) + 1
    ends = f.col("valid_to_offset")
    for name in ENTITIES:
        if not lake.exists(name):
            continue
        table = lake.read(name, cluster)
        rows = table.where((f.col("valid_from_offset") < start) & (ends.isNull() | (ends >= start)))
        nothing = {column: f.lit(None) for column in ("valid_to_offset", "valid_to_time", "to_record")}
        rows = rows.withColumns(nothing).select(table.columns)
        condition = f"(valid_to_offset IS NULL OR valid_to_offset >= {start})"
        target = Progress(generation, min(start, found[name].end))
        lake.replace(name, cluster, rows, condition, target)
    target = Progress(generation, start)
    if lake.exists():
        lake.replace(EVENTS, cluster, lake.read(EVENTS).limit(0), f"offset >= {start}", target)
    return target
