"""Reads a slice of a segment or snapshot as Arrow record batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from quorate.dataclass import dataclass
from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import decode_record
from quorate.metadata.records import AbortTransactionRecord, NoOpRecord
from quorate.pipeline.datasource.bounds import EVERYTHING, FIRST_TIME_MS, LAST_TIME_MS, Bounds, Mode
from quorate.pipeline.datasource.columns import ATTRIBUTION_COLUMNS, CORRUPT, Selection
from quorate.pipeline.decoder.arrays import Numbers, arrow_type
from quorate.pipeline.decoder.batches import Batch, Damage, read_batches
from quorate.pipeline.decoder.framing import Values, find_values
from quorate.pipeline.decoder.objects import control_name, decode_control
from quorate.pipeline.decoder.table import LEAST, Content, arrays_of, decode, wanted_types
from quorate.pipeline.directories.files import LOCAL, Files
from quorate.pipeline.directories.layout import Slice
from quorate.protocol.errors import DecodeError, KafkaError
from quorate.records.batch import control_records, metadata_values
from quorate.records.control import ControlRecordType

logger = logging.getLogger(__name__)

ROWS_PER_BATCH: Final = 16_384
"""The rows from which on a record batch is complete. It takes in a batch of the log as a unit."""


_ENDS: Final = (NoOpRecord.KEY, AbortTransactionRecord.KEY)
"""The types of the records that end a change."""

_NO_OP_BYTES: Final = 4
"""The size of such a record without tagged fields: the frame of three bytes, and the number of the fields."""

_NO_API: Final = -1


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read of the slices."""

    selection: Selection = field(default_factory=Selection)
    bounds: Bounds = EVERYTHING
    mode: Mode = Mode.FAILFAST
    rows: int = ROWS_PER_BATCH
    least: int = LEAST
    """The number of records of equal shape from which on they are decoded by columns."""


def read_slice(part: Slice, reading: Reading | None = None, files: Files = LOCAL) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a slice in the order of the file. A file that is renamed for its deletion is still
    read.

    Raises MetadataError for damage if the mode is FAILFAST.
    """
    yield from read_view(part, files.view(part.path, part.start, part.end), reading)


def read_view(part: Slice, view: memoryview, reading: Reading | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a slice, of which `view` is the file up to the end of the slice."""
    return _Reader(part, reading or Reading()).read(view)


