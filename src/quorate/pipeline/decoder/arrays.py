"""Arrow arrays of the fields of records of one shape, read as columns of bytes."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quorate.pipeline.datasource.columns import ArrayOf, Kind, StructOf
from quorate.pipeline.decoder.shape import SIZES, Constant, Fields, Fixed, Items, Part, Sized
from quorate.protocol.uuids import uuid_text

Bytes: TypeAlias = npt.NDArray[np.uint8]
"""Bytes in one dimension, or in two: a row for each record."""

Numbers: TypeAlias = npt.NDArray[np.int64]

_NUMBERS: Final = {
    "int8": ("i1", np.int8),
    "int16": (">i2", np.int16),
    "uint16": (">u2", np.int32),
    "int32": (">i4", np.int32),
    "uint32": (">u4", np.int64),
    "int64": (">i8", np.int64),
    "float64": (">f8", np.float64),
}
"""The type of the bytes and the type of the column."""

_ARROW: Final = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}

_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_PAIRS: Final = np.frombuffer(
    b"".join([bytes((_ALPHABET[bits >> 6], _ALPHABET[bits & 63])) for bits in range(1 << 12)]), np.uint16
)
"""The two characters of every group of 12 bits."""

_UUID_BYTES: Final = 16
_UUID_CHARACTERS: Final = 22


def arrow_type(kind: Kind) -> pa.DataType:
    """The Arrow type of a column type."""
    match kind:
        case ArrayOf(element):
            return pa.list_(arrow_type(element))
        case StructOf(fields):
            return pa.struct([(name, arrow_type(inner)) for name, inner in fields])
        case _:
            return _ARROW[kind]


def field_array(part: Part, records: Bytes, kind: Kind) -> pa.Array:
    """The values of one field of all records, as an array of the type of `kind`.

    Raises pa.ArrowInvalid if a string is not valid UTF-8.
    """
    match part:
        case Constant(value, name):
            return pa.repeat(pa.scalar(_plain(value, name), arrow_type(kind)), len(records))
        case Fixed(name, at, None):
            return _fixed(name, records[:, at : at + SIZES[name]])
        case Fixed(name, at, count):
            assert count is not None
            cells = records[:, at : at + SIZES[name] * count].reshape(len(records) * count, SIZES[name])
            return _lists(_fixed(name, cells), len(records), count)
        case Sized(name, at, size):
            return _sized(name, records[:, at : at + size])
        case Fields(parts):
            assert isinstance(kind, StructOf)
            return struct_array(parts, records, kind)
        case Items(parts):
            assert isinstance(kind, ArrayOf)
            return _items(parts, records, kind)


def struct_array(parts: dict[str, Part], records: Bytes, kind: StructOf) -> pa.StructArray:
    """The fields that `kind` names, as a struct."""
    arrays = [field_array(parts[name], records, inner) for name, inner in kind.fields]
    types = arrow_type(kind)
    return pa.StructArray.from_arrays(arrays, fields=list(types))


def uuid_array(cells: Bytes) -> pa.StringArray:
    """The text of the uuids whose 16 bytes are the rows of `cells`. The same uuid is converted once."""
    content = pa.py_buffer(np.ascontiguousarray(cells))
    uuids = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_UUID_BYTES), len(cells), [None, content])
    encoded = uuids.dictionary_encode()
    distinct = np.frombuffer(encoded.dictionary.buffers()[1], np.uint8, _UUID_BYTES * len(encoded.dictionary))
    return _uuid_text(distinct.reshape(-1, _UUID_BYTES)).take(encoded.indices)


def _uuid_text(cells: Bytes) -> pa.StringArray:
    words = np.ascontiguousarray(cells).view(">u2").astype(np.uint16)
    text = np.empty((len(cells), _UUID_CHARACTERS // 2), np.uint16)
    for word, pair in ((0, 0), (3, 4), (6, 8)):  # three words have four groups of 12 bits
        first, second = words[:, word], words[:, word + 1]
        text[:, pair] = _PAIRS[first >> 4]
        text[:, pair + 1] = _PAIRS[(first & 0xF) << 8 | second >> 8]
        if word == 6:  # two words, and four bits of zero
            text[:, pair + 2] = _PAIRS[(second & 0xFF) << 4]
            break
        third = words[:, word + 2]
        text[:, pair + 2] = _PAIRS[(second & 0xFF) << 4 | third >> 12]
        text[:, pair + 3] = _PAIRS[third & 0xFFF]
    return pa.StringArray.from_buffers(len(cells), _offsets(len(cells), _UUID_CHARACTERS), pa.py_buffer(text))


def numbers(kind: str, cells: Bytes) -> npt.NDArray[Any]:
    """The numbers of a kind whose bytes are the rows of `cells`."""
    stored, wanted = _NUMBERS[kind]
    return np.ascontiguousarray(cells).view(stored).ravel().astype(wanted)


def _fixed(kind: str, cells: Bytes) -> pa.Array:
    if kind == "uuid":
        return uuid_array(cells)
    if kind == "bool":
        return pa.array(cells.ravel() != 0)
    return pa.array(numbers(kind, cells))


def _sized(kind: str, cells: Bytes) -> pa.Array:
    count, size = cells.shape
    content = np.ascontiguousarray(cells)
    buffers = _offsets(count, size), pa.py_buffer(content)
    if kind == "bytes":
        return pa.BinaryArray.from_buffers(pa.binary(), count, [None, *buffers])
    text = pa.StringArray.from_buffers(count, *buffers)
    if size and content.max() > 0x7F:
        text.validate(full=True)
    return text


def _items(parts: tuple[Part, ...], records: Bytes, kind: ArrayOf) -> pa.ListArray:
    """All first elements, all second elements, and so on, brought into the order of the records."""
    count, size = len(records), len(parts)
    if not parts:
        return _lists(pa.array([], arrow_type(kind.element)), count, 0)
    columns = pa.concat_arrays([field_array(part, records, kind.element) for part in parts])
    order = (np.arange(count)[:, None] + count * np.arange(size)).ravel()
    return _lists(columns.take(pa.array(order)), count, size)


def _lists(values: pa.Array, count: int, size: int) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * size), values)


def _offsets(count: int, size: int) -> pa.Buffer:
    """The buffer of the positions of `count` strings of one size."""
    return pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(size))


def _plain(value: object, kind: str) -> object:
    """A default as a value of the column."""
    return uuid_text(value) if kind == "uuid" and isinstance(value, bytes) else value
