"""Record batch v2 (magic 2), the unit of append, replication and fetch: KIP-98.

`batch_header` describes the header and reads it; this module reads and builds complete batches. Functions
that read a batch look only at its header unless their name contains "records" or "values".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache

import google_crc32c

from quorate.records.batch_header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    BATCH_OVERHEAD,
    BIT_CONTROL,
    BIT_LOG_APPEND_TIME,
    BIT_TRANSACTIONAL,
    CRC,
    CURRENT_MAGIC,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH,
    LOG_OVERHEAD,
    MAGIC,
    MAX_INT32,
    MAX_TIMESTAMP,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORDS_COUNT,
    BatchHeader,
    TimestampType,
    parse_header,
)
from quorate.records.compression import MAX_DECOMPRESSED_BYTES, Compression, compress, decompress
from quorate.records.errors import CorruptRecordError, InvalidRecordError
from quorate.records.record import NO_TIMESTAMP, Headers, Record, RecordTuple, decode_all, encode_one
from quorate.records.record_runs import MIN_RUN, find_run
from quorate.records.varint import Buffer, decode, decode_long, encode

__all__ = [
    "ATTRIBUTES",
    "BASE_OFFSET",
    "BASE_SEQUENCE",
    "BASE_TIMESTAMP",
    "BATCH_OVERHEAD",
    "CRC",
    "CURRENT_MAGIC",
    "LAST_OFFSET_DELTA",
    "LEADER_EPOCH",
    "LENGTH",
    "LOG_OVERHEAD",
    "MAGIC",
    "MAX_INT32",
    "MAX_TIMESTAMP",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "PRODUCER_EPOCH",
    "PRODUCER_ID",
    "RECORDS_COUNT",
    "BatchHeader",
    "Compression",
    "CorruptRecordError",
    "Headers",
    "InvalidRecordError",
    "Record",
    "RecordTuple",
    "TimestampType",
    "build_batch",
    "build_control_batch",
    "build_metadata_batch",
    "compute_crc",
    "control_records",
    "decode_records",
    "has_crc",
    "iter_batches",
    "iter_metadata_values",
    "metadata_values",
    "parse_header",
    "records_section",
    "repack",
    "set_placement",
    "verify_crc",
    "with_max_timestamp",
]

_PREFIX = struct.Struct(">qi")
_CHECKED = struct.Struct(">hiqqqhii")
"""The fields that the checksum covers, from the attributes to the record count."""
_INT16_PAIR = struct.Struct(">hh")


def iter_batches(buf: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields the header and the bytes of each batch. Stops at an incomplete last batch, which a Fetch
    response may have.

    Raises CorruptRecordError for an invalid header.
    """
    view = memoryview(buf)
    pos, end = 0, len(view)
    while end - pos >= LOG_OVERHEAD:
        _, length = _PREFIX.unpack_from(view, pos)
        if length < BATCH_OVERHEAD - LOG_OVERHEAD:
            raise CorruptRecordError(f"Batch at byte {pos} has length {length}, less than its header")
        after = pos + length + LOG_OVERHEAD
        if after > end:
            return
        yield parse_header(view, pos), view[pos:after]
        pos = after


def compute_crc(buf: Buffer) -> int:
    """The CRC-32C (RFC 3720) of one complete batch, from its attributes on."""
    # google_crc32c accepts only bytes. The copy takes a quarter of the time of the checksum.
    return int(google_crc32c.value(bytes(memoryview(buf)[ATTRIBUTES:])))


def verify_crc(buf: Buffer) -> bool:
    """Whether the checksum of the one complete batch in `buf` is correct."""
    return len(buf) >= BATCH_OVERHEAD and int.from_bytes(buf[CRC : CRC + 4], "big") == compute_crc(buf)


def has_crc(data: bytes, at: int, header: BatchHeader) -> bool:
    """Whether the complete batch at position `at` of the data, which has this header, has its checksum.

    As `verify_crc`, for bytes that are there already: only the part that is checked is copied.
    """
    return int(google_crc32c.value(data[at + ATTRIBUTES : at + header.size_bytes])) == header.crc


