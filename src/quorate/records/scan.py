"""Checks the records of a batch without creating an object for each of them.

A broker must make sure that every client can read the records it stores. The number of records must be
that of the header, the offset deltas must be 0, 1, 2, ..., and the parts of each record must fill it
exactly. The broker also needs the largest timestamp. Walking the records one by one takes about a
microsecond for each.

But producers mostly send records of one shape. Then every field is at a fixed distance from the same
field of the previous record, and `buffer[field::stride]` is the column of this field for all records of
the run, which the interpreter compares at the speed of memory. So runs of equal shape are checked by
column, and other records one by one. (100 records of 1,000 bytes take 13 us instead of 90; 900 of 100
bytes take 63 us instead of 960.)
"""

from __future__ import annotations

from collections.abc import Iterator

from quorate.dataclass import dataclass
from quorate.records.errors import InvalidRecordError
from quorate.records.varint import decode, decode_long

_MIN_RUN = 4  # for shorter runs, columns take longer than single records
_RUN_STARTS_AT_RETRY = 16  # the records that are walked before columns are tried again


@dataclass(slots=True)
class ScanResult:
    """The result of a scan. Timestamp deltas are relative to the base timestamp of the batch, in ms."""

    max_timestamp_delta: int
    min_timestamp_delta: int
    contiguous: bool  # offset deltas are 0, 1, 2, ...
    null_keys: list[int]  # indexes of records without a key, if requested


def scan_records(body: bytes | bytearray, count: int, *, find_null_keys: bool = False) -> ScanResult:
    """Checks all records of a batch. Raises InvalidRecordError at the first record that is incomplete or
    invalid."""
    if not 0 < count <= len(body):
        raise InvalidRecordError(
            f"Found invalid record count {count} in a batch with {len(body)} bytes of records"
        )
    end = len(body)
    pos = index = 0
    highest, lowest = -(1 << 63), 1 << 63
    contiguous = True
    null_keys: list[int] = []
    next_run = 0
    while index < count:
        if index >= next_run and count - index >= _MIN_RUN:
            run = _run(body, pos, end, index, count)
            if run is not None:
                n, pos, high, low, null_key = run
                if find_null_keys and null_key:
                    null_keys.extend(range(index, index + n))
                index += n
                highest = max(highest, high)
                lowest = min(lowest, low)
                continue
            next_run = index + _RUN_STARTS_AT_RETRY
        last = min(count, next_run) if next_run > index else count
        while index < last:
            pos, delta, offset_delta, null_key = _walk_one(body, pos, end)
            if delta > highest:
                highest = delta
            if delta < lowest:
                lowest = delta
            if offset_delta != index:
                contiguous = False
            if null_key and find_null_keys:
                null_keys.append(index)
            index += 1
    if pos != end:
        raise InvalidRecordError(
            f"Incorrect declared batch size, {end - pos} bytes are left after {count} records"
        )
    return ScanResult(highest, lowest, contiguous, null_keys)


def walk_deltas(body: bytes | bytearray, count: int) -> Iterator[tuple[int, int]]:
    """Yields the timestamp delta and the offset delta of each record. Raises InvalidRecordError."""
    pos, end = 0, len(body)
    for _ in range(count):
        pos, timestamp_delta, offset_delta, _ = _walk_one(body, pos, end)
        yield timestamp_delta, offset_delta


def walk_sizes(body: bytes | bytearray | memoryview, count: int) -> Iterator[int]:
    """Yields the size of each record, without the bytes of the size itself. Raises InvalidRecordError."""
    pos, end = 0, len(body)
    for _ in range(count):
        size, pos = decode(body, pos, end)
        if size < 0 or pos + size > end:
            raise InvalidRecordError(f"Invalid record size {size} at byte {pos} of {end}")
        yield size
        pos += size


