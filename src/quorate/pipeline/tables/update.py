"""Applies the new records of a source to all tables of a lake, incrementally and exactly once.

The events come first. Each entity's table is then computed from the events between the offset that the table
has applied and the one that the events have applied. A run that was killed at any point is continued by the
next one: a table that is behind is computed from where it is. Rows are replaced by ranges of offsets, so that
a range that is applied again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from quorate.dataclass import dataclass
from quorate.pipeline.applying.arrivals import Arrival, Markers, find_markers, write_events
from quorate.pipeline.applying.histories import (
    LITTLE_BYTES,
    Events,
    Table,
    changes_by_tasks,
    changes_here,
    topic_files,
    topic_names,
)
from quorate.pipeline.applying.news import News
from quorate.pipeline.history.steps import Records
from quorate.pipeline.lake_source import Extent, Source
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.declaration import Entity
from quorate.pipeline.tables.divergence import Record, take_back_divergence
from quorate.pipeline.tables.events import EVENTS
from quorate.pipeline.tables.lake import (
    Changes,
    Lake,
    LakeConflictError,
    LakeError,
    Progress,
    Report,
)
from quorate.pipeline.tables.schema import migrate
from quorate.pipeline.tables.session_settings import LITTLE_WORK, settings
from quorate.pipeline.tables.topics import TOPICS

CHUNK: Final = 5_000_000
"""The records of one commit. A longer log is applied in several commits, which bounds the space that a sort
needs and the work that a kill loses."""

ADVANCE_AFTER: Final = 100_000
"""A table that no record affects is left alone for so many records, because a commit costs more
than to look at the types of these records again. Then it gets an empty commit, so that a run does
not look at ever more of them."""

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
                    catch_up(lake, name, report)
                return _update(lake, source, cluster, report, chunk)
        except LakeConflictError as error:
            report(f"{error}; continuing from there")
            last = error
    raise last


def migrate_all(lake: Lake, report: Report) -> None:
    """Brings all tables to the current schema, and computes those anew that need it."""
    migrate(lake, report)
    for cluster in lake.clusters():
        catch_up(lake, cluster, report)


def _update(lake: Lake, source: Source, cluster: str | None, report: Report, chunk: int) -> Applied:
    cluster_id = source.cluster_id()
    name = cluster or cluster_id
    if name is None:
        raise LakeError("the source does not say which cluster it is: give it a name with --cluster")
    applied = lake.applied(EVENTS, name)
    extent = source.extent(applied)
    progress = take_back_divergence(lake, source, name, extent, report)
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
        with settings(lake.spark, LITTLE_WORK), _noticing_a_deletion(source, at, extent):
            step = _step(lake, source, extent, at, chunk)
            if step is None:
                break
            part, markers = step
            arrival = _arrive(lake, source, name, part, markers, progress._replace(end=at))
        catch_up(lake, name, report, arrival=arrival)
        at = part.end
        extent = Extent(at, extent.end)
    if at == first:
        catch_up(lake, name, report)  # an earlier run may have ended before it
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


def _arrive(
    lake: Lake, source: Source, cluster: str, part: Extent, markers: Markers, progress: Progress
) -> Arrival:
    """Writes the records of a part to the events."""
    transaction = lake.begin(EVENTS, cluster, progress)
    arrival = write_events(lake.spark, source, part, progress.end, markers, lake.place(EVENTS, cluster))
    done = progress._replace(end=part.end)
    lake.commit(EVENTS, cluster, transaction, Changes(arrival.files), done)
    lake.last_records.pop(cluster, None)
    if arrival.rows is not None and arrival.rows.num_rows:
        lake.last_records[cluster] = done, Record.last_of(arrival.rows)
    return arrival


def _step(lake: Lake, source: Source, extent: Extent, at: int, chunk: int) -> tuple[Extent, Markers] | None:
    """The next records to apply and the markers of their transactions, or None if there are no records.

    Records of an open transaction, and those after them, are left for a later run.
    """
    end = min(extent.end, extent.start + chunk)
    while True:
        part = Extent(extent.start, end, extent.snapshot)
        markers = find_markers(lake.spark, source, part)
        begun, ended = markers.last_begin, markers.last_end
        if begun is None or (ended is not None and ended > begun):
            return (part, markers) if part.end > at else None
        if begun > extent.start or extent.snapshot is not None:
            return Extent(extent.start, begun, extent.snapshot), markers.before(begun)
        if end == extent.end:
            return None
        end = min(extent.end, end + chunk)


def catch_up(
    lake: Lake, cluster: str, report: Report, *, every: bool = False, arrival: Arrival | None = None
) -> None:
    """Computes the tables of all entities up to the offset that the events have applied.

    Each table continues from its own offset: after new records, or after a run that was killed. With
    `every`, a table that no record affects gets a commit with the new offset, too. `arrival` has the records
    that were written last. Raises LakeError if the events that a table needs have expired.
    """
    to = lake.progress(EVENTS, cluster)
    progress = {name: lake.progress(name, cluster) for name in ENTITIES}
    behind = {name: found for name, found in progress.items() if found.end < to.end}
    if not behind:
        return
    expired = lake.expired(cluster)
    lost = [name for name, found in behind.items() if found.end < expired]
    if lost:
        raise LakeError(
            f"{', '.join(lost)} of cluster {cluster} in {lake.folder} have lost commits, and events "
            f"before offset {expired}, from which they would be computed again, have expired: "
            "restore these tables"
        )
    with settings(lake.spark, LITTLE_WORK):
        news = News.of(lake, cluster, min([found.end for found in behind.values()]), to, arrival)
        affected = [name for name, found in behind.items() if news.affects(ENTITIES[name], found.end)]
        for names in ([TOPICS.name], [name for name in affected if name != TOPICS.name]):
            _compute(lake, cluster, {name: progress[name] for name in names if name in affected}, news, to)
        for name, found in behind.items():
            if name not in affected and (every or to.end - found.end > ADVANCE_AFTER):
                lake.advance(name, cluster, _target(found, to))
    report(f"{cluster}: applied up to offset {to.end - 1}")


def _target(progress: Progress, to: Progress) -> Progress:
    return Progress(max(progress.generation, to.generation), to.end)


def _compute(lake: Lake, cluster: str, progress: Mapping[str, Progress], news: News, to: Progress) -> None:
    """Computes the rows of some tables that the new events change, and commits them."""
    if not progress:
        return
    tables = {
        name: Table.opened(lake, cluster, ENTITIES[name], found, resets=news.resets_after(found.end))
        for name, found in progress.items()
    }
    starts = {name: news.read_from(ENTITIES[name], found.end) for name, found in progress.items()}
    first = min(starts.values())
    with_names = any(table.entity.names_topics for table in tables.values())
    size = sum([table.changing_bytes for table in tables.values()])
    if news.is_few(first) and size <= LITTLE_BYTES:
        names = topic_names(lake, cluster, first) if with_names else None
        records = {start: Records(news.rows(start)) for start in set(starts.values())}

        def compute(name: str) -> None:
            changes = changes_here(tables[name], records[starts[name]], names)
            tables[name].commit(lake, changes, _target(progress[name], to))

        with ThreadPoolExecutor(_THREADS) as pool:
            for done in [pool.submit(compute, name) for name in tables]:
                done.result()
        return
    topics = topic_files(lake, cluster, first) if with_names else (lake.place(TOPICS.name, cluster), ())
    found = changes_by_tasks(
        lake,
        tables,
        starts,
        {name: news.summary.count(ENTITIES[name]) for name in tables},
        Events(news.files(), lake.place(EVENTS, cluster), to.end, news.types(first), topics),
    )
    for name, changes in found.items():
        tables[name].commit(lake, changes, _target(progress[name], to))


def events_between(lake: Lake, cluster: str, start: int, end: int) -> DataFrame:
    """The events of a range of offsets."""
    return lake.read(EVENTS, cluster).where((f.col("offset") >= start) & (f.col("offset") < end))


def complete_end(lake: Lake, cluster: str, entity: Entity) -> int:
    """The offset up to which an entity's table is complete.

    A table may have applied fewer offsets than the events. It is complete nevertheless if none of the events
    that it has not applied is for its entities. This is not known if some of these events have expired.
    """
    end, own = lake.applied(EVENTS, cluster), lake.applied(entity.name, cluster)
    if own >= end:
        return end
    if own < lake.expired(cluster):
        return own
    types = [*entity.record_types, "SNAPSHOT_HEADER"]
    later = events_between(lake, cluster, own, end).where(f.col("type").isin(*types))
    return end if later.isEmpty() else own
