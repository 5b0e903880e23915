"""Produced batches: which are rejected, repaired, or stored unchanged."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from quorate.log.config import LogConfig
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.records import batch as b
from quorate.records.batch import (
    Compression,
    TimestampType,
    build_batch,
    decode_records,
    parse_header,
    verify_crc,
)
from quorate.records.compression import compress
from quorate.records.errors import InvalidRecordError
from quorate.records.record import encode_one
from quorate.records.validate import MAX_RECORD_ERRORS, ValidatedBatch, validate_produced

NOW = 1_700_000_000_000
ROWS = [(b"k%d" % i, b"v" * i, [], NOW - i) for i in range(20)]


def validate(data: bytes | bytearray, *, from_client: bool = True, **config: Any) -> ValidatedBatch:
    return validate_produced(
        memoryview(data), parse_header(data), LogConfig(**config), NOW, from_client=from_client
    )


def resealed(data: bytes, field: str, at: int, value: int) -> bytearray:
    out = bytearray(data)
    struct.pack_into(field, out, at, value)
    struct.pack_into(">I", out, b.CRC, b.compute_crc(out))
    return out


@pytest.mark.parametrize("codec", Compression)
def test_a_valid_batch_is_unchanged(codec: Compression) -> None:
    data = build_batch(ROWS, compression=codec)
    valid = validate(data)
    assert not valid.changed and bytes(valid.data) == data
    assert (valid.count, valid.max_timestamp, valid.log_append_time_ms) == (20, NOW, -1)


def test_a_wrong_greatest_timestamp_is_repaired() -> None:
    valid = validate(resealed(build_batch(ROWS), ">q", b.MAX_TIMESTAMP, 5))
    assert valid.changed and valid.max_timestamp == NOW
    assert parse_header(valid.data).max_timestamp == NOW and verify_crc(valid.data)


def test_log_append_time_is_stamped() -> None:
    valid = validate(build_batch(ROWS), message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    header = parse_header(valid.data)
    assert (header.timestamp_type, header.max_timestamp, valid.log_append_time_ms) == (
        TimestampType.LOG_APPEND_TIME,
        NOW,
        NOW,
    )
    assert verify_crc(valid.data) and {r.timestamp for r in decode_records(valid.data)} == {NOW}


@pytest.mark.parametrize("source", Compression)
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_codec_is_applied(source: Compression, target: str) -> None:
    valid = validate(
        build_batch(ROWS, compression=source, producer_id=3, producer_epoch=1, base_sequence=7),
        compression_type=target,
    )
    header = parse_header(valid.data)
    assert header.compression.config_name == target and verify_crc(valid.data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 7)
    assert [(r.key, r.value, r.timestamp) for r in decode_records(valid.data)] == [
        (k, v, t) for k, v, _, t in ROWS
    ]


def test_inner_offsets_of_a_compressed_batch_that_do_not_count_up_are_repaired() -> None:
    body = bytearray()
    for delta in (0, 2, 4):
        encode_one(body, delta, 0, b"k", b"v")
    good = build_batch([(b"k", b"v", [], NOW)] * 3, compression=Compression.ZSTD)
    data = bytearray(good[: b.BATCH_OVERHEAD] + compress(Compression.ZSTD, body))
    struct.pack_into(">i", data, b.LENGTH, len(data) - 12)
    valid = validate(resealed(bytes(data), ">i", b.RECORDS_COUNT, 3))
    assert valid.changed and [r.offset for r in decode_records(valid.data)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("field", "at", "value"),
    [
        (">i", b.LAST_OFFSET_DELTA, 18),
        (">i", b.LAST_OFFSET_DELTA, 20),
        (">i", b.LAST_OFFSET_DELTA, -1),
        (">i", b.RECORDS_COUNT, 0),
        (">i", b.RECORDS_COUNT, -1),
        (">i", b.RECORDS_COUNT, 19),
        (">h", b.ATTRIBUTES, 0x20),
        (">q", b.PRODUCER_ID, 5),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(field: str, at: int, value: int) -> None:
    with pytest.raises(InvalidRecordError):
        validate(resealed(build_batch(ROWS), field, at, value))


def test_count_and_delta_that_agree_but_are_not_the_records_are_refused() -> None:
    data = resealed(resealed(build_batch(ROWS), ">i", b.RECORDS_COUNT, 19), ">i", b.LAST_OFFSET_DELTA, 18)
    with pytest.raises(InvalidRecordError, match="left"):
        validate(data)


def test_a_compacted_topic_needs_keys_and_names_the_records_without() -> None:
    rows = [(None if i in (3, 5) else b"k", b"v", [], NOW) for i in range(8)]
    with pytest.raises(InvalidRecordError) as caught:
        validate(build_batch(rows), cleanup_policy=frozenset({"compact"}))
    assert [index for index, _ in caught.value.record_errors] == [3, 5]
    assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("offset_ms", "config"), [(-1001, "before"), (1001, "after")])
def test_timestamps_out_of_the_topics_range_are_refused(offset_ms: int, config: str) -> None:
    rows = [(b"k", b"v", [], NOW), (b"k", b"v", [], NOW + offset_ms), (b"k", b"v", [], NOW)]
    with pytest.raises(InvalidRecordError) as caught:
        validate(build_batch(rows), **{f"message_timestamp_{config}_max_ms": 1000})
    assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in caught.value.record_errors] == [1]


def test_records_without_a_timestamp_are_in_every_range() -> None:
    valid = validate(build_batch([(b"k", b"v", [], -1)] * 3), message_timestamp_before_max_ms=10)
    assert valid.max_timestamp == -1 and not valid.changed


def test_a_client_may_not_set_log_append_time() -> None:
    data = build_batch(ROWS, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=NOW)
    with pytest.raises(InvalidRecordError) as caught:
        validate(data, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert caught.value.code == ErrorCode.INVALID_TIMESTAMP


def test_log_append_time_in_a_topic_of_create_time_becomes_create_time() -> None:
    data = build_batch(ROWS, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=NOW + 5)
    valid = validate(data)
    header = parse_header(valid.data)
    assert (header.timestamp_type, header.max_timestamp) == (
        TimestampType.CREATE_TIME,
        NOW + 5,
    ) and verify_crc(valid.data)


def test_a_marker_of_a_coordinator_keeps_its_form_in_a_compressed_topic() -> None:
    marker = b.build_control_batch(
        [(1, b"\0\0\0\0\0\5")], timestamp=NOW, producer_id=4, producer_epoch=0, is_transactional=True
    )
    valid = validate(marker, from_client=False, compression_type="zstd")
    assert bytes(valid.data) == marker


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_a_compressed_batch_that_does_not_decompress_is_corrupt(codec: Compression) -> None:
    data = bytearray(build_batch(ROWS, compression=codec))
    data[b.BATCH_OVERHEAD + 8 :] = bytes(len(data) - b.BATCH_OVERHEAD - 8)
    with pytest.raises(KafkaError) as caught:
        validate(resealed(bytes(data), ">i", b.RECORDS_COUNT, 20))
    assert caught.value.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_the_number_of_reported_invalid_records_is_limited() -> None:
    """A small compressed batch may contain a million records. Messages for all of them would take a
    minute and a gigabyte."""
    late = build_batch([(None, b"v", [], NOW + 10**10)] * 50_000, compression=Compression.ZSTD)
    with pytest.raises(InvalidRecordError) as raised:
        validate(late)
    assert raised.value.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in raised.value.record_errors] == list(range(MAX_RECORD_ERRORS))
    keyless = build_batch([(None, b"v", [], NOW)] * 50_000, compression=Compression.ZSTD)
    with pytest.raises(InvalidRecordError, match="50000 record errors") as raised:
        validate(keyless, cleanup_policy=("compact",))
    assert len(raised.value.record_errors) == MAX_RECORD_ERRORS


def test_the_offsets_of_wrong_records_are_those_of_the_batch() -> None:
    rows = [
        (None, b"v", [], NOW),
        (None, b"v", [], NOW + 10**10),
        (None, b"v", [("h", b"x")], NOW - 5),
        (None, b"v", [], -7),
    ]
    with pytest.raises(InvalidRecordError) as raised:
        validate(build_batch(rows, base_offset=40), message_timestamp_before_max_ms=10**9)
    assert [
        (index, text.split(" of message with offset ")[1].split(" ")[0])
        for index, text in raised.value.record_errors
    ] == [
        (1, "41"),
        (3, "43"),
    ]


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_another_codec_does_not_change_the_records(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are not decoded, since a small batch may contain a million of them."""
    rows = [(b"k", b"v" * 50, [("h", b"1")], NOW + i % 7) for i in range(3000)]
    source = Compression.SNAPPY if target != "snappy" else Compression.NONE
    data = build_batch(rows, compression=source, producer_id=3, producer_epoch=1, base_sequence=7)
    with monkeypatch.context() as patch:
        patch.setattr(
            "quorate.records.validate.decode_records", lambda *_: pytest.fail("records were decoded")
        )
        valid = validate(data, compression_type=target)
    header = parse_header(valid.data)
    assert (valid.max_timestamp, header.max_timestamp, header.count, header.last_offset_delta) == (
        NOW + 6,
        NOW + 6,
        3000,
        2999,
    )
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 7)
    assert verify_crc(valid.data)
    assert [(r.key, r.value, r.headers, r.timestamp) for r in decode_records(valid.data)] == rows


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_a_record_that_is_too_large_when_decompressed_is_refused(codec: Compression) -> None:
    rows = [(None, b"small", [], NOW), (None, b"v" * 1000, [], NOW)]
    encoded = bytearray()
    encode_one(encoded, 1, 0, None, b"v" * 1000)
    size = len(encoded) - 2  # without the two bytes of the size itself
    data = build_batch(rows, compression=codec)
    assert not validate(data, max_decompressed_message_bytes=size).changed
    with pytest.raises(InvalidRecordError) as refused:
        validate(data, max_decompressed_message_bytes=size - 1)
    assert refused.value.message == (
        f"Invalid record size: {size} exceeds the configured maximum record size of {size - 1}."
    )


def test_the_limit_of_decompressed_records_does_not_apply_to_others() -> None:
    """Nor to a compressed batch whose records together are larger, but each of which is not."""
    assert not validate(build_batch(ROWS), max_decompressed_message_bytes=1).changed
    many = build_batch([(None, b"v" * 100, [], NOW)] * 50, compression=Compression.GZIP)
    assert not validate(many, max_decompressed_message_bytes=120).changed