class _Reader:
    """Collects the batches of a slice until they fill a record batch."""

    def __init__(self, part: Slice, reading: Reading) -> None:
        self._part = part
        self._reading = reading
        bounds = reading.bounds
        if part.limit is not None:
            end = part.limit if bounds.end_offset is None else min(part.limit, bounds.end_offset)
            bounds = bounds._replace(end_offset=end)
        self._bounds = bounds
        self._selection = reading.selection
        self._has_damage_rows = (
            reading.mode is not Mode.DROPMALFORMED and CORRUPT in reading.selection.columns
        )
        self._schema = pa.schema(
            [(name, arrow_type(self._selection.kind(name))) for name in self._selection.columns]
        )

    def read(self, view: memoryview) -> Iterator[pa.RecordBatch]:
        waiting: list[Batch] = []
        count = 0
        last: Batch | None = None
        for found in read_batches(self._part, view, self._bounds):
            plain = isinstance(found, Batch) and not found.is_control and not found.is_compressed
            if waiting and (not plain or count >= self._reading.rows):
                yield from self._plain(waiting)
                waiting, count = [], 0
            last = found if isinstance(found, Batch) else last
            if isinstance(found, Damage):
                yield from self._damage(found.text(self._part.path), found.offset)
            elif found.is_control:
                yield from self._control(found)
            elif found.is_compressed:
                yield from self._strict(found)
            else:
                waiting.append(found)
                count += found.records
        if waiting:
            yield from self._plain(waiting)
        if self._ends_snapshot() and not _has_footer(last):
            text = f"{self._part.path}: the snapshot has no footer, so it is incomplete"
            yield from self._damage(text, None)

    def _ends_snapshot(self) -> bool:
        """Whether the last batch of a snapshot is among those that are read."""
        bounds = self._bounds
        every = bounds.first_time_ms is None and bounds.last_time_ms is None
        return every and self._part.snapshot_end_offset is not None and self._part.end < 0

    def _plain(self, batches: list[Batch]) -> Iterator[pa.RecordBatch]:
        """Rows of uncompressed data batches."""
        values = find_values([batch.data for batch in batches], [batch.records for batch in batches])
        if values is not None:
            yield from self._rows(batches, values)
        elif len(batches) == 1:
            yield from self._strict(batches[0])
        else:
            for batch in batches:
                yield from self._plain([batch])

    def _strict(self, batch: Batch) -> Iterator[pa.RecordBatch]:
        """Rows of a compressed batch, or of one in which not all records have the usual form."""
        try:
            found = [bytes(value) for value in metadata_values(batch.data)]
        except KafkaError as error:
            yield from self._damage(self._at(batch, f"the batch does not decode: {error}"), batch.base_offset)
            return
        sizes = np.array([len(value) for value in found], np.int64)
        values = Values(
            np.frombuffer(b"".join(found), np.uint8),
            np.cumsum(sizes) - sizes,
            sizes,
            np.zeros(len(found), np.int64),
            np.arange(len(found)),
        )
        yield from self._rows([batch], values)

    def _rows(self, batches: list[Batch], values: Values) -> Iterator[pa.RecordBatch]:
        attribution = _attribution(values) if self._selection.has_any(ATTRIBUTION_COLUMNS) else None
        values = wanted_types(values, self._selection)
        base = np.array([batch.base_offset for batch in batches], np.int64)
        position = base[values.batch] + values.index
        inside = self._inside(position)
        if not inside.all():
            values, position = values.where(inside), position[inside]
        if not len(values):
            return
        content = decode(values, self._selection, self._reading.least)
        for row, reason in content.failures:
            batch = batches[int(values.batch[row])]
            self._report(self._at(batch, f"offset {position[row]}: {reason}"), int(position[row]))
        if content.failures and not self._has_damage_rows:
            kept = np.ones(len(values), np.bool_)
            kept[[row for row, _ in content.failures]] = False
            values, position = values.where(kept), position[kept]
            content = decode(values, self._selection, self._reading.least)
        found = None if attribution is None else attribution.of(values)
        yield self._table(batches, values.batch, position, content, found)

    def _control(self, batch: Batch) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = []
        positions: list[int] = []
        try:
            for index, (kind, value) in enumerate(control_records(batch.data)):
                types = self._selection.types
                position = batch.base_offset + index
                if (types is None or control_name(kind) in types) and self._inside(
                    np.array([position])
                ).all():
                    rows.append(decode_control(kind, value, self._selection))
                    positions.append(position)
        except (KafkaError, DecodeError, MetadataError) as error:
            yield from self._damage(
                self._at(batch, f"the control batch does not decode: {error}"), batch.base_offset
            )
            return
        if rows:
            content = Content(arrays_of(rows, self._selection), [])
            yield self._table(
                [batch],
                np.zeros(len(rows), np.int64),
                np.array(positions, np.int64),
                content,
                control=True,
            )

    def _inside(self, positions: Numbers) -> Any:
        """Which of these offsets are asked for. In a snapshot, all are."""
        bounds = self._bounds
        if self._part.snapshot_end_offset is not None:
            return np.ones(len(positions), np.bool_)
        inside = positions >= bounds.first_offset
        return inside if bounds.end_offset is None else inside & (positions < bounds.end_offset)

    def _table(
        self, batches: list[Batch], batch: Numbers, position: Numbers, content: Content,
        attribution: _Attribution | None = None, *, control: bool = False,
    ) -> pa.RecordBatch:  # fmt: skip
        count = len(position)
        snapshot = self._part.snapshot_end_offset
        arrays: dict[str, pa.Array] = dict(content.columns)
        for name in self._selection.columns:
            match name:
                case "offset":
                    at_end = pa.scalar(None if snapshot is None else snapshot - 1, pa.int64())
                    arrays[name] = pa.array(position) if snapshot is None else pa.repeat(at_end, count)
                case "position":
                    arrays[name] = pa.array(position)
                case "snapshot":
                    arrays[name] = pa.repeat(pa.scalar(snapshot, pa.int64()), count)
                case "epoch":
                    arrays[name] = pa.array(np.array([found.epoch for found in batches], np.int32)[batch])
                case "timestamp":
                    arrays[name] = _times(np.array([found.timestamp for found in batches], np.int64)[batch])
                case "control":
                    arrays[name] = pa.repeat(pa.scalar(control), count)
                case "committed":
                    committed = (
                        np.ones(count, np.bool_) if snapshot is not None else position < self._part.committed
                    )
                    arrays[name] = pa.array(committed)
                case _ if name in ATTRIBUTION_COLUMNS and attribution is not None:
                    column = attribution.column(name)
                    if column is not None:
                        arrays[name] = column
        return pa.RecordBatch.from_arrays(
            [
                arrays[column.name] if column.name in arrays else pa.nulls(count, column.type)
                for column in self._schema
            ],
            schema=self._schema,
        )

    def _at(self, batch: Batch, reason: str) -> str:
        return f"{self._part.path}: byte {batch.position}: {reason}"

    def _report(self, text: str, offset: int | None) -> None:
        if self._reading.mode is Mode.FAILFAST:
            raise MetadataError(text, offset=offset)
        logger.warning("%s", text)

    def _damage(self, text: str, offset: int | None) -> Iterator[pa.RecordBatch]:
        """A row for damage, if there is a column for it."""
        self._report(text, offset)
        if not self._has_damage_rows:
            return
        row: dict[str, Any] = {"offset": offset, "position": offset, CORRUPT: text}
        if self._part.snapshot_end_offset is not None:
            row |= {"snapshot": self._part.snapshot_end_offset, "offset": self._part.snapshot_end_offset - 1}
        yield pa.RecordBatch.from_arrays(
            [pa.array([row.get(column.name)], column.type) for column in self._schema], schema=self._schema
        )