def _walk_one(body: bytes | bytearray, start: int, end: int) -> tuple[int, int, int, bool]:
    """Checks the record at `start`. Returns (next position, timestamp delta, offset delta, whether the key
    is null).

    Lengths of one or two bytes, which are the usual ones, are decoded without a call. Positions only grow, so
    a record whose parts end where its size says was read within its bounds. An access behind the buffer is
    repeated with checks, which find the reason.
    """
    pos = start
    try:
        byte = body[pos]
        if byte < 0x80:
            size = (byte >> 1) ^ -(byte & 1)
            pos += 1
        elif body[pos + 1] < 0x80:
            size = ((byte & 0x7F | body[pos + 1] << 7) >> 1) ^ -(byte & 1)
            pos += 2
        else:
            size, pos = decode(body, pos, end)
        stop = pos + size
        if size < 6 or stop > end:
            raise InvalidRecordError(f"Invalid record size {size} at byte {pos} of {end}")
        pos += 1
        byte = body[pos]
        if byte < 0x80:
            timestamp_delta = (byte >> 1) ^ -(byte & 1)
            pos += 1
        else:
            timestamp_delta, pos = decode_long(body, pos, stop)
        byte = body[pos]
        if byte < 0x80:
            offset_delta = (byte >> 1) ^ -(byte & 1)
            pos += 1
        elif body[pos + 1] < 0x80:
            offset_delta = ((byte & 0x7F | body[pos + 1] << 7) >> 1) ^ -(byte & 1)
            pos += 2
        else:
            offset_delta, pos = decode(body, pos, stop)
        byte = body[pos]
        if byte < 0x80:
            key_size = (byte >> 1) ^ -(byte & 1)
            pos += 1
        else:
            key_size, pos = decode(body, pos, stop)
        if key_size >= 0:
            pos += key_size
        elif key_size != -1:
            raise InvalidRecordError(f"Invalid key length {key_size}")
        byte = body[pos]
        if byte < 0x80:
            value_size = (byte >> 1) ^ -(byte & 1)
            pos += 1
        elif body[pos + 1] < 0x80:
            value_size = ((byte & 0x7F | body[pos + 1] << 7) >> 1) ^ -(byte & 1)
            pos += 2
        else:
            value_size, pos = decode(body, pos, stop)
        if value_size >= 0:
            pos += value_size
        elif value_size != -1:
            raise InvalidRecordError(f"Invalid value length {value_size}")
        if pos + 1 == stop and not body[pos]:
            return stop, timestamp_delta, offset_delta, key_size < 0
    except IndexError:
        return _walk_checked(body, start, end)
    if pos >= stop:
        return _walk_checked(body, start, end)
    return _walk_headers(body, pos, stop), timestamp_delta, offset_delta, key_size < 0


def _walk_checked(body: bytes | bytearray, pos: int, end: int) -> tuple[int, int, int, bool]:
    """Checks a record that may end behind the buffer."""
    size, pos = decode(body, pos, end)
    if size < 6 or pos + size > end:
        raise InvalidRecordError(f"Invalid record size {size} at byte {pos} of {end}")
    return _walk_parts(body, pos, pos + size)


def _walk_parts(body: bytes | bytearray, pos: int, stop: int) -> tuple[int, int, int, bool]:
    """Checks the parts of a record after its size, with every access checked."""
    timestamp_delta, pos = decode_long(body, pos + 1, stop)
    offset_delta, pos = decode(body, pos, stop)
    key_size, pos = decode(body, pos, stop)
    if key_size >= 0:
        pos += key_size
    elif key_size != -1:
        raise InvalidRecordError(f"Invalid key length {key_size}")
    value_size, pos = decode(body, pos, stop)
    if value_size >= 0:
        pos += value_size
    elif value_size != -1:
        raise InvalidRecordError(f"Invalid value length {value_size}")
    return _walk_headers(body, pos, stop), timestamp_delta, offset_delta, key_size < 0


def _walk_headers(body: bytes | bytearray, pos: int, stop: int) -> int:
    """Checks the headers of a record. Returns `stop`, where the record must end."""
    headers, pos = decode(body, pos, stop)
    if headers:
        if not 0 < headers <= stop - pos:
            raise InvalidRecordError(f"Found invalid number of record headers {headers}")
        for _ in range(headers):
            name_size, pos = decode(body, pos, stop)
            if name_size < 0:
                raise InvalidRecordError(f"Found invalid header key size {name_size}")
            content_size, pos = decode(body, pos + name_size, stop)
            if content_size > 0:
                pos += content_size
            elif content_size < -1:
                raise InvalidRecordError(f"Invalid header value length {content_size}")
    if pos != stop:
        where = "after" if pos > stop else "before"
        raise InvalidRecordError(f"Invalid record size: its parts end {abs(pos - stop)} bytes {where} it")
    return stop


