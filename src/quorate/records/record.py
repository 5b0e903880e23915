"""Reads and writes the records of a batch v2. The layout of the batch is in
`quorate.records.batch_header`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from quorate.dataclass import dataclass
from quorate.protocol.primitives import text
from quorate.records.errors import InvalidRecordError
from quorate.records.varint import Buffer, decode, decode_long, encode

Headers = Sequence[tuple[str, bytes | None]]
RecordTuple = tuple[bytes | None, bytes | None, Headers, int]

NO_TIMESTAMP = -1

_FAITHFUL = "surrogateescape"
"""Preserves the bytes of a header key that is not UTF-8 when a batch is decoded and built again."""


@dataclass(slots=True)
class Record:
    """One record. `timestamp` is in ms, or -1 if there is none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    offset_delta: int = 0
    attributes: int = 0


def decode_all(
    body: Buffer, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None
) -> list[Record]:
    """Reads the records in `body`, which is already decompressed and must contain exactly `count`
    records.

    `log_append_time` overrides the timestamp of each record (timestamp type LogAppendTime). Raises
    InvalidRecordError.
    """
    if not 0 <= count <= len(body):  # a record has at least 7 bytes, so this limits the list before it grows
        raise InvalidRecordError(
            f"Found invalid record count {count} in a batch of {len(body)} bytes of records"
        )
    body = bytes(body)
    out: list[Record] = []
    pos, end = 0, len(body)
    for _ in range(count):
        size, pos = decode(body, pos, end)
        stop = pos + size
        if size < 6 or stop > end:
            raise InvalidRecordError(f"Invalid record size {size} at byte {pos} of {end}")
        attributes = body[pos]
        timestamp_delta, pos = decode_long(body, pos + 1, stop)
        offset_delta, pos = decode(body, pos, stop)
        key, pos = _nullable(body, pos, stop, "key")
        value, pos = _nullable(body, pos, stop, "value")
        headers: list[tuple[str, bytes | None]] = []
        n, pos = decode(body, pos, stop)
        if n:
            if not 0 < n <= stop - pos:
                raise InvalidRecordError(f"Found invalid number of record headers {n}")
            for _ in range(n):
                name, pos = _nullable(body, pos, stop, "header key")
                if name is None:
                    raise InvalidRecordError("Found null header key")
                content, pos = _nullable(body, pos, stop, "header value")
                headers.append((name.decode(errors=_FAITHFUL), content))
        if pos != stop:
            raise InvalidRecordError(
                f"Invalid record size: expected to read {size} bytes in record payload, but {stop - pos} are "
                "left"
            )
        timestamp = base_timestamp + timestamp_delta if log_append_time is None else log_append_time
        out.append(
            Record(base_offset + offset_delta, timestamp, key, value, headers, offset_delta, attributes)
        )
    if pos != end:
        raise InvalidRecordError(
            f"Incorrect declared batch size, {end - pos} bytes are left after {count} records"
        )
    return out


def readable_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Headers for users and applications. Bytes of a key that are not UTF-8 are replaced, as in Apache
    Kafka's consumer."""
    return [
        (name if name.isascii() else text(name.encode(errors=_FAITHFUL)), value) for name, value in headers
    ]


def _nullable(body: bytes, pos: int, stop: int, what: str) -> tuple[bytes | None, int]:
    size, pos = decode(body, pos, stop)
    if size < 0:
        if size != -1:
            raise InvalidRecordError(f"Invalid {what} length {size}")
        return None, pos
    after = pos + size
    if after > stop:
        raise InvalidRecordError(f"Invalid {what} length {size}: {stop - pos} bytes are left")
    return body[pos:after], after


def encode_one(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | memoryview | None,
    value: bytes | memoryview | None,
    headers: Headers = (),
) -> None:
    """Appends one record to `out`."""
    head = b"".join(
        (
            b"\x00",
            encode(timestamp_delta),
            encode(offset_delta),
            b"\x01" if key is None else encode(len(key)),
            key or b"",
            b"\x01" if value is None else encode(len(value)),
        )
    )
    tail: bytes | bytearray = b"\x00"
    if headers:
        tail = bytearray(encode(len(headers)))
        for name, content in headers:
            raw = name.encode(errors=_FAITHFUL)
            tail += encode(len(raw))
            tail += raw
            if content is None:
                tail.append(1)
            else:
                tail += encode(len(content))
                tail += content
    out += encode(len(head) + len(value or b"") + len(tail))
    out += head
    if value:
        out += value
    out += tail
