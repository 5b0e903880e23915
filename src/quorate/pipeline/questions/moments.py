"""The offset or the period that a question is asked for."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import Column
from pyspark.sql import functions as f

from quorate.dataclass import dataclass
from quorate.pipeline.datasource.bounds import parse_time
from quorate.pipeline.tables.declaration import Entity
from quorate.pipeline.tables.events import EVENTS
from quorate.pipeline.tables.lake import Lake, LakeError
from quorate.pipeline.tables.update import complete_end

Moment = int | datetime | None
"""An offset, a time, or None for the end of what all tables have applied."""


@dataclass(frozen=True, slots=True)
class Period:
    """The time between two moments: the records after the offset `first`, up to `last`."""

    first: int
    """-1 for a period that begins with the first record of the log."""
    last: int
    begin: datetime
    end: datetime

    def has(self, offset: str | Column) -> Column:
        """Whether the record at an offset is in the period."""
        at = f.col(offset) if isinstance(offset, str) else offset
        return (at > self.first) & (at <= self.last)

    def overlaps(self) -> Column:
        """Whether a state of a table was valid in the period."""
        ends = f.col("valid_to_offset")
        return (f.col("valid_from_offset") <= self.last) & (ends.isNull() | (ends > self.first))

    def ends_later(self, offset: str = "valid_to_offset") -> Column:
        """Whether something did not end in the period. An end after the period was not known at its end."""
        return f.col(offset).isNull() | (f.col(offset) > self.last)

    def clip(self, offset: str, time: str) -> Column:
        """The time of a record, or the end of the period that is nearer to it. A null offset is after it."""
        begin, end = f.lit(self.begin), f.lit(self.end)
        inside = f.least(f.greatest(f.col(time), begin), end)
        return f.when(f.col(offset) <= self.first, begin).when(self.ends_later(offset), end).otherwise(inside)


def parse_moment(text: str | None) -> Moment:
    """The moment of an option: an offset, or a time in ISO 8601, in UTC unless it names a zone."""
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        return parse_time(text)
    except ValueError:
        raise ValueError(f"{text} is neither an offset nor a time such as 2026-11-21T09:20:54") from None


def offset_of(lake: Lake, cluster: str, moment: Moment, *entities: Entity) -> int:
    """The offset of a moment: the last one up to which the tables of the entities are complete, the given
    one, or that of the last record up to the given time. Raises LakeError if the lake does not have it."""
    return _offset_before(lake, cluster, moment, _complete_end(lake, cluster, entities))


def _offset_before(lake: Lake, cluster: str, moment: Moment, end: int) -> int:
    if moment is None:
        return end - 1
    events = lake.read(EVENTS, cluster)
    if isinstance(moment, datetime):
        known = (f.col("offset") >= lake.expired(cluster)) & (f.col("offset") < end)
        events = events.where((f.col("timestamp") <= f.lit(moment)) & known)
        found: int | None = events.agg(f.max("offset")).collect()[0][0]
        if found is None:
            raise LakeError(f"{lake.folder} has no records of cluster {cluster} up to {moment.isoformat()}")
        return found
    if moment >= end:
        raise LakeError(f"offset {moment} of cluster {cluster} is not applied yet: the last is {end - 1}")
    if moment >= lake.expired(cluster) and events.where(f.col("offset") == moment).isEmpty():
        raise LakeError(
            f"offset {moment} of cluster {cluster} is not in the lake: the log was cleaned before it was read"
        )
    return moment


def _complete_end(lake: Lake, cluster: str, entities: tuple[Entity, ...]) -> int:
    """The offset up to which the tables are complete. Raises LakeError if it is 0."""
    end = min([lake.applied(EVENTS, cluster), *[complete_end(lake, cluster, entity) for entity in entities]])
    if end == 0:
        raise LakeError(f"{lake.folder} has no records of cluster {cluster}")
    return end


def period_of(
    lake: Lake, cluster: str, since: Moment = None, until: Moment = None, entities: tuple[Entity, ...] = ()
) -> Period:
    """The period between two moments, by default all that the tables of some entities have. Raises LakeError
    if the lake does not have a moment any more or not yet, or if the second is before the first."""
    expired = lake.expired(cluster)
    for moment in (since, until):
        if isinstance(moment, int) and moment < expired:
            raise LakeError(
                f"offset {moment} of cluster {cluster} is before offset {expired}, up to which the "
                "events have expired"
            )
    end = _complete_end(lake, cluster, entities)
    last = _offset_before(lake, cluster, until, end)
    if isinstance(since, int):
        first, begin = _offset_before(lake, cluster, since, end), _time_of(lake, cluster, since)
    else:
        first, begin = _begin(lake, cluster)
        if since is not None and since >= begin:
            first, begin = _offset_before(lake, cluster, since, end), since
    if isinstance(until, datetime) and last < end - 1:
        until_time = until
    else:
        until_time = _time_of(lake, cluster, last)
    if first > last or begin > until_time:
        raise LakeError("the period ends before it begins")
    return Period(first, last, begin, until_time)


def _begin(lake: Lake, cluster: str) -> tuple[int, datetime]:
    """The offset before the first record of the lake, and the time of the first. If the lake begins with a
    snapshot, what it contains was there before: the offset is its last one."""
    in_log = f.col("snapshot").isNull()
    events = lake.read(EVENTS, cluster).where(f.col("offset") >= lake.expired(cluster))
    found = events.agg(
        f.min(f.when(in_log, f.col("offset"))).alias("record"),
        f.min(f.when(~in_log, f.col("offset"))).alias("snapshot"),
        f.unix_millis(f.min("timestamp")).alias("time"),
    )
    record, snapshot, time = found.collect()[0]
    if time is None:
        raise _expired(lake, cluster)
    first = snapshot if snapshot is not None and (record is None or snapshot < record) else record - 1
    return first, datetime.fromtimestamp(time / 1000, UTC)


def _time_of(lake: Lake, cluster: str, offset: int) -> datetime:
    """The time of the record at an offset. Raises LakeError if the events have expired."""
    events = lake.read(EVENTS, cluster).where(f.col("offset") == offset)
    millis: int | None = events.agg(f.unix_millis(f.max("timestamp"))).collect()[0][0]
    if millis is None:
        raise _expired(lake, cluster)
    return datetime.fromtimestamp(millis / 1000, UTC)


def _expired(lake: Lake, cluster: str) -> LakeError:
    return LakeError(f"the events of cluster {cluster} before offset {lake.expired(cluster)} have expired")


def cluster_of(lake: Lake, wanted: str | None) -> str:
    """The cluster that is asked for, or the only one in the lake. Raises LakeError if there is no such."""
    lake.check_exists()
    known = lake.clusters()
    if wanted is None and len(known) == 1:
        return known[0]
    if wanted not in known:
        raise LakeError(f"choose a cluster with --cluster: {', '.join(known) or 'there is none'}")
    return wanted
