"""Runs of records of equal size in a batch of the metadata log, found by comparing columns of bytes.

A snapshot of a million partitions consists almost entirely of such runs. A check of one record at a time
takes microseconds in Python. A column has the byte at one position of every record of the run, and one
comparison in C checks it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from quorate.records.errors import InvalidRecordError
from quorate.records.varint import decode, encode

MAX_RUN: Final = 4_096
"""The longest run that is found at once: the comparisons take less than a millisecond."""


MIN_RUN: Final = 8
"""The shortest run that is found faster than its records one by one."""


FIRST_LOOK: Final = 32
"""The records that are compared first, because most topics have few partitions."""


class RecordRun(NamedTuple):
    """`length` records, one every `stride` bytes. The first value has `size` bytes from `value_at` on."""

    length: int
    stride: int
    value_at: int
    size: int


def find_run(body: memoryview, pos: int, index: int, count: int) -> RecordRun | None:
    """The run of records from the one at `pos` on, or None if that record does not begin one.

    `index` is the number of this record within its batch, which has `count` records. Every record of the
    run has no attributes, timestamp delta 0, the offset delta that it should have, no key, a value of the
    same size, and no headers.
    """
    delta = encode(index)
    width, end = len(delta), len(body)
    try:
        record_size, fields_at = decode(body, pos, end)
        size, first_value_at = decode(body, fields_at + width + 3, end)
    except InvalidRecordError:
        return None
    if bytes(body[fields_at : fields_at + width + 3]) != b"\0\0" + delta + b"\1" or size <= 0:
        return None
    delta_at, value_at = fields_at - pos + 2, first_value_at - pos
    stride = value_at + size + 1
    if stride != fields_at - pos + record_size:
        return None
    limit = 1 << 7 * width - 1  # the offset deltas from here on take another byte
    count = min(count - index, limit - index, (end - pos) // stride, MAX_RUN)
    if count == 0 or body[pos + stride - 1]:
        return None
    if count > 1 and body[pos + stride] != body[pos]:  # the next record has another size
        return RecordRun(1, stride, first_value_at, size)
    columns = [*range(delta_at), *range(delta_at + width, value_at), stride - 1]
    for most in (FIRST_LOOK, count):
        data = bytes(body[pos : pos + min(count, most) * stride])
        length = _equal_columns(data, stride, columns)
        if length < most:
            break
    for place in range(width):
        found = data[delta_at + place : length * stride : stride]
        if found != _delta_bytes(index, length, place, last=place == width - 1):
            return None
    return RecordRun(length, stride, first_value_at, size)


def _equal_columns(data: bytes, stride: int, columns: list[int]) -> int:
    """The number of records that equal the first one in these columns."""
    length = len(data) // stride
    for column in columns:
        found = data[column : length * stride : stride]
        length -= len(found.lstrip(found[:1]))
    return length


_PERIODS: Final = {more: bytes([delta << 1 & 0x7F | more for delta in range(64)]) for more in (0, 0x80)}
"""The first bytes of 64 encoded offset deltas, without and with a byte after them."""


def _delta_bytes(index: int, count: int, place: int, *, last: bool) -> bytes:
    """Byte `place` of the encoded offset deltas from `index` on."""
    more = 0 if last else 0x80
    shift = 7 * place - 1  # the zig-zag form is twice the delta
    if shift < 0:
        start = index % 64
        return (_PERIODS[more] * (count // 64 + 2))[start : start + count]
    first, final = index >> shift, index + count - 1 >> shift
    repeated = b"".join(bytes((number & 0x7F | more,)) * (1 << shift) for number in range(first, final + 1))
    start = index - (first << shift)
    return repeated[start : start + count]
