"""What the notation promises: defaults, versions, tags, nulls, uncopied records, comparing and showing."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from quorate.metadata.records import PartitionChangeRecord, RegisterBrokerRecord
from quorate.protocol import our_tags
from quorate.protocol.errors import EncodeError, ErrorCode
from quorate.protocol.file_region import FileRegion
from quorate.protocol.json import from_json, to_json
from quorate.protocol.messages.api_versions import ApiVersionsResponse
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from quorate.protocol.messages.produce import ProduceRequest
from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from quorate.protocol.messages.vote import VoteRequest
from quorate.protocol.schema import Data, Struct, field, int32, parse_range
from tests.protocol.values import all_messages


class Small(Data, versions="0-3", flexible="2+"):
    class Part(Struct):
        number: int32 = 0

    always: int32 = 7
    later: int32 = field(default=1, versions="1+")
    ignored: int32 = field(default=1, versions="1+", ignorable=True)
    gone: str = field(default="", versions="0-1")
    maybe: str | None = field(default="", nullable="1+")
    part: Part = field(default_factory=Part, versions="2+", tag=3)
    parts: list[Part] | None = field(default=None, versions="2+", tag=1)


# -- instances
# --------------------------------------------------------------------------------------------------


def test_lists_and_structs_are_fresh_for_each_instance() -> None:
    first, second = FetchRequest(), FetchRequest()
    first.topics.append(FetchRequest.FetchTopic())
    first.replica_state.replica_id = 5
    assert second.topics == []
    assert second.replica_state.replica_id == -1


def test_instances_have_no_dict_and_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        Small().nonsense = 1  # type: ignore[attr-defined]
    assert not hasattr(Small(), "__dict__")


def test_unknown_keywords_are_refused() -> None:
    with pytest.raises(TypeError):
        Small(nonsense=1)  # type: ignore[call-arg]


def test_comparing_is_by_value_and_class() -> None:
    assert Small(always=1) == Small(always=1)
    assert Small(always=1) != Small(always=2)
    assert Small() != Small(unknown_tags={9: b""})
    assert Small(unknown_tags={}) == Small()
    assert MetadataRequest() != FetchRequest()


def test_instances_can_be_copied_and_pickled() -> None:
    message = CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name="x")], unknown_tags={1: b"2"}
    )
    assert copy.deepcopy(message) == message
    assert pickle.loads(pickle.dumps(message)) == message


def test_showing_hides_bytes_and_spells_uuids() -> None:
    assert (
        repr(SaslAuthenticateRequest(auth_bytes=b"password"))
        == "SaslAuthenticateRequest(auth_bytes=<8 bytes>)"
    )
    shown = repr(
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(topic_id=bytes(15) + b"\1", name=None)])
    )
    assert "topic_id=AAAAAAAAAAAAAAAAAAAAAQ, name=None" in shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3+", (3, 0x7FFF)), ("1-4", (1, 4)), ("2", (2, 2)), ("none", (1, 0)), ("0+", (0, 0x7FFF))],
)
def test_ranges(text: str, expected: tuple[int, int]) -> None:
    assert parse_range(text) == expected


# -- versions
# --------------------------------------------------------------------------------------------------


def test_a_version_lacks_fields_and_they_are_read_as_defaults() -> None:
    assert Small(always=3, gone="x").encode(0) == b"\0\0\0\3\0\1x\0\0"
    assert Small.decode(b"\0\0\0\3\0\1x\0\0", 0) == Small(always=3, gone="x")


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (Small(later=2), 0),
        (Small(gone="x"), 2),
        (Small(part=Small.Part(number=1)), 1),
        (Small(parts=[]), 1),
        (Small(unknown_tags={7: b""}), 1),
        (
            VoteRequest(
                topics=[VoteRequest.TopicData(partitions=[VoteRequest.PartitionData(pre_vote=True)])]
            ),
            1,
        ),
    ],
)
def test_a_set_field_that_the_version_lacks_is_refused(message: Data, version: int) -> None:
    with pytest.raises(EncodeError, match="not part of this version") as caught:
        message.encode(version)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(EncodeError, match="not part of this version"):
        if message.unknown_tags is None:
            to_json(message, version)
        else:
            message.encode(version)


def test_an_ignorable_field_is_lost_silently() -> None:
    assert Small.decode(Small(ignored=9).encode(0), 0) == Small()


@pytest.mark.parametrize("version", [-1, 4])
def test_versions_outside_of_the_range_are_refused(version: int) -> None:
    with pytest.raises(EncodeError, match="has versions 0 to 3"):
        Small().encode(version)


@pytest.mark.parametrize(("version", "fits"), [(0, False), (1, True), (2, True)])
def test_null_only_in_nullable_versions(version: int, fits: bool) -> None:
    message = Small(maybe=None)
    if fits:
        assert Small.decode(message.encode(version), version) == message
    else:
        with pytest.raises(EncodeError):
            message.encode(version)


@pytest.mark.parametrize(
    "message",
    [
        Small(always=1 << 31),
        Small(always="x"),  # type: ignore[arg-type]
        Small(always=None),  # type: ignore[arg-type]
        Small(maybe=5),  # type: ignore[arg-type]
        Small(parts=[3]),  # type: ignore[list-item]
        Small(maybe="x" * 32768),
        Small(maybe="\ud800"),
        RegisterBrokerRecord(incarnation_id=b"short"),
        PartitionChangeRecord(directories=[b"short"]),
    ],
    ids=str,
)
def test_values_of_the_wrong_kind_or_range_are_refused(message: Data) -> None:
    with pytest.raises(EncodeError):
        message.encode(message.MAX_VERSION)


# -- tags
# --------------------------------------------------------------------------------------------------


def test_tagged_fields_with_their_default_are_left_out() -> None:
    assert Small(always=0).encode(2) == b"\0\0\0\0" + b"\0\0\0\1" * 2 + b"\1" + b"\0"


def test_tagged_fields_stand_in_ascending_order_among_unknown_ones() -> None:
    message = Small(part=Small.Part(number=5), parts=[], unknown_tags={9: b"z", 2: b"y", 0: b""})
    data = message.encode(2)
    assert data[13:] == b"\5" + b"\0\0" + b"\1\1\1" + b"\2\1y" + b"\3\5\0\0\0\5\0" + b"\x09\1z"
    assert Small.decode(data, 2) == message


def test_an_unknown_tag_cannot_be_a_known_one() -> None:
    with pytest.raises(EncodeError, match="tag 3"):
        Small(part=Small.Part(number=5), unknown_tags={3: b""}).encode(2)


def test_unknown_tags_out_of_order_are_read_and_written_in_order() -> None:
    part = b"\0\0\0\1" + b"\2\x05\1b\x04\1a"
    data = Small().encode(2)[:-1] + b"\1\1" + bytes([len(part) + 1]) + b"\2" + part
    message = Small.decode(data, 2)
    assert message.parts is not None
    assert message.parts[0].unknown_tags == {5: b"b", 4: b"a"}
    assert b"\2\x04\1a\x05\1b" in message.encode(2)


def test_unknown_tags_can_be_changed_after_reading() -> None:
    message = MetadataRequest.decode(MetadataRequest(unknown_tags={7: b"x"}).encode(12), 12)
    assert message.unknown_tags == {7: b"x"}
    message.unknown_tags[8] = b"y"
    assert MetadataRequest.decode(message.encode(12), 12).unknown_tags == {7: b"x", 8: b"y"}


def test_our_tags_are_declared_as_the_registry_says() -> None:
    declared: dict[int, set[str]] = {}
    for cls in all_messages():
        structs = [
            cls,
            *[value for value in vars(cls).values() if isinstance(value, type) and issubclass(value, Struct)],
        ]
        for struct in structs:
            for spec in struct.fields():
                if spec.tag is not None and spec.tag >= 10_000:
                    declared.setdefault(spec.tag, set()).add(f"{struct.__qualname__}.{spec.name}")
                    assert spec.ignorable or cls.FLEXIBLE[0] == 0, "dropped where a version cannot carry it"
    assert declared == {number: set(places) for number, (places, _) in our_tags.REGISTRY.items()}


def test_peers_without_our_tags_are_understood_and_get_none_in_old_versions() -> None:
    broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=9, start_time_ms=5)
    message = MetadataResponse(brokers=[broker])
    assert MetadataResponse.decode(message.encode(8), 8).brokers[0].start_time_ms == 0
    assert MetadataResponse.decode(message.encode(9), 9).brokers[0].start_time_ms == 5


# -- single structs, records
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cursor", [None, DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=3)]
)
def test_a_nullable_struct(cursor: DescribeTopicPartitionsRequest.Cursor | None) -> None:
    message = DescribeTopicPartitionsRequest(cursor=cursor)
    data = message.encode(0)
    assert (b"\xff" in data) is (cursor is None)
    assert DescribeTopicPartitionsRequest.decode(data, 0) == message


def produce(records: object) -> ProduceRequest:
    partition = ProduceRequest.PartitionProduceData(index=1, records=records)  # type: ignore[arg-type]
    return ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[partition])])


@pytest.mark.parametrize("version", [3, 12])
def test_records_are_decoded_as_a_view_into_the_request(version: int) -> None:
    frame = bytearray(produce(b"batch").encode(version))
    records = ProduceRequest.decode(memoryview(frame), version).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    frame[frame.index(b"batch")] = ord("B")
    assert bytes(records) == b"Batch"


@pytest.mark.parametrize("version", [3, 12])
def test_records_are_encoded_without_a_copy(version: int, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"0123456789")
    batch = memoryview(b"first")
    with path.open("rb") as file:
        region = FileRegion(file, 2, 5)
        message = produce([batch, region])
        parts = message.encode_parts(version)
        assert any(part is batch for part in parts)
        assert any(part is region for part in parts)
        assert message.encode(version) == produce(b"first23456").encode(version)


def test_a_region_that_the_file_does_not_hold_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file, pytest.raises(EOFError, match="5 bytes before"):
        FileRegion(file, 5, 10).read()


@pytest.mark.parametrize("version", [4, 17])
def test_null_records_and_empty_records_differ(version: int) -> None:
    def response(records: bytes | None) -> FetchResponse:
        partition = FetchResponse.PartitionData(records=records)
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[partition])])

    for records in (None, b""):
        decoded = FetchResponse.decode(response(records).encode(version), version)
        found = decoded.responses[0].partitions[0].records
        assert (found is None) is (records is None)


# -- JSON
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ([], "ApiVersionsResponse is no JSON object"),
        ({"errorCode": 0, "apiKeys": []}, "throttleTimeMs is missing"),
        ({"errorCode": 1 << 15, "apiKeys": [], "throttleTimeMs": 0}, "errorCode: 32768 is no int16"),
        ({"errorCode": True, "apiKeys": [], "throttleTimeMs": 0}, "errorCode: True is no int16"),
        ({"errorCode": 0, "apiKeys": None, "throttleTimeMs": 0}, "apiKeys is null"),
        (
            {"errorCode": 0, "apiKeys": [{"apiKey": 1}], "throttleTimeMs": 0},
            r"apiKeys\[0\].minVersion is missing",
        ),
        ({"errorCode": 0, "apiKeys": {}, "throttleTimeMs": 0}, "apiKeys is no JSON array"),
    ],
)
def test_json_that_does_not_fit_is_refused_with_the_place(value: object, complaint: str) -> None:
    from quorate.protocol.errors import DecodeError

    with pytest.raises(DecodeError, match=complaint):
        from_json(ApiVersionsResponse, value, 3)


def test_records_are_shown_by_their_size() -> None:
    shown = to_json(produce(b"12345"), 3)
    assert shown["topicData"][0]["partitionData"][0] == {"index": 1, "recordsSizeInBytes": 5}
