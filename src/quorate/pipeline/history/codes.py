"""Equal numbers for equal values of any type, so that values of keys and states are compared as numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

_LARGEST: Final = 1 << 62


def codes(array: pa.Array) -> Numbers:
    """Numbers from 0 on, which are equal exactly where the values are. Null is a value as any other."""
    kind = array.type
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int64)
    if pa.types.is_struct(kind):
        found = combined([codes(field) for field in array.flatten()], len(array))
        return _with_nulls(found, array)
    if pa.types.is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        inner = codes(pc.list_flatten(array))
        return _with_nulls(_encoded(_binary(inner, lengths)), array)
    return _encoded(array)


def combined(columns: Iterable[Numbers], count: int) -> Numbers:
    """Numbers which are equal exactly where the numbers in all columns are."""
    found = np.zeros(count, np.int64)
    size = 1
    for column in columns:
        own = int(column.max(initial=0)) + 1
        if size * own > _LARGEST:
            found, size = _encoded(pa.array(found)), count
        found, size = found * own + column, size * own
    return found if size <= max(count, 1) else _encoded(pa.array(found))


def _encoded(array: pa.Array) -> Numbers:
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode("encode")
    numbers: Numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _binary(inner: Numbers, lengths: Numbers) -> pa.Array:
    """The numbers of each list as bytes."""
    data = inner.astype(np.int32)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]) * data.itemsize
    buffers = [None, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)


def _with_nulls(found: Numbers, array: pa.Array) -> Numbers:
    if not array.null_count:
        return found
    missing = pc.is_null(array).to_numpy(zero_copy_only=False)
    return np.where(missing, 0, found + 1)


def flags(array: pa.Array) -> Flags:
    """The values of conditions. Null does not hold."""
    found: Flags = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return found