def _times(milliseconds: Numbers) -> pa.Array:
    """The times of records. Those that no calendar has are null: multiplied, they would be other times."""
    outside = (milliseconds < FIRST_TIME_MS) | (milliseconds > LAST_TIME_MS)
    return pa.array(np.where(outside, 0, milliseconds) * 1000, mask=outside).cast(arrow_type("timestamp"))


def _has_footer(batch: Batch | None) -> bool:
    """Whether the last record of a snapshot's last batch is the footer. A batch that does not decode is
    reported elsewhere."""
    if batch is None or not batch.is_control:
        return False
    try:
        return [kind for kind, _ in control_records(batch.data)][-1] == ControlRecordType.SNAPSHOT_FOOTER
    except KafkaError:
        return True


@dataclass(frozen=True, slots=True)
class _Attribution:
    """Who or what caused the records of some batches."""

    at: Numbers
    """The position of each record's value."""
    change: Numbers
    """The number of each record's change, or -1 if nothing says who made it."""
    changes: list[dict[str, Any]]
    """The attribution columns of each change."""

    def of(self, values: Values) -> _Attribution:
        """The attribution of some of the records."""
        return _Attribution(values.at, self.change[np.searchsorted(self.at, values.at)], self.changes)

    def column(self, name: str) -> pa.Array | None:
        """A column, or None if it has no value."""
        known = [found[name] for found in self.changes]
        if all(value is None for value in known):
            return None
        numbers = pa.array(self.change, mask=self.change < 0)
        return pa.array(known, arrow_type(ATTRIBUTION_COLUMNS[name])).take(numbers)


def _attribution(values: Values) -> _Attribution:
    """The attribution of all records of some batches (`metadata.changes`).

    A NoOpRecord ends a change: its tagged fields are about the records since the beginning of the
    batch or since the end of the change before. An AbortTransactionRecord ends a change, too, and
    has only a reason.
    """
    kinds = values.data[np.minimum(values.at + 1, len(values.data) - 1)]
    ends = np.flatnonzero(np.isin(kinds, _ENDS) & (values.size >= _NO_OP_BYTES))
    changes: list[dict[str, Any]] = []
    number = np.full(len(ends) + 1, -1, np.int64)
    for place in np.flatnonzero(values.size[ends] > _NO_OP_BYTES).tolist():
        at = int(values.at[ends[place]])
        try:
            record, _ = decode_record(values.data[at : at + int(values.size[ends[place]])].tobytes())
        except MetadataError:
            continue  # reported with its row
        found = {name: getattr(record, name, None) for name in ATTRIBUTION_COLUMNS}
        if found["api"] == _NO_API:
            found["api"] = None
        number[place] = len(changes)
        changes.append(found)
    # The end of a row's change is the first one that is not before it, if it is in the same batch.
    rows = np.arange(len(values))
    place_of = np.searchsorted(ends, rows)
    change = number[place_of]
    if len(ends):
        end = ends[np.minimum(place_of, len(ends) - 1)]
        change[values.batch[end] != values.batch[rows]] = -1
    return _Attribution(values.at, change, changes)
