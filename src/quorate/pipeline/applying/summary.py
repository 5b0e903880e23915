"""What is known of a range of the events without looking at them again: which types of records it
has, and where."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import field

import pyarrow as pa
import pyarrow.compute as pc

from quorate.dataclass import dataclass
from quorate.pipeline.history.steps import HEADER
from quorate.pipeline.tables.declaration import Entity

COLUMNS = ("offset", "type", "snapshot")
"""The columns of the events from which a summary is made."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A range of the events."""

    last: Mapping[str, int] = field(default_factory=dict)
    """The last offset of each record type."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """The number of records of each type."""
    headers: frozenset[int] = frozenset()
    """The last offset of each snapshot."""
    records: int = 0
    """The number of records of the log, without those of snapshots."""
    first: int = sys.maxsize
    """The least offset of these."""
    end: int = 0
    """The offset after the greatest of these."""

    @classmethod
    def of(cls, events: pa.Table | pa.RecordBatch) -> Summary:
        """The summary of some rows."""
        table = pa.table({name: events[name] for name in COLUMNS})
        found = table.group_by("type").aggregate([("offset", "max"), ("offset", "count")]).to_pydict()
        in_log = table.filter(pc.is_null(table["snapshot"]))["offset"]
        extent = pc.min_max(in_log)
        headers = table.filter(pc.equal(table["type"], HEADER))["offset"].to_pylist()
        return cls(
            dict(zip(found["type"], found["offset_max"], strict=True)),
            dict(zip(found["type"], found["offset_count"], strict=True)),
            frozenset(headers),
            len(in_log),
            extent["min"].as_py() if len(in_log) else sys.maxsize,
            extent["max"].as_py() + 1 if len(in_log) else 0,
        )

    @classmethod
    def joined(cls, parts: Iterable[Summary]) -> Summary:
        """The summary of several ranges."""
        last: dict[str, int] = {}
        counts: dict[str, int] = {}
        headers: set[int] = set()
        records, first, end = 0, sys.maxsize, 0
        for part in parts:
            for kind, offset in part.last.items():
                last[kind] = max(offset, last.get(kind, -1))
                counts[kind] = counts.get(kind, 0) + part.counts[kind]
            headers |= part.headers
            records, first, end = records + part.records, min(first, part.first), max(end, part.end)
        return cls(last, counts, frozenset(headers), records, first, end)

    def resets(self, start: int) -> tuple[int, ...]:
        """The last offsets of the snapshots that replace records which the lake has applied.

        `start` is the begin of the range: the snapshot with which a lake begins replaces nothing.
        """
        found = sorted(self.headers)
        begins = start == 0 and bool(found) and self.first > found[0]
        return tuple(found[1:] if begins else found)

    @property
    def is_complete(self) -> bool:
        """Whether the log has each record between the first and the last one once."""
        return not self.records or self.records == self.end - self.first

    def types(self, start: int) -> frozenset[str]:
        """The record types from an offset on."""
        return frozenset([kind for kind, last in self.last.items() if last >= start])

    def count(self, entity: Entity) -> int:
        """The number of records that affect an entity's table."""
        return sum([self.counts.get(kind, 0) for kind in entity.record_types])