def set_placement(buf: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Writes the base offset and the leader epoch, which the leader assigns, to the batch at the start
    of a buffer. The checksum does not cover these fields."""
    struct.pack_into(">q", buf, BASE_OFFSET, base_offset)
    struct.pack_into(">i", buf, LEADER_EPOCH, leader_epoch)


def with_max_timestamp(batch: Buffer, timestamp_type: TimestampType, max_timestamp: int) -> bytearray:
    """A copy of the batch with this timestamp type and maximum timestamp, and a new checksum."""
    out = bytearray(batch)
    (attributes,) = struct.unpack_from(">h", out, ATTRIBUTES)
    attributes = (
        attributes | BIT_LOG_APPEND_TIME
        if timestamp_type is TimestampType.LOG_APPEND_TIME
        else attributes & ~BIT_LOG_APPEND_TIME
    )
    struct.pack_into(">h", out, ATTRIBUTES, attributes)
    struct.pack_into(">q", out, MAX_TIMESTAMP, max_timestamp)
    struct.pack_into(">I", out, CRC, compute_crc(out))
    return out


def records_section(batch: Buffer, header: BatchHeader, limit: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """The records of the one complete batch in `batch`, decompressed to at most `limit` bytes. Raises
    CorruptRecordError."""
    body = memoryview(batch)[BATCH_OVERHEAD : header.size_bytes]
    codec = header.compression
    return body if codec is Compression.NONE else decompress(codec, body, limit)


def decode_records(batch: Buffer, limit: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """All records of one complete batch. Does not verify the checksum. Raises CorruptRecordError or
    InvalidRecordError."""
    header = parse_header(batch)
    if len(batch) < header.size_bytes:
        raise CorruptRecordError(f"Batch of {header.size_bytes} bytes is truncated at {len(batch)}")
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    body = records_section(batch, header, limit)
    return decode_all(body, header.count, header.base_offset, header.base_timestamp, append_time)


def _seal(
    body: Buffer,
    count: int,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """A batch with these fields and this body, and its length and checksum."""
    checked = _CHECKED.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    body = bytes(body)
    crc = google_crc32c.extend(google_crc32c.value(checked), body)
    head = struct.pack(
        ">qiibI", base_offset, len(body) + BATCH_OVERHEAD - LOG_OVERHEAD, leader_epoch, CURRENT_MAGIC, crc
    )
    return b"".join((head, checked, body))


def build_batch(
    records: Sequence[RecordTuple | Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    is_control: bool = False,
    is_transactional: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int = NO_TIMESTAMP,
) -> bytes:
    """A complete batch of (key, value, headers, timestamp) tuples, or of `Record`s, in this order.

    Offsets are contiguous from `base_offset`; the offset of a `Record` is ignored. With LogAppendTime,
    `log_append_time_ms` is the maximum timestamp of the batch. Raises ValueError for an empty batch.
    """
    if not records:
        raise ValueError("A record batch holds at least one record")
    body = bytearray()
    base_timestamp = max_timestamp = NO_TIMESTAMP
    for delta, record in enumerate(records):
        if isinstance(record, Record):
            record = (record.key, record.value, record.headers, record.timestamp)
        key, value, headers, timestamp = record
        if delta == 0:
            base_timestamp = max_timestamp = timestamp
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
        encode_one(body, delta, timestamp - base_timestamp, key, value, headers)
    attributes = int(compression)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= BIT_LOG_APPEND_TIME
        max_timestamp = log_append_time_ms
    if is_transactional:
        attributes |= BIT_TRANSACTIONAL
    if is_control:
        attributes |= BIT_CONTROL
    packed = body if compression is Compression.NONE else compress(compression, body, compression_level)
    return _seal(
        packed,
        len(records),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def repack(
    header: BatchHeader,
    records: Buffer,
    *,
    compression: Compression,
    compression_level: int | None,
    timestamp_type: TimestampType,
    max_timestamp: int,
) -> bytes:
    """The batch of `header` with another codec and a base offset of 0. `records` are its uncompressed
    records, which do not change."""
    attributes = int(compression)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= BIT_LOG_APPEND_TIME
    attributes |= header.attributes & (BIT_TRANSACTIONAL | BIT_CONTROL)
    return _seal(
        records if compression is Compression.NONE else compress(compression, records, compression_level),
        header.count,
        base_offset=0,
        leader_epoch=NO_LEADER_EPOCH,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def build_metadata_batch(
    values: Sequence[Buffer], *, base_offset: int, leader_epoch: int, timestamp: int
) -> bytes:
    """A batch as Raft leaders and snapshots write it: null keys, no headers, timestamp deltas of 0,
    uncompressed."""
    if not values:
        raise ValueError("A record batch holds at least one record")
    parts: list[Buffer] = []
    for delta, value in enumerate(values):
        parts += (_metadata_head(delta, len(value)), value, b"\x00")
    return _seal(
        b"".join(parts),
        len(values),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=0,
        last_offset_delta=len(values) - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
    )


@lru_cache(8_192)
def _metadata_head(delta: int, size: int) -> bytes:
    """What is before the value of a record of this offset delta and size. Few sizes occur again and again."""
    # attributes 0, timestamp delta 0, offset delta, key length -1 (zig-zag 1)
    head = b"\x00\x00" + encode(delta) + b"\x01" + encode(size)
    return encode(len(head) + size + 1) + head


def metadata_values(batch: Buffer) -> list[memoryview]:
    """The record values of one complete data batch of the metadata log. They are not copied if the batch is
    not compressed.

    The checks are as strict as those of Kafka's Raft reader: timestamp deltas of 0, null keys, non-empty
    values, no headers, no trailing bytes. The batch must not be a control batch. Raises
    CorruptRecordError or InvalidRecordError.
    """
    return list(iter_metadata_values(batch))


def iter_metadata_values(batch: Buffer) -> Iterator[memoryview]:
    """Yields the same values one by one, for a batch that would take too long at once. Errors are raised
    when the iteration reaches them."""
    header = parse_header(batch)
    if len(batch) < header.size_bytes:
        raise CorruptRecordError(f"Batch of {header.size_bytes} bytes is truncated at {len(batch)}")
    return _raft_values(memoryview(records_section(batch, header)), header)


def _raft_values(body: memoryview, header: BatchHeader) -> Iterator[memoryview]:
    """Yields the values of the records in `body`."""
    end = len(body)
    if not 0 <= header.count <= end:
        raise InvalidRecordError(
            f"Batch at offset {header.base_offset} has an invalid record count of {header.count}"
        )
    pos = index = next_try = 0
    pause = 1  # records to read one by one before the next search for a run
    while index < header.count:
        if index >= next_try and header.count - index >= MIN_RUN:
            run = find_run(body, pos, index, header.count)
            if run is not None:
                size = run.size
                for at in range(run.value_at, run.value_at + run.length * run.stride, run.stride):
                    yield body[at : at + size]
                pos += run.length * run.stride
                index += run.length
                if run.length >= MIN_RUN:
                    pause = 1
                    continue
            pause = min(pause * 2, MIN_RUN)
            next_try = index + pause
            if run is not None:
                continue
        size = body[pos] if pos < end else 0x80
        if size < 0x80 and not size & 1:
            size >>= 1
            pos += 1
        else:
            size, pos = decode(body, pos, end)
        stop = pos + size
        if size < 6 or stop > end:
            raise InvalidRecordError(
                f"Invalid record size {size} at byte {pos} of the batch at offset {header.base_offset}"
            )
        if body[pos] != 0:
            raise InvalidRecordError(
                f"Invalid attributes {body[pos]} of record {index} of the batch at offset "
                f"{header.base_offset}"
            )
        pos += 1
        if body[pos] == 0:
            pos += 1
        else:
            delta, pos = decode_long(body, pos, stop)
            if delta:
                raise InvalidRecordError(
                    f"Got timestamp delta {delta} in the batch at offset {header.base_offset}; it must be 0"
                )
        offset_delta, pos = decode(body, pos, stop)
        if offset_delta != index:
            raise InvalidRecordError(
                f"Got offset delta {offset_delta} for record {index} of the batch at offset "
                f"{header.base_offset}"
            )
        key_size, pos = decode(body, pos, stop)
        if key_size >= 0:
            raise InvalidRecordError(
                f"Got key size {key_size} in the batch at offset {header.base_offset}; the key must be null"
            )
        value_size, pos = decode(body, pos, stop)
        if value_size <= 0 or pos + value_size > stop:
            raise InvalidRecordError(
                f"Invalid value size {value_size} in the batch at offset {header.base_offset}"
            )
        value = body[pos : pos + value_size]
        pos += value_size
        if pos + 1 != stop or body[pos] != 0:
            raise InvalidRecordError(
                f"Got headers or left-over bytes in record {index} of the batch at offset "
                f"{header.base_offset}"
            )
        pos = stop
        index += 1
        yield value
    if pos != end:
        raise InvalidRecordError(
            f"{end - pos} bytes are left after the last record of the batch at offset {header.base_offset}"
        )


def control_records(batch: Buffer) -> Iterator[tuple[int, memoryview]]:
    """(type, value bytes) of each record of a control batch. The key of a control record is an int16
    version and an int16 type."""
    header = parse_header(batch)
    if len(batch) < header.size_bytes:
        raise CorruptRecordError(f"Batch of {header.size_bytes} bytes is truncated at {len(batch)}")
    if not header.is_control:
        raise InvalidRecordError(f"The batch at offset {header.base_offset} is not a control batch")
    for key, value in _control_pairs(memoryview(records_section(batch, header)), header):
        if len(key) < 4:
            raise InvalidRecordError(
                f"Control record key of {len(key)} bytes in the batch at offset {header.base_offset}; it "
                "needs 4"
            )
        version, kind = _INT16_PAIR.unpack_from(key)
        if version < 0:
            raise InvalidRecordError(
                f"Invalid version {version} of a control record key in the batch at offset "
                f"{header.base_offset}"
            )
        yield kind, value


def _control_pairs(body: memoryview, header: BatchHeader) -> Iterator[tuple[memoryview, memoryview]]:
    """(key, value) of each record of a control batch."""
    for record in decode_all(body, header.count, header.base_offset, header.base_timestamp, None):
        if record.key is None or record.value is None:
            raise InvalidRecordError(
                f"Control record without key or value in the batch at offset {header.base_offset}"
            )
        yield memoryview(record.key), memoryview(record.value)


def build_control_batch(
    records: Sequence[tuple[int, Buffer]],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    is_transactional: bool = False,
) -> bytes:
    """A control batch of (control record type, value bytes) pairs: records of Raft, or one transaction
    marker."""
    rows: list[RecordTuple] = [
        (_INT16_PAIR.pack(0, kind), bytes(value), (), timestamp) for kind, value in records
    ]
    return build_batch(
        rows,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_control=True,
        is_transactional=is_transactional,
    )