def _run(
    body: bytes | bytearray, start: int, end: int, index: int, count: int
) -> tuple[int, int, int, int, bool] | None:
    """Checks by column as many following records as have the shape of the one at `start`.

    Returns (number of records, next position, largest and smallest timestamp delta, whether the keys are
    null), or None if columns are not worthwhile: for records with headers, with long timestamp deltas,
    or of changing shape. The checks are the same as those of `_walk_one`.
    """
    try:
        size, pos = decode(body, start, end)
        stop = pos + size
        if size < 6 or stop > end:
            return None
        timestamp_at = pos + 1
        _, pos = decode_long(body, timestamp_at, stop)
        timestamp_width = pos - timestamp_at
        offset_at = pos
        offset_delta, pos = decode(body, pos, stop)
        offset_width = pos - offset_at
        key_at = pos
        key_size, pos = decode(body, pos, stop)
        key_end = pos
        pos += max(key_size, 0)
        value_at = pos
        value_size, pos = decode(body, pos, stop)
        value_end = pos
        pos += max(value_size, 0)
    except InvalidRecordError:
        return None
    if pos + 1 != stop or body[pos] or offset_delta != index or timestamp_width > 2 or offset_width > 3:
        return None
    if key_size < -1 or value_size < -1:
        return None
    stride = stop - start
    # The records that fit into the buffer and have an offset delta of the same width, which grows at 64
    # and 8192. Offset deltas of three bytes must have the same last byte.
    same_width = 64 - index if offset_width == 1 else _BLOCK - index % _BLOCK
    n = min(count - index, (end - start) // stride, same_width)
    if n < _MIN_RUN:
        return None
    # The run ends where a column of the frame changes: sizes of record, key and value,
    # the header count.
    for at in (
        *range(start, timestamp_at - 1),
        *range(key_at, key_end),
        *range(value_at, value_end),
        stop - 1,
    ):
        column = body[at : at + n * stride : stride]
        if column.count(column[0]) != n:
            n = n - len(column.lstrip(column[:1]))
            if n < _MIN_RUN:
                return None
    # Timestamp deltas must keep their width.
    low = body[timestamp_at : timestamp_at + n * stride : stride]
    if timestamp_width == 1:
        if not low.isascii():
            n = next(i for i, byte in enumerate(low) if byte > 0x7F)
            low = low[:n]
        raw = low
        values = [(byte >> 1) ^ -(byte & 1) for byte in set(raw)]
    else:
        high = body[timestamp_at + 1 : timestamp_at + 1 + n * stride : stride]
        if not high.isascii() or min(low) < 0x80:
            n = next(i for i, (a, b) in enumerate(zip(low, high, strict=True)) if a < 0x80 or b > 0x7F)
            low, high = low[:n], high[:n]
        values = [((a & 0x7F | b << 7) >> 1) ^ -(a & 1) for a, b in set(zip(low, high, strict=True))]
    if n < _MIN_RUN:
        return None
    first = index % _BLOCK
    if body[offset_at : offset_at + n * stride : stride] != _OFFSET_LOW[offset_width - 1][first : first + n]:
        return None
    if (
        offset_width > 1
        and body[offset_at + 1 : offset_at + 1 + n * stride : stride]
        != _OFFSET_HIGH[offset_width - 2][first : first + n]
    ):
        return None
    if offset_width > 2:
        column = body[offset_at + 2 : offset_at + 2 + n * stride : stride]
        if column.count(column[0]) != n:  # the first record is correct, because its offset delta was decoded
            return None
    return n, start + n * stride, max(values), min(values), key_size < 0


# The columns of the offset deltas 0, 1, 2, ...: zig-zag 2n, in one byte below 64, in
# two bytes below 8192, then in three bytes, of which the first two repeat every 8192 records.
_BLOCK = 8192
_LOW = bytes(range(0x80, 0x100, 2)) * 128
_OFFSET_LOW = (bytes(range(0, 0x80, 2)), _LOW, _LOW)
_OFFSET_HIGH = (
    b"".join(bytes([n]) * 64 for n in range(128)),
    b"".join(bytes([n | 0x80]) * 64 for n in range(128)),
)
