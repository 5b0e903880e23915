"""Reads the batches of a segment or snapshot, and finds out what is damaged or missing.

A batch is intact if its header is plausible and its checksum correct. Behind a damaged place the search
continues at the next intact batch. The offsets of the metadata log have no gaps, because it is never
compacted, and neither have those in a snapshot, so that a missing batch is found too.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import google_crc32c

from quorate.lazy import lazy_module
from quorate.pipeline.datasource.bounds import EVERYTHING, Bounds
from quorate.pipeline.directories.layout import Slice
from quorate.records.batch_header import (
    ATTRIBUTES,
    BATCH_OVERHEAD,
    BIT_CONTROL,
    COMPRESSION_MASK,
    CURRENT_MAGIC,
    LENGTH,
    LOG_OVERHEAD,
    MAGIC,
)

if TYPE_CHECKING:
    import numpy as np
else:  # only the search behind damage needs it
    np = lazy_module("numpy")

_HEADER: Final = Struct(">qiibIhiqqqhii")
_WINDOW_BYTES: Final = 1 << 20
"""The part of a file that is searched for the next batch at once."""


class Batch(NamedTuple):
    """A batch whose length, header and checksum are right."""

    position: int
    data: bytes
    base_offset: int
    epoch: int
    attributes: int
    last_offset: int
    timestamp: int
    """The largest timestamp in ms. All records of the metadata log have that of their batch."""
    records: int

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & BIT_CONTROL)

    @property
    def is_compressed(self) -> bool:
        return bool(self.attributes & COMPRESSION_MASK)


class Damage(NamedTuple):
    """Bytes that are no intact batch, or offsets that are missing or repeated."""

    position: int
    end: int
    offset: int | None
    """The first offset that is not readable, if it is known."""
    next_offset: int | None
    """The first readable offset after it, if there is one."""
    reason: str

    def text(self, path: str) -> str:
        """The file, the place and the reason in one line."""
        where = (
            f"byte {self.position}"
            if self.end <= self.position
            else f"bytes {self.position} to {self.end - 1}"
        )
        lost = ""
        if self.offset is not None and self.next_offset is not None and self.next_offset > self.offset:
            last = self.next_offset - 1
            lost = f"; offset {last}" if self.offset == last else f"; offsets {self.offset} to {last}"
            lost += " cannot be read"
        return f"{path}: {where}: {self.reason}{lost}"


def read_batches(part: Slice, view: memoryview, bounds: Bounds) -> Iterator[Batch | Damage]:
    """Yields the intact batches of a slice and, in between, its damage. `view` is the file up to the end of
    the slice.

    The end of the newest segment may be an incomplete or unsynced batch. If no intact batch follows, that
    is no damage.
    """
    position, end = part.start, len(view)
    expected = part.base_offset
    if part.snapshot_end_offset is not None:
        bounds = bounds.of_snapshot()
    while position < end:
        found = _batch_at(view, position, bounds)
        if isinstance(found, str):
            following = _next_batch(view, position + 1, expected)
            if following is None:
                if not part.may_be_cut:
                    yield Damage(position, end, expected, part.end_offset, found)
                return
            yield Damage(position, following, expected, _base_offset(view, following), found)
            position, expected = following, _base_offset(view, following)
            continue
        size, batch = found
        base_offset, last_offset = _offsets(view, position)
        jumps = expected is not None and base_offset > expected
        following = _offset_after(part, view, position + size) if jumps else None
        if expected is not None and following is not None and expected <= following <= base_offset:
            # The checksum does not cover the offset.
            reason = f"the batch has offset {base_offset}, and the next one {following}"
            yield Damage(position, position + size, expected, following, reason)
            position, expected = position + size, following
            continue
        if expected is not None and base_offset != expected:
            yield _discontinuity(position, size, expected, base_offset)
        if expected is None or base_offset >= expected:
            expected = last_offset + 1
            if batch is not None:
                yield _checked(batch)
        position += size
    if part.end_offset is not None and expected is not None and expected < part.end_offset:
        yield Damage(end, end, expected, part.end_offset, "the file ends too early")


def _offset_after(part: Slice, view: memoryview, position: int) -> int | None:
    """The base offset of the intact batch at a position, or that of what follows the slice; None if it is not
    known."""
    if position >= len(view):
        return part.end_offset
    return None if isinstance(_batch_at(view, position, EVERYTHING), str) else _base_offset(view, position)


def _checked(batch: Batch) -> Batch | Damage:
    """The batch, or its damage if it has not one record for each of its offsets.

    Its checksum is correct, so it was written like this, and the offsets of its records are not
    known.
    """
    offsets = batch.last_offset - batch.base_offset + 1
    if batch.records == offsets:
        return batch
    end = batch.position + len(batch.data)
    reason = f"the batch has {batch.records} records for {offsets} offsets"
    return Damage(batch.position, end, batch.base_offset, batch.last_offset + 1, reason)


def _discontinuity(position: int, size: int, expected: int, base_offset: int) -> Damage:
    if base_offset > expected:
        return Damage(position, position, expected, base_offset, f"the batch begins at offset {base_offset}")
    repeated = f"the batch repeats offset {base_offset}, the next one is {expected}"
    return Damage(position, position + size, None, None, repeated)


def _base_offset(view: memoryview, position: int) -> int:
    return int.from_bytes(view[position : position + 8], "big", signed=True)


def _offsets(view: memoryview, position: int) -> tuple[int, int]:
    fields = _HEADER.unpack_from(view, position)
    return fields[0], fields[0] + fields[6]


def _batch_at(view: memoryview, position: int, bounds: Bounds) -> tuple[int, Batch | None] | str:
    """The size of the batch at `position`, and the batch if it is asked for; or why there is none."""
    left = len(view) - position
    if left < BATCH_OVERHEAD:
        return f"the batch is cut: {left} bytes are left"
    base_offset, length, epoch, magic, checksum, attributes, last_delta, _, timestamp, *_, count = (
        _HEADER.unpack_from(view, position)
    )
    size = length + LOG_OVERHEAD
    if magic != CURRENT_MAGIC:
        return f"no batch: its magic is {magic}"
    if size < BATCH_OVERHEAD or base_offset < 0 or last_delta < 0:
        return f"no batch: length {length}, offset {base_offset}, last offset delta {last_delta}"
    if size > left:
        return f"the batch is cut: it has {size} bytes, {left} are left"
    last_offset = base_offset + last_delta
    if not bounds.overlap(base_offset, last_offset, timestamp):
        return size, None
    data = bytes(view[position : position + size])
    if google_crc32c.value(data[ATTRIBUTES:]) != checksum:
        return "the batch has a wrong checksum"
    return size, Batch(position, data, base_offset, epoch, attributes, last_offset, timestamp, count)


def _next_batch(view: memoryview, begin: int, expected: int | None) -> int | None:
    """The position of the first intact batch from `begin` on with an offset that may follow, or None."""
    data = np.frombuffer(view, np.uint8)
    for window in range(begin, len(data) - BATCH_OVERHEAD + 1, _WINDOW_BYTES):
        stop = min(window + _WINDOW_BYTES, len(data) - BATCH_OVERHEAD + 1)
        # A plausible header: an offset below 2^48, less than 16 MiB, and the magic.
        possible = data[window + MAGIC : stop + MAGIC] == CURRENT_MAGIC
        for place in (0, 1, LENGTH):
            possible &= data[window + place : stop + place] == 0
        for candidate in (np.flatnonzero(possible) + window).tolist():
            if _base_offset(view, candidate) < (expected or 0):
                continue
            if not isinstance(_batch_at(view, candidate, EVERYTHING), str):
                return int(candidate)
    return None
