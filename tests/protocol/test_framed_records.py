"""Records with something before their fields: control records, keys and values of the coordinators.

Read from directories that Apache Kafka wrote (tests/golden), and written back byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quorate.broker.coordinators.records import (
    GROUP_RECORDS,
    SHARE_RECORDS,
    TRANSACTION_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    TransactionLogValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from quorate.protocol.errors import DecodeError, ErrorCode
from quorate.protocol.schema import Data
from quorate.protocol.uuids import uuid_text
from quorate.records.batch import decode_records, iter_batches
from quorate.records.control import (
    CONTROL_RECORDS,
    ControlRecordType,
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    decode_control,
    decode_control_key,
    decode_end_txn_marker,
    encode_control,
    encode_control_key,
    encode_end_txn_marker,
)
from tests.support.golden import golden_files

SNAPSHOT = "data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
METADATA_LOG = "data/__cluster_metadata-0/00000000000000000000.log"


@pytest.fixture(scope="module")
def golden() -> dict[str, bytes]:
    """The batches files that Kafka wrote, by path."""
    files = golden_files("dynamic").items()
    return {
        path: file.data
        for path, file in files
        if path.startswith("data/") and path.endswith((".log", ".checkpoint"))
    }


def records(data: bytes, *, control: bool) -> Iterator[tuple[bytes, bytes | None]]:
    for header, batch in iter_batches(data):
        if header.is_control is control:
            for record in decode_records(batch):
                assert record.key is not None or not control
                yield bytes(record.key or b""), None if record.value is None else bytes(record.value)


# -- control records
# --------------------------------------------------------------------------------------------------


def test_control_records_of_a_snapshot(golden: dict[str, bytes]) -> None:
    found = [decode_control(key, value or b"") for key, value in records(golden[SNAPSHOT], control=True)]
    header, version, voters, footer = found
    assert isinstance(header, SnapshotHeaderRecord)
    assert header.last_contained_log_timestamp > 1_700_000_000_000
    assert version == KRaftVersionRecord(kraft_version=1)
    assert isinstance(voters, VotersRecord)
    (voter,) = voters.voters
    assert voter.voter_id == 1
    assert len(uuid_text(voter.voter_directory_id)) == 22
    assert [(e.name, e.host, e.port) for e in voter.endpoints] == [("CONTROLLER", "127.0.0.1", 29093)]
    assert (
        voter.kraft_version_feature.min_supported_version,
        voter.kraft_version_feature.max_supported_version,
    ) == (0, 1)
    assert footer == SnapshotFooterRecord()


@pytest.mark.parametrize("path", [SNAPSHOT, METADATA_LOG])
def test_control_records_are_written_as_kafka_wrote_them(golden: dict[str, bytes], path: str) -> None:
    seen = set()
    for key, value in records(golden[path], control=True):
        record = decode_control(key, value or b"")
        assert record is not None
        assert encode_control(record) == (key, value)
        seen.add(type(record))
    assert VotersRecord in seen


def test_the_leader_change_names_voters_and_those_who_granted(golden: dict[str, bytes]) -> None:
    key, value = next(records(golden[METADATA_LOG], control=True))
    assert decode_control_key(key) is ControlRecordType.LEADER_CHANGE
    change = decode_control(key, value or b"")
    assert isinstance(change, LeaderChangeMessage)
    assert change.leader_id == 1
    assert [v.voter_id for v in change.voters] == [v.voter_id for v in change.granting_voters] == [1]


def test_directory_ids_of_voters_travel_where_java_skips_them() -> None:
    voter = LeaderChangeMessage.Voter(voter_id=1, directory_id=b"d" * 16)
    key, value = encode_control(LeaderChangeMessage(leader_id=1, voters=[voter]))
    found = decode_control(key, value)
    assert isinstance(found, LeaderChangeMessage)
    assert found.voters[0].directory_id == b"d" * 16
    assert found.voters[0].unknown_tags is None


def test_end_markers_of_transactions(golden: dict[str, bytes]) -> None:
    found = [
        (decode_control_key(key), decode_control(key, value or b""))
        for key, value in records(golden["data/plain-0/00000000000000000000.log"], control=True)
    ]
    assert [kind for kind, _ in found] == [ControlRecordType.COMMIT, ControlRecordType.ABORT]
    assert all(isinstance(marker, EndTxnMarker) for _, marker in found)
    assert encode_end_txn_marker(EndTxnMarker(coordinator_epoch=5)) == b"\0\0\0\0\0\5"
    assert decode_end_txn_marker(b"\0\0\0\0\0\5") == EndTxnMarker(coordinator_epoch=5)


def test_keys_of_control_records() -> None:
    for kind in CONTROL_RECORDS:
        assert decode_control_key(encode_control_key(kind)) is kind
    assert decode_control_key(b"\0\0\0\x63") is ControlRecordType.UNKNOWN
    assert decode_control_key(b"\0\1\0\3more") is ControlRecordType.SNAPSHOT_HEADER
    assert decode_control(b"\0\0\0\x63", b"whatever") is None


@pytest.mark.parametrize("key", [b"", b"\0\0\0", b"\xff\xff\0\2"])
def test_malformed_control_keys_are_refused(key: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_control_key(key)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("kind", list(CONTROL_RECORDS))
def test_malformed_control_values_are_refused(kind: ControlRecordType) -> None:
    with pytest.raises(DecodeError):
        decode_control(encode_control_key(kind), b"\0")


def test_a_cut_end_marker_is_refused() -> None:
    with pytest.raises(DecodeError):
        decode_end_txn_marker(b"\0\0\0")


# -- records of the coordinators
# --------------------------------------------------------------------------------------------------


def coordinator_records(golden: dict[str, bytes], topic: str) -> list[tuple[bytes, bytes | None]]:
    found = []
    for path, data in golden.items():
        if path.startswith(f"data/{topic}-"):
            found += list(records(data, control=False))
    assert found
    return found


@pytest.mark.parametrize(
    ("topic", "registry", "expected"),
    [
        (
            "__consumer_offsets",
            GROUP_RECORDS,
            {OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue},
        ),
        ("__transaction_state", TRANSACTION_RECORDS, {TransactionLogKey, TransactionLogValue}),
    ],
)
def test_records_that_kafka_wrote_are_written_alike(
    golden: dict[str, bytes],
    topic: str,
    registry: dict[int, tuple[type[Data], type[Data]]],
    expected: set[type[Data]],
) -> None:
    seen: set[type[Data]] = set()
    for key_bytes, value_bytes in coordinator_records(golden, topic):
        key = decode_key(key_bytes, registry)
        assert key is not None
        assert encode_key(key) == key_bytes
        seen.add(type(key))
        if value_bytes is not None:
            value = decode_value(value_bytes, key, registry)
            assert encode_value(value, int.from_bytes(value_bytes[:2], "big")) == value_bytes
            seen.add(type(value))
    assert seen <= expected
    assert {kind for kind in expected if kind.__name__.endswith("Key")} & seen


def test_committed_offsets_are_found(golden: dict[str, bytes]) -> None:
    committed = {}
    for key_bytes, value_bytes in coordinator_records(golden, "__consumer_offsets"):
        key = decode_key(key_bytes, GROUP_RECORDS)
        if isinstance(key, OffsetCommitKey) and value_bytes is not None:
            value = decode_value(value_bytes, key, GROUP_RECORDS)
            assert isinstance(value, OffsetCommitValue)
            committed[key.group, key.topic, key.partition] = value.offset
    assert {key[:2] for key in committed} == {("g1", "plain")}
    assert all(offset > 0 for offset in committed.values())


def test_unknown_kinds_of_keys_are_skipped_and_unknown_versions_of_values_refused() -> None:
    assert decode_key(b"\0\x63whatever", GROUP_RECORDS) is None
    with pytest.raises(DecodeError) as caught:
        decode_value(b"\0\x63", GroupMetadataKey(), GROUP_RECORDS)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\0"])
def test_cut_keys_and_values_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_key(data, GROUP_RECORDS)
    with pytest.raises(DecodeError):
        decode_value(data, OffsetCommitKey(), GROUP_RECORDS)


def test_registries_pair_keys_with_their_values() -> None:
    for registry in (GROUP_RECORDS, TRANSACTION_RECORDS, SHARE_RECORDS):
        for number, (key, value) in registry.items():
            assert (number, number) == (key.KEY, value.KEY)
            assert key.__name__.removesuffix("Key") == value.__name__.removesuffix("Value")
