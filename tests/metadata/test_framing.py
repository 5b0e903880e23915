from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from quorate.metadata import records as r
from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import decode_record, encode_record
from quorate.metadata.image import EMPTY
from quorate.metadata.loader import apply_committed, load_snapshot
from quorate.protocol.schema import Data


def test_the_frame_is_three_varints_before_the_body() -> None:
    record = r.FeatureLevelRecord(name="metadata.version", feature_level=27)
    assert encode_record(record, 0) == bytes.fromhex("010c00116d657461646174612e76657273696f6e001b00")


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (r.BeginTransactionRecord(name="Bootstrap records"), "01170001001212" + b"Bootstrap records".hex()),
        (r.BeginTransactionRecord(), "01170000"),
        (r.EndTransactionRecord(), "01180000"),
        (
            r.AbortTransactionRecord(reason="Controller failover"),
            "01190001001414" + b"Controller failover".hex(),
        ),
    ],
)
def test_the_records_of_a_transaction_have_kafkas_bytes(record: Data, value: str) -> None:
    """The first one is in the log of Apache Kafka 4.4 in `tests/golden`."""
    assert encode_record(record, 0).hex() == value
    assert decode_record(bytes.fromhex(value)) == (record, 0)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "ends inside of its frame version"),
        (b"\x01", "ends inside of its record type"),
        (b"\x01\x80", "ends inside of its record type"),
        (b"\x01\x02", "ends inside of its record version"),
        (b"\x00\x02\x00", "frame version 0 is that of Kafka 2.8"),
        (b"\x02\x02\x00", "frame version 2 is unknown"),
        (b"\x01\x06\x00\x00", "record type 6 is unknown"),
        (b"\x01\xff\xff\xff\xff\xff\x01", "longer than five bytes"),
        (b"\x01\x02\x01\x00", r"version 1 of TopicRecord \(type 2\) is unknown: 0 to 0"),
        (b"\x01\x02\x00\x05t", "TopicRecord version 0 does not decode"),
        (encode_record(r.NoOpRecord(), 0) + b"!", "1 bytes are left behind NoOpRecord"),
    ],
)
def test_an_unknown_or_incomplete_frame_is_rejected(value: bytes, reason: str) -> None:
    with pytest.raises(MetadataError, match=reason):
        decode_record(value)


@dataclass
class Batch:
    base_offset: int
    last_offset: int
    epoch: int = 2
    timestamp_ms: int = 30
    values: list[bytes] = field(default_factory=list)


def test_committed_batches_make_an_image_and_control_batches_move_it() -> None:
    value = encode_record(r.TopicRecord(name="t", topic_id=bytes([1] * 16)), 0)
    image = apply_committed(EMPTY, [Batch(4, 4, values=[value]), Batch(5, 6, epoch=3, timestamp_ms=40)])
    assert (image.provenance, list(image.topics.by_name)) == ((6, 3, 40), ["t"])
    assert apply_committed(image, []) is image


def test_an_undecodable_record_is_named_by_its_offset() -> None:
    good = encode_record(r.NoOpRecord(), 0)
    with pytest.raises(
        MetadataError, match="at offset 8 cannot be replayed: record type 6 is unknown"
    ) as caught:
        apply_committed(EMPTY, [Batch(7, 8, values=[good, b"\x01\x06\x00"])])
    assert caught.value.offset == 8


def test_a_loaded_snapshot_stands_before_its_end_offset() -> None:
    value = encode_record(r.RegisterBrokerRecord(broker_id=3), 3)
    image = load_snapshot(100, 7, [Batch(1, 1, values=[value])])
    assert image.provenance == (99, 7, 30)
    assert image.cluster.brokers[3].registered_offset == 99
    assert image.cluster.brokers[3].unfenced_offset == 99
