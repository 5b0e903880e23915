"""The registry of APIs, headers and frames, error codes, uuids."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from quorate.protocol import messages
from quorate.protocol.api import (
    REGISTRY,
    ApiKey,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_request_parts,
    encode_response,
    frame,
    request_header_version,
    response_header_version,
)
from quorate.protocol.errors import DecodeError, EncodeError, ErrorCode, KafkaError, listed
from quorate.protocol.file_region import FileRegion
from quorate.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.messages.fetch import FetchResponse
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.offset_delete import OffsetDeleteResponse
from quorate.protocol.messages.produce import ProduceRequest
from quorate.protocol.metadata_partition import METADATA_TOPIC_ID
from quorate.protocol.uuids import ZERO_UUID, parse_uuid, random_uuid, uuid_text

SRC = Path(__file__).resolve().parents[2] / "src"


@pytest.mark.parametrize("key", sorted(REGISTRY))
def test_the_table_says_what_the_messages_say(key: int) -> None:
    spec = REGISTRY[key]
    request, response = spec.request, spec.response
    assert (key, key) == (request.KEY, response.KEY)
    assert (request.MIN_VERSION, request.MAX_VERSION) == (response.MIN_VERSION, response.MAX_VERSION)
    assert (spec.served_from, spec.latest_version) == (request.MIN_VERSION, request.MAX_VERSION)
    assert spec.max_version == request.MAX_VERSION - (1 if request.UNSTABLE_LAST else 0)
    assert spec.min_version == (0 if key == ApiKey.PRODUCE else request.MIN_VERSION)
    assert spec.listeners == request.LISTENERS
    for version in range(request.MIN_VERSION, request.MAX_VERSION + 1):
        assert spec.is_flexible(version) == request.is_flexible(version) == response.is_flexible(version)


# What Apache Kafka 4.4 advertises: (API, first, last, listeners, forwardable).
ADVERTISED = [
    ("PRODUCE", 0, 13, "B", False),
    ("FETCH", 4, 18, "BC", False),
    ("LIST_OFFSETS", 1, 11, "B", False),
    ("METADATA", 0, 13, "B", False),
    ("OFFSET_COMMIT", 2, 10, "B", False),
    ("OFFSET_FETCH", 1, 10, "B", False),
    ("JOIN_GROUP", 0, 9, "B", False),
    ("API_VERSIONS", 0, 5, "BC", False),
    ("CREATE_TOPICS", 2, 7, "BC", True),
    ("INIT_PRODUCER_ID", 0, 5, "B", False),
    ("DESCRIBE_CONFIGS", 1, 4, "BC", False),
    ("VOTE", 0, 2, "C", False),
    ("DESCRIBE_QUORUM", 0, 2, "BC", True),
    ("ALTER_PARTITION", 2, 3, "C", False),
    ("ENVELOPE", 0, 0, "C", False),
    ("BROKER_REGISTRATION", 0, 4, "C", False),
    ("ALLOCATE_PRODUCER_IDS", 0, 0, "C", True),
    ("SHARE_FETCH", 1, 2, "B", False),
    ("ADD_RAFT_VOTER", 0, 1, "BC", True),
    ("DELETE_SHARE_GROUP_OFFSETS", 0, 0, "B", False),
    ("STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE", 0, 0, "B", False),
    ("UNREGISTER_CONTROLLER", 0, 0, "BC", True),
]


@pytest.mark.parametrize(("name", "first", "last", "listeners", "forwardable"), ADVERTISED)
def test_what_kafka_4_4_advertises(
    name: str, first: int, last: int, listeners: str, forwardable: bool
) -> None:
    spec = REGISTRY[ApiKey[name]]
    assert (spec.min_version, spec.max_version) == (first, last)
    assert spec.listeners == {{"B": "broker", "C": "controller"}[letter] for letter in listeners}
    assert spec.forwardable is forwardable


def test_keys_of_zookeeper_times_are_not_served() -> None:
    assert set(range(95)) - set(REGISTRY) == {4, 5, 6, 7}


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (ApiKey.METADATA, 8, 1, 0),
        (ApiKey.METADATA, 9, 2, 1),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.VOTE, 0, 2, 1),
        (ApiKey.BEGIN_QUORUM_EPOCH, 0, 1, 0),
    ],
)
def test_header_versions(key: ApiKey, version: int, request_header: int, response_header: int) -> None:
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (1, b"\0\3\0\1" + b"\0\0\0\7" + b"\0\2me" + b"\xff\xff\xff\xff"),
        (9, b"\0\3\0\x09" + b"\0\0\0\7" + b"\0\2me" + b"\0" + b"\0" + b"\1\0\0" + b"\0"),
    ],
)
def test_a_request_and_its_header(version: int, expected: bytes) -> None:
    message = MetadataRequest(topics=None)
    data = encode_request(7, "me", message, version)
    assert data == expected
    header, body = decode_request(memoryview(data))
    assert (header.request_api_key, header.request_api_version) == (3, version)
    assert (header.correlation_id, header.client_id) == (7, "me")
    assert body == message


def test_a_client_without_an_id() -> None:
    header, _ = decode_request(encode_request(7, None, MetadataRequest(), 9))
    assert header.client_id is None


def test_api_versions_of_an_unknown_version_gives_a_default_body() -> None:
    data = b"\0\x12\0\x63" + b"\0\0\0\1" + b"\0\1c" + b"\0" + b"what only the future knows"
    header, body = decode_request(data)
    assert header.request_api_version == 99
    assert body == ApiVersionsRequest()


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (3, 14),
        (3, -1),
        (4, 0),
        (0, 2),
        (95, 0),
        (-1, 0),
        (ApiKey.INIT_PRODUCER_ID, 6),
        (ApiKey.SHARE_FETCH, 0),
    ],
)
def test_what_is_not_served_is_an_unsupported_version(key: int, version: int) -> None:
    data = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + bytes(50)
    with pytest.raises(KafkaError) as caught:
        decode_request(data)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_an_unstable_version_is_decoded_where_the_operator_asks_for_it() -> None:
    spec = REGISTRY[ApiKey.INIT_PRODUCER_ID]
    data = encode_request(1, "c", spec.request(), spec.latest_version)
    assert decode_request(data, unstable=True)[1] == spec.request()


@pytest.mark.parametrize("size", range(8))
def test_a_frame_too_short_for_a_header_is_refused(size: int) -> None:
    with pytest.raises(DecodeError):
        decode_request_header(bytes(size))


def test_bytes_behind_a_request_are_left_alone() -> None:
    """As librdkafka 2.16 asks for all topics: null in four bytes, so that three are left over."""
    frame = bytes.fromhex("0003000d00000003000772646b61666b61") + bytes.fromhex("00" + "00000000010000")
    header, body = decode_request(frame)
    assert (header.client_id, body.topics) == ("rdkafka", None)


def test_the_response_to_api_versions_has_the_old_header() -> None:
    body = ApiVersionsResponse()
    assert b"".join(encode_response(5, ApiKey.API_VERSIONS, 3, body)) == b"\0\0\0\5" + body.encode(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(("version", "tags"), [(4, b""), (13, b"\0")])
def test_a_response_and_its_header(version: int, tags: bytes) -> None:
    body = FetchResponse(throttle_time_ms=3)
    data = b"".join(encode_response(5, ApiKey.FETCH, version, body))  # type: ignore[arg-type]
    assert data == b"\0\0\0\5" + tags + body.encode(version)
    assert decode_response(data, ApiKey.FETCH, version) == (5, body)


def test_a_response_without_flexible_versions() -> None:
    data = b"".join(encode_response(5, ApiKey.OFFSET_DELETE, 0, OffsetDeleteResponse()))  # type: ignore[arg-type]
    assert decode_response(data, ApiKey.OFFSET_DELETE, 0) == (5, OffsetDeleteResponse())


def test_a_frame_has_its_length_in_front(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        region = FileRegion(file, 0, 10)
        assert frame([b"ab", region, b"c"]) == [b"\0\0\0\x0dab", region, b"c"]
        assert frame([region]) == [b"\0\0\0\x0a", region]


def test_a_produce_request_keeps_its_batches_apart() -> None:
    batch = memoryview(bytes(1000))
    partition = ProduceRequest.PartitionProduceData(records=batch)
    message = ProduceRequest(
        topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[partition])]
    )
    parts = encode_request_parts(1, "c", message, 9)
    assert parts[1] is batch
    assert encode_request(1, "c", message, 9) == b"".join(parts)  # type: ignore[arg-type]


@pytest.mark.parametrize("empty", [b"", []])
@pytest.mark.parametrize("version", [4, 12, 17])
def test_partitions_without_records_share_one_part(empty: bytes | list[bytes], version: int) -> None:
    """A Fetch response may have hundreds of thousands of them, and each part is a buffer to write."""

    def response(records: bytes | list[bytes]) -> FetchResponse:
        topic = FetchResponse.FetchableTopicResponse(
            partitions=[FetchResponse.PartitionData(partition_index=i, records=records) for i in range(9)]
        )
        return FetchResponse(responses=[topic])

    parts = response(empty).encode_parts(version)
    assert len(parts) == 1
    decoded = FetchResponse.decode(bytes(parts[0]), version)  # type: ignore[arg-type]
    assert decoded == FetchResponse.decode(response(b"").encode(version), version)
    assert [part.partition_index for part in decoded.responses[0].partitions] == list(range(9))


def test_importing_the_registry_imports_no_message() -> None:
    code = (
        "import sys, quorate.protocol.api as api; api.REGISTRY\n"
        "bad = [m for m in sys.modules if m.startswith('quorate.protocol.messages.') or m in ('asyncio', "
        "'json')]\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(SRC)})


# -- errors
# --------------------------------------------------------------------------------------------------


def test_error_codes_are_those_of_4_4() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 137))
    assert ErrorCode.CONTROLLER_ID_NOT_REGISTERED == 136


@pytest.mark.parametrize(
    ("code", "retriable"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.NOT_CONTROLLER, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, True),
        (ErrorCode.NONE, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
        (ErrorCode.STALE_BROKER_EPOCH, False),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False),
    ],
)
def test_which_errors_are_retriable(code: ErrorCode, retriable: bool) -> None:
    assert code.retriable is retriable


def test_an_unknown_error_code_is_a_server_error(caplog: pytest.LogCaptureFixture) -> None:
    assert ErrorCode.of(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not caplog.records
    assert ErrorCode.of(999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert [record.getMessage() for record in caplog.records] == ["Unexpected error code: 999"]


def test_no_code_of_a_peer_is_converted_in_a_way_that_may_fail() -> None:
    """`ErrorCode(code)` raises for a code of a newer version, which then ends the task that called it."""
    converted = [
        f"{path.relative_to(SRC)}:{node.lineno}"
        for path in SRC.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ErrorCode"
    ]
    # Raft takes such an answer as it takes one that does not decode: the request is sent again.
    assert [place for place in converted if not place.startswith("quorate/raft/runtime/wire/")] == []


# -- uuids
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (ZERO_UUID, "AAAAAAAAAAAAAAAAAAAAAA"),
        (METADATA_TOPIC_ID, "AAAAAAAAAAAAAAAAAAAAAQ"),
        (b"\xfb\xef\xff" * 5 + b"\xfb", "--__" * 5 + "-w"),
    ],
)
def test_uuid_text(raw: bytes, text: str) -> None:
    assert uuid_text(raw) == text
    assert parse_uuid(text) == raw
    assert parse_uuid(text + "==") == raw


@pytest.mark.parametrize("text", ["", "A" * 21, "A" * 25, "A" * 21 + "!", "ÄAAAAAAAAAAAAAAAAAAAAA", "A" * 24])
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="uuid"):
        parse_uuid(text)


def test_random_uuids_are_of_version_4_and_never_begin_with_a_dash() -> None:
    for first in range(256):
        made = random_uuid(bytes([first]) + bytes(15))
        assert made[6] >> 4 == 4
        assert made[8] >> 6 == 2
        assert not uuid_text(made).startswith("-")
    assert random_uuid() != random_uuid()


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(ErrorCode.NOT_CONTROLLER, "m"),
        DecodeError("m"),
        EncodeError("m", ErrorCode.INVALID_REQUEST),
    ],
)
def test_errors_survive_pickling(error: KafkaError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code, again.message) == (type(error), error.code, error.message)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("It is full.", "It is full. Empty it."),
        ("It is full", "It is full. Empty it."),
        ("Is it full?", "Is it full? Empty it."),
        (None, "Empty it."),
    ],
)
def test_a_remedy_follows_the_message_as_a_sentence_of_its_own(message: str | None, expected: str) -> None:
    error = KafkaError(ErrorCode.INVALID_REQUEST, message, remedy="Empty it.")
    assert error.message == expected
    assert pickle.loads(pickle.dumps(error)).message == expected


def test_a_long_list_in_a_message_is_cut_and_its_rest_counted() -> None:
    assert listed([]) == ""
    assert listed([1, 2, 3]) == "1, 2, 3"
    assert listed(range(12), 10) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"


def test_the_messages_package_offers_every_request_and_response() -> None:
    tree = ast.parse(Path(messages.__file__).read_text())
    declared = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    for spec in REGISTRY.values():
        for cls in (spec.request, spec.response):
            assert getattr(messages, cls.__name__) is cls
            assert cls.__name__ in declared
    with pytest.raises(AttributeError):
        _ = messages.NoSuchRequest
