"""Validates a produced batch before the leader writes it, and converts it to the topic's format (KIP-32,
KIP-467).

A correct batch is stored byte for byte: header and records agree (see `quorate.records.scan`), the
maximum timestamp is correct, and the codec is the topic's. Some errors are repaired as in Kafka's
LogValidator: a wrong maximum timestamp is replaced, and a compressed batch is built again if its inner
offsets are not contiguous.
"""

from __future__ import annotations

from itertools import islice
from typing import Protocol

from quorate.dataclass import dataclass
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.records.batch import (
    CURRENT_MAGIC,
    BatchHeader,
    TimestampType,
    build_batch,
    decode_records,
    records_section,
    repack,
    with_max_timestamp,
)
from quorate.records.batch_header import BIT_LOG_APPEND_TIME
from quorate.records.compression import Compression
from quorate.records.errors import InvalidRecordError
from quorate.records.record import NO_TIMESTAMP
from quorate.records.scan import ScanResult, scan_records, walk_deltas, walk_sizes
from quorate.records.varint import Buffer

MAX_RECORD_ERRORS = 1000
"""The number of invalid records that are reported, each with a message. Kafka reports all of them, and
there may be millions."""


class ProduceRules(Protocol):
    """The configuration of a topic for produced batches. `quorate.log.config.LogConfig` is an
    implementation."""

    @property
    def max_message_bytes(self) -> int: ...
    @property
    def max_decompressed_message_bytes(self) -> int: ...
    @property
    def message_timestamp_type(self) -> TimestampType: ...
    @property
    def message_timestamp_before_max_ms(self) -> int: ...
    @property
    def message_timestamp_after_max_ms(self) -> int: ...
    @property
    def compacts(self) -> bool: ...
    def target_compression(self, source: Compression) -> Compression: ...
    def compression_level(self, codec: Compression) -> int | None: ...


@dataclass(slots=True)
class ValidatedBatch:
    """A batch that is ready to be placed and written. `data` is the original buffer if nothing had to
    change."""

    data: bytes | bytearray | memoryview
    count: int
    max_timestamp: int
    log_append_time_ms: int  # -1 with CreateTime
    changed: bool


def validate_produced(
    batch: memoryview, header: BatchHeader, rules: ProduceRules, now_ms: int, *, from_client: bool = True
) -> ValidatedBatch:
    """Validates one complete batch whose checksum is correct. The records of a coordinator's batch, which
    this broker has encoded, are read only if they must be changed.

    Raises InvalidRecordError with the invalid records, of which the error code may be INVALID_TIMESTAMP,
    CorruptRecordError, or KafkaError with MESSAGE_TOO_LARGE or UNSUPPORTED_COMPRESSION_TYPE.
    """
    if header.magic != CURRENT_MAGIC:
        raise InvalidRecordError(
            f"Record batches with magic {header.magic} are not supported, only {CURRENT_MAGIC}"
        )
    if from_client:
        _check_client_header(header)
    source = header.compression
    target = rules.target_compression(source)
    if header.is_control and source is Compression.NONE:
        target = Compression.NONE  # transaction markers are not compressed
    log_append_time = rules.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    if not from_client and source is target is Compression.NONE and not log_append_time:
        return ValidatedBatch(batch, header.count, header.max_timestamp, NO_TIMESTAMP, False)
    body = records_section(batch, header)
    find_null_keys = rules.compacts and not header.is_control
    body = bytes(body)
    if source is not Compression.NONE and len(body) > rules.max_decompressed_message_bytes:
        for size in walk_sizes(body, header.count):
            check_record_size(size, rules.max_decompressed_message_bytes)
    scan = scan_records(body, header.count, find_null_keys=find_null_keys)
    if scan.null_keys:
        errors = tuple(
            (index, "Compacted topic cannot accept message without key in topic partition")
            for index in scan.null_keys[:MAX_RECORD_ERRORS]
        )
        raise InvalidRecordError(
            f"One or more records have been rejected due to {len(scan.null_keys)} record errors in total: "
            "records without a key in a compacted topic",
            errors,
        )
    has_append_time = bool(header.attributes & BIT_LOG_APPEND_TIME)
    if not log_append_time:
        _check_timestamps(body, header, scan, rules, now_ms)
    elif has_append_time:
        raise _log_append_time_refused()
    if source is not target or (source is not Compression.NONE and not scan.contiguous):
        if scan.contiguous and not has_append_time:
            return _repacked(body, header, target, rules, now_ms, scan)
        return _rebuild(batch, header, target, rules, now_ms)
    max_timestamp = now_ms if log_append_time else _max_timestamp(header, scan)
    if max_timestamp != header.max_timestamp or has_append_time is not log_append_time:
        data = with_max_timestamp(batch, rules.message_timestamp_type, max_timestamp)
        return ValidatedBatch(
            data, header.count, max_timestamp, now_ms if log_append_time else NO_TIMESTAMP, True
        )
    return ValidatedBatch(batch, header.count, max_timestamp, NO_TIMESTAMP, False)


def check_size(size_bytes: int, max_message_bytes: int, name: str) -> None:
    """Raises MESSAGE_TOO_LARGE for a batch above the limit."""
    if size_bytes > max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {name} is {size_bytes} bytes which exceeds the "
            f"maximum configured value of {max_message_bytes}.",
        )


