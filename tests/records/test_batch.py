"""The framing of batches and their records."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.records import batch as b
from quorate.records.batch import (
    BATCH_OVERHEAD,
    Compression,
    CorruptRecordError,
    InvalidRecordError,
    Record,
    TimestampType,
    build_batch,
    build_control_batch,
    build_metadata_batch,
    control_records,
    decode_records,
    iter_batches,
    metadata_values,
    parse_header,
    verify_crc,
)
from quorate.records.record import readable_headers

NOW = 1_700_000_000_000

texts = st.text(max_size=8)
blobs = st.none() | st.binary(max_size=80)
tuples = st.tuples(
    blobs,
    blobs,
    st.lists(st.tuples(texts, blobs), max_size=3),
    st.integers(min_value=0, max_value=NOW * 2),
)


@given(st.lists(tuples, min_size=1, max_size=80), st.sampled_from(Compression))
@settings(max_examples=150, deadline=None)
def test_records_come_back_as_they_were_given(rows: list, codec: Compression) -> None:
    data = build_batch(rows, base_offset=1000, leader_epoch=7, compression=codec)
    header = parse_header(data)
    assert verify_crc(data)
    assert (header.base_offset, header.last_offset, header.next_offset, header.count) == (
        1000,
        999 + len(rows),
        1000 + len(rows),
        len(rows),
    )
    assert (header.size_bytes, header.leader_epoch, header.compression) == (len(data), 7, codec)
    assert header.base_timestamp == rows[0][3]
    assert header.max_timestamp == max(row[3] for row in rows)
    found = decode_records(data)
    assert [(r.key, r.value, r.headers, r.timestamp) for r in found] == [tuple(row) for row in rows]
    assert [r.offset for r in found] == list(range(1000, 1000 + len(rows)))


def test_the_bytes_of_a_batch_are_those_of_the_format() -> None:
    data = build_batch([(b"k", b"v", [("h", b"x")], NOW)], base_offset=5, leader_epoch=2)
    record = bytes([0, 0, 0, 2]) + b"k" + bytes([2]) + b"v" + bytes([2, 2]) + b"h" + bytes([2]) + b"x"
    body = bytes([len(record) * 2]) + record
    assert data[BATCH_OVERHEAD:] == body
    assert data[:17] == struct.pack(">qiib", 5, 49 + len(body), 2, 2)
    assert data[21:BATCH_OVERHEAD] == struct.pack(">hiqqqhii", 0, 0, NOW, NOW, -1, -1, -1, 1)


@pytest.mark.parametrize(
    ("options", "attributes"),
    [
        ({}, 0),
        ({"compression": Compression.ZSTD}, 4),
        ({"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time_ms": NOW}, 8),
        ({"is_transactional": True}, 16),
        ({"is_control": True}, 32),
        ({"is_control": True, "is_transactional": True, "compression": Compression.GZIP}, 49),
    ],
)
def test_attributes_say_what_the_batch_is(options: dict, attributes: int) -> None:
    header = parse_header(build_batch([(b"k", b"v", (), 3)], **options))
    assert header.attributes == attributes
    assert header.is_control == options.get("is_control", False)
    assert header.is_transactional == options.get("is_transactional", False)
    assert header.timestamp_type is options.get("timestamp_type", TimestampType.CREATE_TIME)


def test_log_append_time_overrides_the_timestamps_of_records() -> None:
    data = build_batch(
        [(None, b"a", (), 5), (None, b"b", (), 9)],
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        log_append_time_ms=NOW,
    )
    assert [r.timestamp for r in decode_records(data)] == [NOW, NOW]
    assert parse_header(data).max_timestamp == NOW


def test_a_record_object_is_built_like_a_tuple() -> None:
    rows = [(b"k", b"v", [("h", None)], NOW), (None, None, [], NOW + 1)]
    objects = [Record(0, t, k, v, list(h)) for k, v, h, t in rows]
    assert build_batch(objects) == build_batch(rows)


def test_sequence_numbers_wrap() -> None:
    data = build_batch([(None, b"v", (), 1)] * 5, producer_id=9, producer_epoch=0, base_sequence=0x7FFFFFFE)
    assert parse_header(data).last_sequence == 2


def test_the_delete_horizon_is_the_base_timestamp_when_its_bit_is_set() -> None:
    data = bytearray(build_batch([(b"k", None, (), 77)]))
    assert parse_header(data).delete_horizon is None
    struct.pack_into(">h", data, b.ATTRIBUTES, 0x40)
    assert parse_header(data).delete_horizon == 77


def test_iteration_stops_at_a_cut_last_batch() -> None:
    one, two = build_batch([(None, b"a", (), 1)]), build_batch([(None, b"b" * 40, (), 1)], base_offset=1)
    for cut in range(len(two)):
        assert [h.base_offset for h, _ in iter_batches(one + two[:cut])] == [0]
    assert [bytes(data) for _, data in iter_batches(one + two)] == [one, two]


@pytest.mark.parametrize("size", range(BATCH_OVERHEAD))
def test_a_cut_header_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptRecordError):
        parse_header(build_batch([(None, b"a", (), 1)])[:size])


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_magics_are_refused(magic: int) -> None:
    data = bytearray(build_batch([(None, b"a", (), 1)]))
    struct.pack_into(">b", data, b.MAGIC, magic)
    with pytest.raises(CorruptRecordError, match="magic"):
        parse_header(data)


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_length_below_the_header_is_corrupt(length: int) -> None:
    data = bytearray(build_batch([(None, b"a", (), 1)]))
    struct.pack_into(">i", data, b.LENGTH, length)
    for read in (parse_header, lambda x: list(iter_batches(x))):
        with pytest.raises(CorruptRecordError):
            read(data)


def test_every_flipped_bit_behind_the_checksum_is_found() -> None:
    data = build_batch([(b"key", b"value", (), NOW)])
    for position in range(b.CRC, len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            assert not verify_crc(flipped), (position, bit)


@given(
    st.binary(max_size=200), st.integers(min_value=-5, max_value=300), st.integers(min_value=0, max_value=4)
)
@settings(max_examples=300, deadline=None)
def test_garbage_in_place_of_records_raises_only_kafka_errors(body: bytes, count: int, codec: int) -> None:
    good = build_batch([(None, b"x", (), 1)])
    data = bytearray(good[:BATCH_OVERHEAD] + body)
    struct.pack_into(">i", data, b.LENGTH, len(data) - 12)
    struct.pack_into(">i", data, b.RECORDS_COUNT, count)
    struct.pack_into(">h", data, b.ATTRIBUTES, codec)
    try:
        decode_records(data)
    except KafkaError as e:
        assert e.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_an_unknown_codec_is_refused() -> None:
    data = bytearray(build_batch([(None, b"x", (), 1)]))
    struct.pack_into(">h", data, b.ATTRIBUTES, 5)
    with pytest.raises(InvalidRecordError, match="compression type"):
        decode_records(data)


# --- the metadata log's batches -------------------------------------------------------------------


def test_metadata_values_come_back() -> None:
    values = [b"a", b"b" * 70, b"c" * 10_000] * 50
    data = build_metadata_batch(values, base_offset=40, leader_epoch=3, timestamp=NOW)
    assert verify_crc(data)
    assert [bytes(v) for v in metadata_values(data)] == values
    assert data == build_batch([(None, v, (), NOW) for v in values], base_offset=40, leader_epoch=3)


def test_compressed_metadata_batches_are_read_although_none_are_written() -> None:
    data = build_batch([(None, b"abc", (), NOW)] * 3, compression=Compression.LZ4)
    assert [bytes(v) for v in metadata_values(data)] == [b"abc"] * 3


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(b"k", b"v", (), NOW)], id="key"),
        pytest.param([(None, None, (), NOW)], id="null value"),
        pytest.param([(None, b"", (), NOW)], id="empty value"),
        pytest.param([(None, b"v", [("h", b"x")], NOW)], id="header"),
        pytest.param([(None, b"v", (), NOW), (None, b"v", (), NOW + 1)], id="timestamp delta"),
    ],
)
def test_batches_that_raft_never_writes_are_rejected_in_the_metadata_log(rows: list) -> None:
    with pytest.raises(InvalidRecordError):
        metadata_values(build_batch(rows))


@pytest.mark.parametrize("count", [0, 1, 3, -1, 2**31 - 1])
def test_a_wrong_record_count_is_refused_in_the_metadata_log(count: int) -> None:
    data = bytearray(build_metadata_batch([b"abc", b"def"], base_offset=0, leader_epoch=1, timestamp=1))
    struct.pack_into(">i", data, b.RECORDS_COUNT, count)
    with pytest.raises(InvalidRecordError):
        metadata_values(data)


def test_every_cut_of_a_metadata_batch_is_refused() -> None:
    data = build_metadata_batch([b"abc", b"def" * 30], base_offset=0, leader_epoch=1, timestamp=1)
    for size in range(len(data)):
        with pytest.raises(KafkaError):
            metadata_values(data[:size])


# --- control batches ------------------------------------------------------------------------------


def test_control_records_come_back_with_their_types() -> None:
    data = build_control_batch(
        [(3, b"\0\0head"), (5, b"\0\0\0\1"), (6, b"\0\0voters")], timestamp=NOW, leader_epoch=4
    )
    header = parse_header(data)
    assert header.is_control and header.leader_epoch == 4 and verify_crc(data)
    assert [(kind, bytes(value)) for kind, value in control_records(data)] == [
        (3, b"\0\0head"),
        (5, b"\0\0\0\1"),
        (6, b"\0\0voters"),
    ]


def test_control_records_of_a_data_batch_are_refused() -> None:
    with pytest.raises(InvalidRecordError):
        list(control_records(build_batch([(b"\0\0\0\1", b"v", (), 1)])))


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\1"])
def test_a_control_record_needs_a_key_of_version_and_type(key: bytes | None) -> None:
    with pytest.raises(InvalidRecordError):
        list(control_records(build_batch([(key, b"v", (), 1)], is_control=True)))


def test_header_names_that_are_not_utf8_survive_a_rebuild() -> None:
    plain = build_batch([(b"k", b"v", [("naXme", b"1"), ("ok", None)], 5)])
    odd = plain.replace(b"naXme", b"na\xffme")
    records = decode_records(odd)
    rebuilt = build_batch(records)
    assert rebuilt[21:] == odd[21:]  # behind the CRC
    assert verify_crc(rebuilt)
    assert readable_headers(records[0].headers) == [("na\ufffdme", b"1"), ("ok", None)]
