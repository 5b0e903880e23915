"""One raw-socket client against both implementations: pipelined requests, half-closed connections,
strange bytes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from quorate.protocol.api import decode_response, encode_request
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.produce import ProduceRequest
from quorate.records.batch import build_batch
from tests.support import java
from tests.support.cluster import Node, running, wait_for

pytestmark = pytest.mark.timeout(180)

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 0, -1)


@pytest.fixture(scope="module", params=["quorate", pytest.param("java", marks=pytest.mark.java)])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    if request.param == "java":
        java.require_java()
    from confluent_kafka.admin import NewTopic

    base = tmp_path_factory.mktemp("connections")
    with running(Node(base / "node", impl=request.param, extra={"auto.create.topics.enable": "false"})) as n:
        admin = n.admin()
        for created in admin.create_topics([NewTopic("t", 1, 1)]).values():
            created.result(30)
        wait_for("the topic", lambda: "t" in admin.list_topics(timeout=5).topics)
        yield n


def connect(node: Node) -> socket.socket:
    s = socket.create_connection(("127.0.0.1", node.broker_port), 5)
    s.settimeout(20)
    return s


def frame(correlation_id: int, request: Any, version: int, client_id: bytes = b"test") -> bytes:
    data = encode_request(correlation_id, "@" * len(client_id), request, version)
    data = data.replace(b"@" * len(client_id), client_id, 1)
    return struct.pack(">i", len(data)) + data


def fetch(correlation_id: int, wait_ms: int, offset: int = 0) -> bytes:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic="t", partitions=[partition])
    return frame(
        correlation_id,
        FetchRequest(max_wait_ms=wait_ms, min_bytes=1 << 20, max_bytes=1 << 20, topics=[topic]),
        12,
    )


def produce(correlation_id: int, acks: int) -> bytes:
    data = ProduceRequest.PartitionProduceData(index=0, records=build_batch([(None, b"value", (), 1)]))
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    return frame(correlation_id, ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[topic]), 9)


def metadata(correlation_id: int, name: str | None = "t", **more: Any) -> bytes:
    topics = None if name is None else [MetadataRequest.MetadataRequestTopic(name=name)]
    return frame(correlation_id, MetadataRequest(topics=topics, allow_auto_topic_creation=False), 8, **more)


def answers(s: socket.socket) -> list[bytes]:
    """The answers until the peer ends the connection. A reset instead of an end fails the test."""
    found = []
    with s.makefile("rb") as stream:
        while head := stream.read(4):
            (size,) = struct.unpack(">i", head)
            found.append(stream.read(size))
            assert len(found[-1]) == size
    return found


def ids(found: list[bytes]) -> list[int]:
    return [struct.unpack_from(">i", answer)[0] for answer in found]


def end_offset(node: Node) -> int:
    with connect(node) as s:
        s.sendall(fetch(1, 0))
        s.shutdown(socket.SHUT_WR)
        (answer,) = answers(s)
        _, response = decode_response(answer, 1, 12)
        return response.responses[0].partitions[0].high_watermark  # type: ignore[attr-defined, no-any-return]


def test_a_client_that_closes_its_direction_gets_every_answer(node: Node) -> None:
    with connect(node) as s:
        s.sendall(metadata(1) + fetch(2, 700) + produce(3, 1) + fetch(4, 700) + metadata(5))
        s.shutdown(socket.SHUT_WR)
        assert ids(answers(s)) == [1, 2, 3, 4, 5]


def test_a_partial_request_at_the_end_is_dropped(node: Node) -> None:
    with connect(node) as s:
        s.sendall(metadata(1) + fetch(2, 300) + metadata(3)[:-1])
        s.shutdown(socket.SHUT_WR)
        assert ids(answers(s)) == [1, 2]


def test_records_that_were_produced_without_acks_before_the_end_are_kept(node: Node) -> None:
    before = end_offset(node)
    with connect(node) as s:
        s.sendall(b"".join(produce(i, 0) for i in range(300)))
    wait_for("all records", lambda: end_offset(node) == before + 300, 20)


def test_requests_after_a_refused_one_are_not_read(node: Node) -> None:
    before = end_offset(node)
    with connect(node) as s:
        s.sendall(metadata(1) + fetch(2, 500) + metadata(3) + struct.pack(">ihhih", 10, 999, 0, 4, -1))
        assert ids(answers(s)) == [1, 2, 3]
    assert end_offset(node) == before


@pytest.mark.parametrize("client_id", [b"caf\xe9", b"\xff\xfe\xfd", b"\xed\xa0\x80", "grüße".encode()])
def test_a_client_id_may_be_any_bytes(node: Node, client_id: bytes) -> None:
    with connect(node) as s:
        s.sendall(metadata(1, client_id=client_id) + API_VERSIONS)
        s.shutdown(socket.SHUT_WR)
        assert ids(answers(s)) == [1, 0]


@pytest.mark.parametrize(
    ("raw", "read"), [(b"t\xff", "t\ufffd"), (b"\xed\xa0\x80x", "\ufffdx"), (b"\xe2\x82x", "\ufffdx")]
)
def test_a_topic_name_that_is_not_utf8_is_invalid(node: Node, raw: bytes, read: str) -> None:
    with connect(node) as s:
        s.sendall(metadata(1, "@" * len(raw)).replace(b"@" * len(raw), raw))
        s.shutdown(socket.SHUT_WR)
        (answer,) = answers(s)
        (topic,) = decode_response(answer, 3, 8)[1].topics  # type: ignore[attr-defined]
        assert (topic.name, topic.error_code) == (read, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_a_group_name_that_is_not_utf8_is_served(node: Node) -> None:
    asked = frame(1, FindCoordinatorRequest(key_type=0, coordinator_keys=["@@@"]), 4).replace(
        b"@@@", b"g\xff\xfe"
    )

    def found() -> bool:
        with connect(node) as s:
            s.sendall(asked)
            s.shutdown(socket.SHUT_WR)
            (answer,) = answers(s)
            (coordinator,) = decode_response(answer, 10, 4)[1].coordinators  # type: ignore[attr-defined]
            assert coordinator.key == "g\ufffd\ufffd"
            return bool(coordinator.error_code == ErrorCode.NONE)

    wait_for("the coordinator", found, 30, 0.1)


def test_requests_that_arrive_byte_by_byte(node: Node) -> None:
    with connect(node) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in metadata(1) + fetch(2, 100) + produce(3, -1) + API_VERSIONS:
            s.sendall(bytes([byte]))
        s.shutdown(socket.SHUT_WR)
        assert ids(answers(s)) == [1, 2, 3, 0]


def test_a_thousand_pipelined_requests_are_answered_in_order(node: Node) -> None:
    mixed = [produce, lambda i, _: metadata(i, None), lambda i, _: fetch(i, 1), lambda i, _: metadata(i)]
    with connect(node) as s:
        s.sendall(b"".join(mixed[i % 4](i, -1 if i % 8 else 1) for i in range(1000)))
        s.shutdown(socket.SHUT_WR)
        assert ids(answers(s)) == list(range(1000))
