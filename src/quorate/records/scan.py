"""Checks the records of a batch without making an object of each.

A broker must know that what it stores can be read by everybody: that there are as many records as the
header says, that their offset deltas count 0, 1, 2..., that each record's parts fill it exactly, and
what the greatest timestamp is. Walking them one by one costs about a microsecond each. But producers
mostly send records of one shape: then every field lies at a fixed distance from the last record's, and
`buffer[field::stride]` is the column of that field for all records of the run, which the interpreter
compares at memory speed. So runs of equal shape are checked by column, and the rest one by one. (100
records of 1,000 bytes: 13 us instead of 90; 900 of 100 bytes: 63 us instead of 960.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from quorate.records.errors import InvalidRecordError
from quorate.records.varint import decode, decode_long

_MIN_RUN = 4  # below, columns cost more than they save
_ROOM = 20  # bytes that sizes, deltas and their varints take at most before the key
_RUN_STARTS_AT_RETRY = 16  # records walked before columns are tried again after they failed


@dataclass(slots=True)
class ScanResult:
    """Timestamp deltas are against the batch's base timestamp, in ms."""

    max_timestamp_delta: int
    min_timestamp_delta: int
    contiguous: bool  # offset deltas are 0, 1, 2, ...
    null_keys: list[int]  # indexes of records without a key, if asked for


def scan_records(body: bytes | bytearray, count: int, *, find_null_keys: bool = False) -> ScanResult:
    """Checks the whole record section. Raises InvalidRecordError at the first record that is not whole
    or not valid."""
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
    """Timestamp and offset delta of each record, one by one. Raises InvalidRecordError."""
    pos, end = 0, len(body)
    for _ in range(count):
        pos, timestamp_delta, offset_delta, _ = _walk_one(body, pos, end)
        yield timestamp_delta, offset_delta


def _walk_one(body: bytes | bytearray, pos: int, end: int) -> tuple[int, int, int, bool]:
    """(next position, timestamp delta, offset delta, key is null) of the record at `pos`, all of its
    parts checked."""
    if pos + _ROOM > end:  # near the end every byte is bounded
        return _walk_last(body, pos, end)
    # The lengths in one byte or two, as nearly all are, without a call for each.
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
    if stop + _ROOM > end or size < _ROOM:
        return _walk_parts(body, pos, stop)
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
    if pos + 2 >= stop:
        value_size, pos = decode(body, pos, stop)
    else:
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
    pos = _walk_headers(body, pos, stop)
    return pos, timestamp_delta, offset_delta, key_size < 0


def _walk_last(body: bytes | bytearray, pos: int, end: int) -> tuple[int, int, int, bool]:
    size, pos = decode(body, pos, end)
    if size < 6 or pos + size > end:
        raise InvalidRecordError(f"Invalid record size {size} at byte {pos} of {end}")
    return _walk_parts(body, pos, pos + size)


def _walk_parts(body: bytes | bytearray, pos: int, stop: int) -> tuple[int, int, int, bool]:
    """As `_walk_one` from behind the record's size, with every byte bounded."""
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
    """`stop`, where the headers and with them the record must end."""
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
        where = "behind" if pos > stop else "before"
        raise InvalidRecordError(f"Invalid record size: its parts end {abs(pos - stop)} bytes {where} it")
    return stop


def _run(
    body: bytes | bytearray, start: int, end: int, index: int, count: int
) -> tuple[int, int, int, int, bool] | None:
    """Checks as many records of the shape of the one at `start` as follow each other, by column.

    (records, next position, greatest and least timestamp delta, keys are null), None when it is not
    worth it: records with headers, with long timestamp deltas, or of changing shape. Everything that
    `_walk_one` checks of one record is checked here of all.
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
    # As many as fit, and as have an offset delta of the same width (64 and 8192 are where it grows); of
    # three bytes, as have the same last one.
    same_width = 64 - index if offset_width == 1 else _BLOCK - index % _BLOCK
    n = min(count - index, (end - start) // stride, same_width)
    if n < _MIN_RUN:
        return None
    # The run ends where a column of the frame stops repeating its byte: sizes of record, key and value,
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
        if column.count(column[0]) != n:  # of the first record it is right: its offset delta was decoded
            return None
    return n, start + n * stride, max(values), min(values), key_size < 0


# What the offset delta columns of records 0, 1, 2... look like: zig-zag 2n, in one byte below 64, in
# two below 8192, then in three, of which the first two repeat every 8192 records.
_BLOCK = 8192
_LOW = bytes(range(0x80, 0x100, 2)) * 128
_OFFSET_LOW = (bytes(range(0, 0x80, 2)), _LOW, _LOW)
_OFFSET_HIGH = (
    b"".join(bytes([n]) * 64 for n in range(128)),
    b"".join(bytes([n | 0x80]) * 64 for n in range(128)),
)