def check_record_size(size_bytes: int, limit: int) -> None:
    """Raises InvalidRecordError for a record of a compressed batch above `max.decompressed.message.bytes`."""
    if size_bytes > limit:
        raise InvalidRecordError(
            f"Invalid record size: {size_bytes} exceeds the configured maximum record size of {limit}."
        )


def _check_client_header(header: BatchHeader) -> None:
    """Checks the header of a batch of a client. Raises InvalidRecordError."""
    if header.last_offset_delta < 0:
        raise InvalidRecordError(
            f"Batch has an invalid offset range: [{header.base_offset}, {header.last_offset}]"
        )
    if header.count <= 0:
        raise InvalidRecordError(f"Invalid reported count for record batch: {header.count}")
    if header.last_offset_delta + 1 != header.count:
        raise InvalidRecordError(
            f"Inconsistent batch offset range [{header.base_offset}, {header.last_offset}] and count of "
            f"records {header.count}"
        )
    if header.is_control:
        raise InvalidRecordError("Clients are not allowed to write control records")
    if header.has_producer_id and header.base_sequence < 0:
        raise InvalidRecordError(
            f"Invalid sequence number {header.base_sequence} in record batch with producerId "
            f"{header.producer_id}"
        )


def _log_append_time_refused() -> InvalidRecordError:
    """The error for a batch whose producer has set LogAppendTime."""
    message = "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."
    return InvalidRecordError(message, ((0, message),), ErrorCode.INVALID_TIMESTAMP)


def _max_timestamp(header: BatchHeader, scan: ScanResult) -> int:
    """The maximum timestamp of a batch according to its records."""
    if header.attributes & BIT_LOG_APPEND_TIME:
        return header.max_timestamp
    if header.base_timestamp == NO_TIMESTAMP and scan.max_timestamp_delta == 0:
        return NO_TIMESTAMP
    return header.base_timestamp + scan.max_timestamp_delta


def _check_timestamps(
    body: bytes, header: BatchHeader, scan: ScanResult, rules: ProduceRules, now_ms: int
) -> None:
    """Raises InvalidRecordError for timestamps that are out of the topic's range."""
    earliest = now_ms - rules.message_timestamp_before_max_ms
    latest = now_ms + rules.message_timestamp_after_max_ms
    has_append_time = bool(header.attributes & BIT_LOG_APPEND_TIME)
    if has_append_time:
        # As in Kafka: the timestamp of the batch is checked, and the batch is stored as CreateTime. It is
        # rejected only if it has no timestamp.
        if header.max_timestamp == NO_TIMESTAMP:
            raise _log_append_time_refused()
        lowest = highest = header.max_timestamp
    else:
        lowest, highest = (
            header.base_timestamp + scan.min_timestamp_delta,
            header.base_timestamp + scan.max_timestamp_delta,
        )
    if lowest >= earliest and highest <= latest:
        return
    append_time = header.max_timestamp if has_append_time else None
    wrong = (
        (index, timestamp, header.base_offset + offset_delta)
        for index, (timestamp_delta, offset_delta) in enumerate(walk_deltas(body, header.count))
        if (timestamp := header.base_timestamp + timestamp_delta if append_time is None else append_time)
        != NO_TIMESTAMP
        and not earliest <= timestamp <= latest
    )
    errors = tuple(
        (index, f"Timestamp {timestamp} of message with offset {offset} is out of range. "
                f"The timestamp should be within [{earliest}, {latest}]")
        for index, timestamp, offset in islice(wrong, MAX_RECORD_ERRORS)
    )  # fmt: skip
    if errors:
        raise InvalidRecordError(
            "One or more records have been rejected due to invalid timestamp",
            errors,
            ErrorCode.INVALID_TIMESTAMP,
        )


def _repacked(
    body: bytes, header: BatchHeader, target: Compression, rules: ProduceRules, now_ms: int, scan: ScanResult
) -> ValidatedBatch:
    """The batch with another codec, and with unchanged records."""
    log_append_time = rules.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    max_timestamp = now_ms if log_append_time else header.base_timestamp + scan.max_timestamp_delta
    data = repack(
        header,
        body,
        compression=target,
        compression_level=rules.compression_level(target),
        timestamp_type=rules.message_timestamp_type,
        max_timestamp=max_timestamp,
    )
    return ValidatedBatch(
        data, header.count, max_timestamp, now_ms if log_append_time else NO_TIMESTAMP, True
    )


def _rebuild(
    batch: Buffer, header: BatchHeader, target: Compression, rules: ProduceRules, now_ms: int
) -> ValidatedBatch:
    """The batch built again from its decoded records."""
    records = decode_records(batch)
    log_append_time = rules.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    data = build_batch(
        records,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        compression=target,
        compression_level=rules.compression_level(target),
        is_control=header.is_control,
        is_transactional=header.is_transactional,
        timestamp_type=rules.message_timestamp_type,
        log_append_time_ms=now_ms if log_append_time else NO_TIMESTAMP,
    )
    max_timestamp = now_ms if log_append_time else max(r.timestamp for r in records)
    return ValidatedBatch(
        data, len(records), max_timestamp, now_ms if log_append_time else NO_TIMESTAMP, True
    )
