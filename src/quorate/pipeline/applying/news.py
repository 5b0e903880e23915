"""The events that the tables of entities have not applied yet, as far as these need them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from quorate.dataclass import dataclass
from quorate.pipeline.applying.arrivals import Arrival
from quorate.pipeline.applying.summary import COLUMNS, Summary
from quorate.pipeline.lake_source import FEW_RECORDS
from quorate.pipeline.storage.data_files import DataFile, Place, read_groups
from quorate.pipeline.storage.jobs import each
from quorate.pipeline.tables.declaration import Entity
from quorate.pipeline.tables.events import EVENT_SCHEMA, EVENTS
from quorate.pipeline.tables.lake import Lake, LakeError, Progress, overlapping

_FEW_FILES: Final = 20
"""So many files are looked through by this process."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A range of events, and what they are, as the last look at them has found it."""

    start: int
    end: int
    generation: int
    summary: Summary

    def covers(self, other: _Seen) -> bool:
        """Whether all events of another range are among these, and no later ones."""
        same = (self.generation, self.end) == (other.generation, other.end)
        return same and self.start <= other.start


@dataclass(frozen=True, slots=True)
class News:
    """The events of a range."""

    lake: Lake
    cluster: str
    start: int
    end: int
    before: _Seen
    """Those before the arrival. A table that is behind has them still to apply, but most tables
    were not affected by them."""
    arrival: Arrival | None
    """The last ones, if this run has written them."""
    summary: Summary

    @classmethod
    def of(cls, lake: Lake, cluster: str, start: int, to: Progress, arrival: Arrival | None) -> News:
        """The events of a range. Raises LakeError if some are missing."""
        end, generation = to.end, to.generation
        if arrival is not None and not start <= arrival.start < arrival.end == end:
            arrival = None
        before = _Seen(start, end if arrival is None else arrival.start, generation, Summary())
        if before.end > before.start:
            known = lake.seen.get(cluster)
            if isinstance(known, _Seen) and known.covers(before):
                before = known
            else:
                found = _summary(lake, cluster, before.start, before.end)
                before = _Seen(before.start, before.end, generation, found)
        summary = Summary.joined([before.summary, *([] if arrival is None else [arrival.summary])])
        if not summary.resets(start) and not summary.is_complete:
            raise LakeError(
                f"{lake.path(EVENTS)} has {summary.records} records of cluster {cluster} from "
                f"offset {summary.first} to {summary.end - 1}: some are missing or doubled"
            )
        lake.seen[cluster] = _Seen(start, end, generation, summary)
        return cls(lake, cluster, start, end, before, arrival, summary)

    def types(self, start: int) -> frozenset[str]:
        """The record types from an offset on."""
        return self.summary.types(start)

    def resets_after(self, start: int) -> bool:
        """Whether a snapshot from an offset on replaces records which the lake has applied."""
        return any(offset >= start for offset in self.summary.resets(self.start))

    def affects(self, entity: Entity, start: int) -> bool:
        """Whether records from an offset on change an entity's table."""
        return bool(self.types(start) & entity.record_types) or (start > 0 and self.resets_after(start))

    def read_from(self, entity: Entity, start: int) -> int:
        """The offset from which on records may change a table that has applied those before `start`."""
        earlier = self.before.summary
        affected = bool(earlier.types(start) & entity.record_types)
        if self.arrival is None or affected or any(offset >= start for offset in earlier.headers):
            return start
        return max(start, self.arrival.start)

    def is_few(self, start: int) -> bool:
        """Whether this process has room for all records from an offset on."""
        arrival = self.arrival
        part = self.summary if arrival is None or start < arrival.start else arrival.summary
        return sum(part.counts.values()) <= FEW_RECORDS

    def rows(self, start: int) -> pa.Table:
        """The rows from an offset on."""
        arrival = self.arrival
        if arrival is not None and arrival.rows is not None and start >= arrival.start:
            return arrival.rows
        place = self.lake.place(EVENTS, self.cluster)
        found = [
            group
            for file in self.files()
            for group in read_groups(place, file.path, EVENT_SCHEMA, EVENT_SCHEMA.names, start, self.end)
        ]
        return pa.concat_tables([EVENT_SCHEMA.empty_table(), *found])

    def files(self) -> list[DataFile]:
        """The files with the events from the start on."""
        if self.arrival is not None and self.before.start == self.before.end:
            return list(self.arrival.files)
        return self.lake.files(EVENTS, self.cluster, overlapping(self.start, self.end))


def _summary(lake: Lake, cluster: str, start: int, end: int) -> Summary:
    """Looks into the files of events."""
    found = lake.files(EVENTS, cluster, overlapping(start, end))
    place = lake.place(EVENTS, cluster)
    paths = [file.path for file in found]

    def look(path: str) -> Summary:
        return Summary.joined(_summaries(place, path, start, end))

    return Summary.joined(each(lake.spark, paths, look) if len(paths) > _FEW_FILES else map(look, paths))


def _summaries(place: Place, path: str, start: int, end: int) -> Iterable[Summary]:
    for group in read_groups(place, path, EVENT_SCHEMA, COLUMNS, start, end):
        yield Summary.of(group)
