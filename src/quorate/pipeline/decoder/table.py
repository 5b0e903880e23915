"""Decodes the values of records into Arrow columns.

Records of equal shape are decoded together, by columns. The others, and all of them if the column `json` is
asked for, are decoded one by one. The rows come in the order of the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from quorate.dataclass import dataclass
from quorate.metadata.errors import MetadataError
from quorate.metadata.json import type_name
from quorate.metadata.records import RECORD_TYPES
from quorate.pipeline.datasource.columns import CORRUPT, ENTITY_COLUMNS, JSON, Selection, StructOf
from quorate.pipeline.decoder.arrays import Bytes, Numbers, arrow_type, struct_array
from quorate.pipeline.decoder.entities import ENTITIES, deciding_position, entity_arrays
from quorate.pipeline.decoder.framing import Values
from quorate.pipeline.decoder.objects import decode_value
from quorate.pipeline.decoder.shape import Shape, shape_of
from quorate.protocol.schema import Data

LEAST: Final = 8
"""The number of records of equal shape from which on they are decoded by columns."""


@dataclass(slots=True)
class Piece:
    """Some rows, with the columns in which they have values."""

    rows: Numbers
    columns: dict[str, pa.Array]
    failures: list[tuple[int, str]] = field(default_factory=list)
    """The rows that do not decode, and why."""


@dataclass(slots=True)
class Content:
    """The content columns of all rows, and the rows that do not decode."""

    columns: dict[str, pa.Array]
    failures: list[tuple[int, str]]


def content_columns(selection: Selection) -> list[str]:
    """The chosen columns that come from the record itself and not from its place in the log."""
    every = {"type", "version", JSON, CORRUPT, *ENTITY_COLUMNS, *selection.fields}
    return [column for column in selection.columns if column in every]


def wanted_types(values: Values, selection: Selection) -> Values:
    """The values without those of known types that are not asked for."""
    if selection.types is None:
        return values
    wanted = [key for key, cls in RECORD_TYPES.items() if type_name(cls) in selection.types]
    keys = np.where(values.size >= 3, _keys(values), -1)
    return values.where(np.isin(keys >> 8, wanted) | (keys < 0))


def decode(values: Values, selection: Selection, least: int = LEAST) -> Content:
    """The content columns of the records. The columns of a record that does not decode are null, except
    `corrupt`."""
    pieces = [piece for piece in _pieces(values, selection, least) if len(piece.rows)]
    failures = [failure for piece in pieces for failure in piece.failures]
    names = content_columns(selection)
    types = {name: arrow_type(selection.kind(name)) for name in names}
    if not pieces:
        return Content({name: pa.array([], types[name]) for name in names}, failures)
    if len(pieces) == 1:  # all rows in their order
        return Content({name: _column(pieces[0], name, types[name]) for name in names}, failures)
    order = np.concatenate([piece.rows for piece in pieces])
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    indices = pa.array(back)
    columns = {
        name: _gather([_column(piece, name, types[name]) for piece in pieces], indices, types[name])
        for name in names
    }
    return Content(columns, failures)


def _column(piece: Piece, name: str, kind: pa.DataType) -> pa.Array:
    array = piece.columns.get(name)
    return pa.nulls(len(piece.rows), kind) if array is None else array


def _gather(arrays: list[pa.Array], indices: pa.Array, kind: pa.DataType) -> pa.Array:
    if all(array.null_count == len(array) for array in arrays):
        return pa.nulls(len(indices), kind)
    return pa.concat_arrays(arrays).take(indices)


def _keys(values: Values) -> Numbers:
    """Record type and record version of each value in one number, or -1 if the frame has another form."""
    frame, kind, version = (
        values.data[np.minimum(values.at + place, len(values.data) - 1)] for place in range(3)
    )
    keys = kind.astype(np.int64) << 8 | version
    return np.where((frame == 1) & (kind < 0x80) & (version < 0x80) & (values.size >= 3), keys, -1)


def _pieces(values: Values, selection: Selection, least: int) -> Iterator[Piece]:
    if JSON in selection.columns:
        yield _objects(values, np.arange(len(values)), selection)
        return
    combined = _keys(values) << 32 | values.size
    left: list[Numbers] = []
    for rows in _equal(combined):
        cls = _columnar_class(int(combined[rows[0]]) >> 32, selection)
        if cls is None or len(rows) < least:
            left.append(rows)
            continue
        version = int(combined[rows[0]]) >> 32 & 0xFF
        if _has_content(cls, selection):
            records = _rows(values, rows, int(values.size[rows[0]]))
            yield from _same_type(records, rows, cls, version, selection, least, left)
        else:
            yield Piece(rows, _names(cls, version, len(rows), selection))
    if left:
        rows = np.sort(np.concatenate(left))
        yield _objects(values, rows, selection)


def _columnar_class(key: int, selection: Selection) -> type[Data] | None:
    """The record class of a key if its chosen columns can be decoded by columns."""
    cls = RECORD_TYPES.get(key >> 8) if key >= 0 else None
    if cls is None or not cls.MIN_VERSION <= key & 0xFF <= cls.MAX_VERSION:
        return None
    return None if selection.has_any(ENTITY_COLUMNS) and cls not in ENTITIES else cls


def _equal(keys: Numbers) -> Iterator[Numbers]:
    """The positions of each key, in ascending order."""
    if len(keys) and (keys == keys[0]).all():
        yield np.arange(len(keys))
    elif len(keys):
        order = np.argsort(keys, kind="stable")
        ends = np.flatnonzero(np.diff(keys[order])) + 1
        yield from np.split(order, ends)


def _rows(values: Values, rows: Numbers, size: int) -> Bytes:
    """The values at `rows`, which have one size, as a matrix."""
    windows = np.lib.stride_tricks.sliding_window_view(values.data, size)
    found: Bytes = windows[values.at[rows]]
    return found


def _same_type(
    records: Bytes, rows: Numbers, cls: type[Data], version: int, selection: Selection, least: int,
    left: list[Numbers],
) -> Iterator[Piece]:  # fmt: skip
    """Decodes records of one type, version and size, shape by shape. Appends the rows of rare shapes to
    `left`."""
    while len(rows) >= least:
        shape = shape_of(records[0].tobytes(), cls, version)
        if shape is None:
            left.append(rows[:1])
            records, rows = records[1:], rows[1:]
            continue
        same = np.ones(len(rows), np.bool_)
        for at in _equal_positions(shape, cls, selection):
            same &= records[:, at] == records[0, at]
        every = bool(same.all())
        chosen, chosen_rows = (records, rows) if every else (records[same], rows[same])
        try:
            if len(chosen) < least:
                left.append(chosen_rows)
            else:
                columns = _names(cls, version, len(chosen), selection)
                if selection.has_any(ENTITY_COLUMNS):
                    columns |= entity_arrays(cls, shape, chosen, selection.columns)
                typed = type_name(cls).lower()
                if typed in selection.fields:
                    kind = selection.kind(typed)
                    assert isinstance(kind, StructOf)
                    columns[typed] = struct_array(shape.fields, chosen, kind)
                yield Piece(chosen_rows, columns)
        except pa.ArrowInvalid:  # a string that is not UTF-8
            left.append(chosen_rows)
        if every:
            return
        records, rows = records[~same], rows[~same]
    left.append(rows)


def _equal_positions(shape: Shape, cls: type[Data], selection: Selection) -> tuple[int, ...]:
    """The positions at which records have the same bytes if they are decoded together."""
    deciding = deciding_position(cls, shape) if selection.has_any(ENTITY_COLUMNS) else None
    return shape.equal_at if deciding is None else (*shape.equal_at, deciding)


def _has_content(cls: type[Data], selection: Selection) -> bool:
    return type_name(cls).lower() in selection.fields or selection.has_any(ENTITY_COLUMNS)


def _names(cls: type[Data], version: int, count: int, selection: Selection) -> dict[str, pa.Array]:
    found: dict[str, pa.Array] = {}
    if "type" in selection.columns:
        found["type"] = pa.repeat(pa.scalar(type_name(cls)), count)
    if "version" in selection.columns:
        found["version"] = pa.repeat(pa.scalar(version, pa.int32()), count)
    return found


def _objects(values: Values, rows: Numbers, selection: Selection) -> Piece:
    """Decodes these records one by one."""
    found: list[dict[str, Any]] = []
    failures: list[tuple[int, str]] = []
    for row, at, size in zip(
        rows.tolist(), values.at[rows].tolist(), values.size[rows].tolist(), strict=True
    ):
        try:
            found.append(decode_value(values.data[at : at + size].tobytes(), selection))
        except MetadataError as error:
            found.append({CORRUPT: error.reason})
            failures.append((row, error.reason))
    return Piece(rows, arrays_of(found, selection), failures)


def arrays_of(rows: list[dict[str, Any]], selection: Selection) -> dict[str, pa.Array]:
    """The content columns of rows that are dictionaries."""
    found: dict[str, pa.Array] = {}
    for name in content_columns(selection):
        column = [row.get(name) for row in rows]
        if any(value is not None for value in column):
            found[name] = pa.array(column, arrow_type(selection.kind(name)))
    return found
