"""Finds the values of the records of uncompressed batches, without an object for each record.

A loop in Python reads the sizes of the records only, and of records of equal size only the first. All other
bytes of the records' headers are then compared in C, for all records at once.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from quorate.dataclass import dataclass
from quorate.pipeline.decoder.arrays import Bytes, Numbers
from quorate.records.batch_header import BATCH_OVERHEAD

_RUN: Final = 24
"""The number of records of equal size from which on a comparison of columns is faster than a loop."""

_PAUSE: Final = 32
"""The number of records without a search for a run after one that was too short."""

_SMALLEST: Final = 6
"""The size of the smallest record that is not malformed."""

_NULL_KEY: Final = 1
"""The length of a null key, -1, in its zig-zag form."""


@dataclass(slots=True)
class Values:
    """The values of the records of several batches, in one buffer."""

    data: Bytes
    at: Numbers
    """The position of each value in `data`."""
    size: Numbers
    batch: Numbers
    """The number of each record's batch."""
    index: Numbers
    """The number of each record in its batch."""

    def __len__(self) -> int:
        return len(self.at)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Values:
        """The values of some of the records."""
        return Values(self.data, self.at[chosen], self.size[chosen], self.batch[chosen], self.index[chosen])


def find_values(batches: list[bytes], counts: list[int]) -> Values | None:
    """The values of complete batches with these record counts.

    Returns None if a record does not have the form that `build_metadata_batch` writes: no attributes, no
    timestamp delta, the next offset delta, no key, a value, no headers, each length in its shortest form.
    """
    places = _Places()
    begin = 0
    for batch, count in zip(batches, counts, strict=True):
        if not _find_records(batch, count, begin, places):
            return None
        begin += len(batch)
    data = np.frombuffer(b"".join(batches), np.uint8)
    at, raw = places.arrays()
    if (raw & 1).any() or (raw < _SMALLEST << 1).any():
        return None
    per_batch = np.array(counts, np.int64)
    batch_of = np.repeat(np.arange(len(counts)), per_batch)
    index = np.arange(len(batch_of)) - np.repeat(np.cumsum(per_batch) - per_batch, per_batch)
    return _check(data, at, at + (raw >> 1), batch_of, index)


class _Places:
    """Where records begin after their size, and the zig-zag form of the size."""

    def __init__(self) -> None:
        self.at: list[int] = []
        self.raw: list[int] = []
        self._done: list[tuple[Numbers, Numbers]] = []

    def add_run(self, first: int, stride: int, length: int, raw: int) -> None:
        self._flush()
        self._done.append((first + stride * np.arange(length), np.full(length, raw)))

    def arrays(self) -> tuple[Numbers, Numbers]:
        self._flush()
        at, raw = zip(*self._done, strict=True)
        return np.concatenate(at), np.concatenate(raw)

    def _flush(self) -> None:
        if self.at or not self._done:
            self._done.append((np.array(self.at, np.int64), np.array(self.raw, np.int64)))
            self.at.clear()
            self.raw.clear()


def _find_records(batch: bytes, count: int, begin: int, places: _Places) -> bool:
    """Adds the records of a batch, which begins at `begin` in the buffer.

    Returns whether the records fill the batch exactly.
    """
    position, end = BATCH_OVERHEAD, len(batch)
    add_at, add_raw = places.at.append, places.raw.append
    look = count  # the next search for a run is at this number of remaining records
    while count > 0 and position < end:
        first = position
        raw = batch[position]
        position += 1
        if raw >= 0x80:
            high = batch[position] if position < end else 0
            position += 1
            raw = raw & 0x7F | high << 7
            if high >= 0x80:
                last = batch[position] if position < end else 0x80
                position += 1
                raw = raw & 0x3FFF | last << 14
                if last >= 0x80:
                    return False  # a record of more than a megabyte
        if count <= look and count > _RUN:
            width, stride = position - first, position - first + (raw >> 1)
            length = _run(batch, first, width, stride, count)
            if length >= _RUN:
                places.add_run(begin + position, stride, length, raw)
                position = first + stride * length
                count -= length
                look = count
                continue
            look = count - length - _PAUSE
        add_at(begin + position)
        add_raw(raw)
        position += raw >> 1
        count -= 1
    return count == 0 and position == end


def _run(batch: bytes, first: int, width: int, stride: int, count: int) -> int:
    """The number of records from `first` on whose sizes have the same bytes."""
    far = first + (_RUN - 1) * stride
    if batch[far : far + width] != batch[first : first + width]:
        return 0
    length = min(count, (len(batch) - first) // stride)
    for place in range(first, first + width):
        column = batch[place : place + length * stride : stride]
        length = len(column) - len(column.lstrip(column[:1]))
    return length


def _check(data: Bytes, at: Numbers, stop: Numbers, batch: Numbers, index: Numbers) -> Values | None:
    """Reads the headers of the records whose bytes are from `at` to `stop`."""
    last = len(data) - 1
    if len(index) != len(at) or (len(stop) and int(stop.max()) > last + 1):
        return None
    good = (data[at] | data[at + 1] | data[stop - 1]) == 0  # attributes, timestamp delta, headers
    at = at + 2
    delta = index << 1
    longest = int(delta.max(initial=0))
    for shift in range(0, max(1, longest.bit_length()), 7):
        there = (delta >> shift > 0) if shift else np.ones(len(delta), np.bool_)
        expected = delta >> shift & 0x7F | np.where(delta >> shift > 0x7F, 0x80, 0)
        good &= ~there | (data[np.minimum(at, last)] == expected)
        at = at + there
    good &= data[np.minimum(at, last)] == _NULL_KEY
    low, mid, high = (data[np.minimum(at + place, last)].astype(np.int64) for place in (1, 2, 3))
    two = low >= 0x80
    three = two & (mid >= 0x80)
    raw = low & 0x7F | np.where(two, (mid & 0x7F) << 7, 0) | np.where(three, high << 14, 0)
    good &= ~three | (high < 0x80)
    at = at + 2 + two + three
    size = raw >> 1
    good &= (raw & 1 == 0) & (size > 0) & (at + size + 1 == stop)
    return Values(data, at, size, batch, index) if good.all() else None
