"""Runs of records of equal size in a batch of the metadata log, found by comparing columns of bytes.

A snapshot of a million partitions consists almost entirely of such runs. A check of one record at a time
takes microseconds in Python. A column has the byte at one position of every record of the run, and one
comparison in C checks it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from quorate.records.varint import encode

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
    width = len(delta)
    delta_at = _varint_width(body, pos) + 2
    size_at = delta_at + width + 1
    value_at = size_at + _varint_width(body, pos + size_at)
    head = bytes(body[pos : pos + value_at])
    size = _varint(head[size_at:])
    stride = value_at + size + 1
    if head != encode(stride - delta_at + 2) + b"\0\0" + delta + b"\1" + encode(size) or size <= 0:
        return None
    limit = 1 << 7 * width - 1  # the offset deltas from here on take another byte
    count = min(count - index, limit - index, (len(body) - pos) // stride, MAX_RUN)
    if count == 0 or body[pos + stride - 1]:
        return None
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
    return RecordRun(length, stride, pos + value_at, size)


def _equal_columns(data: bytes, stride: int, columns: list[int]) -> int:
    """The number of records that equal the first one in these columns."""
    length = len(data) // stride
    for column in columns:
        found = data[column : length * stride : stride]
        length -= len(found.lstrip(found[:1]))
    return length


def _varint_width(body: memoryview, pos: int) -> int:
    """The number of bytes of the variable-length integer at `pos`: at most 3, which is enough here."""
    for width, byte in enumerate(body[pos : pos + 2], 1):
        if byte < 0x80:
            return width
    return 3


def _varint(data: bytes) -> int:
    """The non-negative zig-zag integer of these bytes, without a check of their form."""
    raw = 0
    for place, byte in enumerate(data):
        raw |= (byte & 0x7F) << 7 * place
    return raw >> 1


def _delta_bytes(index: int, count: int, place: int, *, last: bool) -> bytes:
    """Byte `place` of the encoded offset deltas from `index` on."""
    more = 0 if last else 0x80
    shift = 7 * place - 1  # the zig-zag form is twice the delta
    if shift < 0:
        period = bytes([delta << 1 & 0x7F | more for delta in range(64)])
        start = index % 64
        return (period * (count // 64 + 2))[start : start + count]
    first, final = index >> shift, index + count - 1 >> shift
    repeated = b"".join(bytes((number & 0x7F | more,)) * (1 << shift) for number in range(first, final + 1))
    start = index - (first << shift)
    return repeated[start : start + count]
