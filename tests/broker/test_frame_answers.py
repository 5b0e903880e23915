"""Answers from the bytes of a request: the same bytes as those of the API's handler, or none."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.handlers.fetch import FetchHandler
from quorate.broker.handlers.metadata import MetadataHandler
from quorate.broker.handlers.produce import ProduceHandler
from quorate.broker.replication.partition import Partition
from quorate.log.config import LogConfig
from quorate.log.errors import LogDirFailure
from quorate.log.partition.partition_log import PartitionLog
from quorate.metadata.image import MetadataImage
from quorate.net.connections.response_queue import encode_frame
from quorate.net.dispatch import Dispatcher, ListenerKind, RequestContext
from quorate.protocol.api import ApiKey, encode_request
from quorate.protocol.errors import ErrorCode
from quorate.protocol.file_region import FileRegion
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.produce import ProduceRequest
from quorate.protocol.schema import Request
from quorate.records.compression import Compression

from .fakes import broker, registration
from .world import Broker, batch_of, image_of, produce

IMAGE = image_of(
    {
        "t": {
            0: registration(),
            1: registration(replicas=(1, 2)),
            2: registration(replicas=(2,), leader=2),
            3: registration(replicas=(1, 2), leader=2),
        },
        "__consumer_offsets": {0: registration()},
    }
)
UP_TO_12, FROM_13 = (9, 10, 11, 12), (13,)


@dataclass
class Node:
    """A broker with the two ways to answer, and the source of the frames."""

    world: Broker
    listener_name: str = "PLAINTEXT"

    def __post_init__(self) -> None:
        self.dispatcher = Dispatcher(ListenerKind.BROKER)
        self.produce = self.world.produce_handler
        self.metadata = MetadataHandler(self.world.services)
        self.fetch = FetchHandler(self.world.services)
        self.dispatcher.register(ApiKey.PRODUCE, self.produce)
        self.dispatcher.register(ApiKey.FETCH, self.fetch)
        self.dispatcher.register(ApiKey.METADATA, self.metadata)

    def decode(self, frame: memoryview) -> tuple[RequestContext, Any]:
        context = RequestContext(0, 0, 0, None, self.listener_name, frame_size=len(frame), frame=frame)
        return context, self.dispatcher.decode(frame, context)

    def by_handler(self, frame: bytes) -> bytes:
        context, request = self.decode(memoryview(frame))
        answer = self.dispatcher.dispatch(context, request)
        parts: list[Any] = encode_frame(context, answer)
        return b"".join(part.read() if isinstance(part, FileRegion) else part for part in parts)

    def by_frame(self, frame: bytes) -> bytes | None:
        handlers: dict[int, Any] = {
            ApiKey.PRODUCE: self.produce,
            ApiKey.METADATA: self.metadata,
            ApiKey.FETCH: self.fetch,
        }
        handler = handlers[frame[1]]
        answer: bytes | None = handler.answer_frame(memoryview(bytearray(frame)), self)
        return answer

    @property
    def appended(self) -> list[int]:
        """The log ends of all partitions that were opened."""
        hosted = self.world.replicas.partitions.values()
        return [partition.log.log_end_offset for partition in hosted if partition.has_log]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    made: list[Broker] = []

    def make(image: MetadataImage = IMAGE) -> Node:
        made.append(Broker(tmp_path / str(len(made)), image))
        return Node(made[-1])

    yield make
    for world in made:
        world.close()


def frame(request: Request, version: int, correlation_id: int = 7) -> bytes:
    return encode_request(correlation_id, "me", request, version)


BATCH = batch_of(b"one", b"two")
APPENDED: dict[str, ProduceRequest] = {
    "acks=1": produce("t", (0, BATCH), acks=1),
    "acks=all without followers": produce("t", (0, BATCH), acks=-1),
    "acks=1 with followers": produce("t", (1, BATCH), acks=1),
    "compressed": produce("t", (0, batch_of(b"x" * 500, compression=Compression.LZ4)), acks=1),
    "large": produce("t", (0, batch_of(b"x" * 40_000)), acks=1),
    "idempotent": produce("t", (0, batch_of(b"x", producer_id=5, producer_epoch=0, base_sequence=0)), acks=1),
}


@pytest.mark.parametrize("version", UP_TO_12 + FROM_13)
@pytest.mark.parametrize("request_", APPENDED.values(), ids=APPENDED)
def test_an_append_is_answered_as_by_the_handler(
    node: Callable[..., Node], request_: ProduceRequest, version: int
) -> None:
    one, other = node(), node()
    for correlation_id in (3, 4):  # the second try of the idempotent producer is a duplicate
        data = frame(request_, version, correlation_id)
        answer = one.by_frame(data)
        assert answer is not None
        assert answer == other.by_handler(data)
    assert one.appended == other.appended


def corrupt(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


REFUSED: dict[str, ProduceRequest] = {
    "a wrong checksum": produce("t", (0, corrupt(BATCH)), acks=1),
    "a batch that is too large": produce("t", (0, batch_of(b"x" * 2000)), acks=1),
    "a timestamp in the future": produce("t", (0, batch_of(b"x", timestamp=10**15)), acks=1),
    "not the leader": produce("t", (3, BATCH), acks=1),
    "a gap in the sequence numbers": produce(
        "t", (0, batch_of(b"x", producer_id=5, producer_epoch=0, base_sequence=9)), acks=1
    ),
}


@pytest.mark.parametrize("version", UP_TO_12 + FROM_13)
@pytest.mark.parametrize("request_", REFUSED.values(), ids=REFUSED)
def test_a_refused_append_is_answered_as_by_the_handler(
    node: Callable[..., Node], request_: ProduceRequest, version: int
) -> None:
    one, other = node(), node()
    data = frame(request_, version)
    for each in (one, other):
        first = produce("t", (0, batch_of(b"x", producer_id=5, producer_epoch=0, base_sequence=0)), acks=1)
        each.by_handler(frame(first, version))
        log = each.world.replicas.partitions["t", 0].log
        log.update_config(replace(LogConfig(), max_message_bytes=1000))
    answer = one.by_frame(data)
    assert answer is not None
    assert answer == other.by_handler(data)
    assert sum(one.appended) == sum(other.appended) == 1


def test_an_unexpected_error_is_answered_as_by_the_handler(
    node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = node(), node()
    for each in (one, other):
        log = each.world.replicas.partitions["t", 0].log
        monkeypatch.setattr(type(log), "append_as_leader", lambda *_: 1 / 0)
    data = frame(APPENDED["acks=1"], 9)
    assert one.by_frame(data) == other.by_handler(data)


def several() -> ProduceRequest:
    request = produce("t", (0, BATCH), acks=1)
    request.topic_data += produce("t", (1, BATCH)).topic_data
    return request


def with_unknown_tag(part: Callable[[ProduceRequest], Any]) -> ProduceRequest:
    request = produce("t", (0, BATCH), acks=1)
    part(request)._tags = {77: b"x"}
    return request


def transactional() -> ProduceRequest:
    request = produce(
        "t", (0, batch_of(b"x", producer_id=5, producer_epoch=0, is_transactional=True)), acks=1
    )
    request.transactional_id = "tx"
    return request


UNUSUAL: dict[str, ProduceRequest] = {
    "acks=0": produce("t", (0, BATCH), acks=0),
    "acks=all with followers": produce("t", (1, BATCH), acks=-1),
    "invalid acks": produce("t", (0, BATCH), acks=2),
    "two partitions": produce("t", (0, BATCH), (1, BATCH), acks=1),
    "two topics": several(),
    "no topic": ProduceRequest(acks=1, timeout_ms=1),
    "no partition": produce("t", acks=1),
    "a name of 127 letters": produce("t" * 127, (0, BATCH), acks=1),
    "an unknown topic": produce("unknown", (0, BATCH), acks=1),
    "an unknown partition": produce("t", (9, BATCH), acks=1),
    "a partition of another broker": produce("t", (2, BATCH), acks=1),
    "an internal topic": produce("__consumer_offsets", (0, BATCH), acks=1),
    "a transaction": transactional(),
    "no batch": produce("t", (0, b""), acks=1),
    "two batches": produce("t", (0, BATCH + BATCH), acks=1),
    "an incomplete batch": produce("t", (0, BATCH[:-1]), acks=1),
    "a batch of magic 1": produce("t", (0, BATCH[:16] + b"\1" + BATCH[17:]), acks=1),
    "a tag of the request": with_unknown_tag(lambda r: r),
    "a tag of the topic": with_unknown_tag(lambda r: r.topic_data[0]),
    "a tag of the partition": with_unknown_tag(lambda r: r.topic_data[0].partition_data[0]),
}


@pytest.mark.parametrize("version", UP_TO_12 + FROM_13)
@pytest.mark.parametrize("request_", UNUSUAL.values(), ids=UNUSUAL)
def test_an_unusual_request_is_left_to_the_handler(
    node: Callable[..., Node], request_: ProduceRequest, version: int
) -> None:
    one = node()
    assert one.by_frame(frame(request_, version)) is None
    assert not any(one.appended)


@pytest.mark.parametrize("version", [3, 8])
def test_versions_before_9_are_left_to_the_handler(node: Callable[..., Node], version: int) -> None:
    assert node().by_frame(frame(APPENDED["acks=1"], version)) is None


def test_a_tag_of_the_header_is_left_to_the_handler(node: Callable[..., Node]) -> None:
    data = frame(APPENDED["acks=1"], 9)
    assert data[12] == 0
    assert node().by_frame(data[:12] + b"\1\5\1x" + data[13:]) is None


def assert_left_unless_complete(one: Node, data: bytes) -> None:
    """The frame handler answers neither a part of a request nor one with bytes after it."""
    for end in range(8, len(data)):
        assert one.by_frame(data[:end]) is None, end
    assert one.by_frame(data + b"\0") is None


@pytest.mark.parametrize("version", [9, 13])
def test_a_request_that_is_cut_or_has_bytes_after_it_is_left_to_the_handler(
    node: Callable[..., Node], version: int
) -> None:
    one = node()
    data = frame(APPENDED["acks=1"], version)
    assert_left_unless_complete(one, data)
    assert not any(one.appended)


def test_a_name_that_is_not_utf_8_is_left_to_the_handler(node: Callable[..., Node]) -> None:
    data = frame(APPENDED["acks=1"], 9)
    assert data.count(b"\2t\2") == 1
    assert node().by_frame(data.replace(b"\2t\2", b"\2\xff\2")) is None


@pytest.mark.parametrize("client_id", [b"\0\2\xffe", b"\xff\xfeme"], ids=["not UTF-8", "of length -2"])
def test_a_malformed_client_id_is_left_to_the_handler(node: Callable[..., Node], client_id: bytes) -> None:
    data = frame(APPENDED["acks=1"], 9)
    assert data[8:12] == b"\0\2me"
    assert node().by_frame(data[:8] + client_id + data[12:]) is None


def test_a_client_without_an_id_is_answered(node: Callable[..., Node]) -> None:
    data = encode_request(7, None, APPENDED["acks=1"], 9)
    assert node().by_frame(data) is not None


def test_an_append_waits_for_the_unfinished_ones_before_it(node: Callable[..., Node]) -> None:
    one = node()
    handler: ProduceHandler = one.produce
    handler.turn_s = -1.0  # each partition takes a turn
    first = one.dispatcher.dispatch(*one.decode(memoryview(frame(produce("t", (0, BATCH), (1, BATCH)), 9))))
    assert one.by_frame(frame(APPENDED["acks=1"], 9)) is None
    first.close()
    one.world.turn()


# --- Fetch


def fetch(*partitions: FetchRequest.FetchPartition, topic: str = "t", **fields: Any) -> FetchRequest:
    topic_id = IMAGE.topics.by_name[topic].id if topic in IMAGE.topics.by_name else b"\7" * 16
    asked = FetchRequest.FetchTopic(topic=topic, topic_id=topic_id, partitions=list(partitions))
    return FetchRequest(**{"min_bytes": 1, "topics": [asked], **fields})


def at(offset: int, **fields: int) -> FetchRequest.FetchPartition:
    return FetchRequest.FetchPartition(
        **{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1000, **fields}
    )


READ: dict[str, FetchRequest] = {
    "the first batch": fetch(at(0)),
    "two batches": fetch(at(0, partition_max_bytes=10_000)),
    "an offset inside of a batch": fetch(at(1)),
    "at least one batch": fetch(at(0, partition_max_bytes=1)),
    "at the log end, without waiting": fetch(at(3)),
    "the known leader epoch": fetch(at(0, current_leader_epoch=0)),
    "no record wanted": fetch(at(0), min_bytes=0, max_wait_ms=500),
    "a partition of another leader": fetch(at(0, partition=3)),
    "all of the request's bytes": fetch(at(0), max_bytes=1),
}
FETCH_VERSIONS = range(12, 19)


def appended(one: Node) -> Node:
    for batch in (BATCH, batch_of(b"x" * 900)):
        one.by_handler(frame(produce("t", (0, batch), acks=1), 9))
    return one


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("request_", READ.values(), ids=READ)
def test_a_read_is_answered_as_by_the_handler(
    node: Callable[..., Node], request_: FetchRequest, version: int
) -> None:
    one = appended(node())
    data = frame(request_, version)
    answer = one.by_frame(data)
    assert answer is not None
    assert answer == one.by_handler(data)


def test_a_read_is_counted(node: Callable[..., Node]) -> None:
    one, other = appended(node()), appended(node())
    data = frame(fetch(at(0)), 12)
    one.by_frame(data)
    other.by_handler(data)
    stats = [each.world.replicas.stats.topic("t") for each in (one, other)]
    assert stats[0].bytes_out == stats[1].bytes_out > 0
    assert stats[0].fetches == stats[1].fetches == 1


NOT_READ: dict[str, FetchRequest] = {
    "nothing to read yet": fetch(at(4), max_wait_ms=500),
    "too few bytes": fetch(at(0), min_bytes=5000, max_wait_ms=500),
    "a large batch": fetch(at(3, partition_max_bytes=100_000)),
    "an offset out of range": fetch(at(99)),
    "an old leader epoch": fetch(at(0, current_leader_epoch=7)),
    "a partition of another broker": fetch(at(0, partition=2)),
    "an unknown topic": fetch(at(0), topic="unknown"),
    "two partitions": fetch(at(0), at(0, partition=1)),
    "no partition": fetch(),
    "no topic": FetchRequest(min_bytes=1),
    "a new session": fetch(at(0), session_epoch=0),
    "a session": fetch(at(0), session_id=5, session_epoch=3),
    "committed transactions only": fetch(at(0), isolation_level=1),
    "a rack": fetch(at(0), rack_id="r"),
    "a forgotten topic": fetch(at(0), forgotten_topics_data=[FetchRequest.ForgottenTopic(topic="t")]),
    "a cluster id": fetch(at(0), cluster_id="c"),
}


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("request_", NOT_READ.values(), ids=NOT_READ)
def test_an_unusual_fetch_is_left_to_the_handler(
    node: Callable[..., Node], request_: FetchRequest, version: int
) -> None:
    one = appended(node())
    one.by_handler(frame(produce("t", (0, batch_of(b"x" * 20_000)), acks=1), 9))
    assert one.by_frame(frame(request_, version)) is None


def test_a_log_that_cannot_be_opened_fails_only_its_partition(
    node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = appended(node())
    one.world.replicas.partitions["t", 1].forget_log()
    open_log = one.world.replicas.open_log

    def fails(partition: Partition) -> PartitionLog:
        if partition.partition == 1:
            raise LogDirFailure("data", "Input/output error")
        return open_log(partition)

    monkeypatch.setattr(one.world.replicas, "open_log", fails)
    data = frame(fetch(at(0), at(0, partition=1)), 12)
    assert one.by_frame(frame(fetch(at(0, partition=1)), 12)) is None
    answer = one.dispatcher.dispatch(*one.decode(memoryview(data)))
    (topic,) = answer.responses
    errors = {part.partition_index: part.error_code for part in topic.partitions}
    assert errors == {0: ErrorCode.NONE, 1: ErrorCode.KAFKA_STORAGE_ERROR}


@pytest.mark.parametrize("version", [12, 15])
def test_a_fetch_of_a_follower_is_left_to_the_handler(node: Callable[..., Node], version: int) -> None:
    state = FetchRequest.ReplicaState(replica_id=2, replica_epoch=1)
    follower: dict[str, Any] = {"replica_id": 2} if version < 15 else {"replica_state": state}
    request = fetch(at(0, partition=1), **follower)
    assert appended(node()).by_frame(frame(request, version)) is None


@pytest.mark.parametrize("version", [12, 13, 15])
def test_a_fetch_that_is_cut_or_has_bytes_after_it_is_left_to_the_handler(
    node: Callable[..., Node], version: int
) -> None:
    one = appended(node())
    data = frame(fetch(at(0)), version)
    assert_left_unless_complete(one, data)


# --- Metadata


def metadata(*names: str, **flags: bool) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names], **flags
    )


ASKED = {
    "a topic": metadata("t"),
    "two topics": metadata("t", "__consumer_offsets"),
    "no topic": metadata(),
    "all topics": MetadataRequest(topics=None),
}


@pytest.mark.parametrize("version", [1, 4, 8, 9, 12, 13])
@pytest.mark.parametrize("request_", ASKED.values(), ids=ASKED)
def test_a_repeated_metadata_request_is_answered_from_its_bytes(
    node: Callable[..., Node], request_: MetadataRequest, version: int
) -> None:
    one = node()
    data = frame(request_, version)
    assert one.by_frame(data) is None
    answer = one.by_handler(data)
    assert one.by_frame(data) == answer
    assert one.by_frame(frame(request_, version, 99)) == answer[:4] + struct.pack(">i", 99) + answer[8:]


def test_another_request_has_another_answer(node: Callable[..., Node]) -> None:
    one = node()
    one.by_handler(frame(metadata("t"), 12))
    assert one.by_frame(frame(metadata("t"), 11)) is None
    assert one.by_frame(frame(metadata("__consumer_offsets"), 12)) is None
    one.listener_name = "OTHER"
    assert one.by_frame(frame(metadata("t"), 12)) is None


@pytest.mark.parametrize(
    "changed",
    [
        image_of({"t": {0: registration(leader_epoch=5)}}),
        replace(IMAGE, cluster=image_of({}, [broker(1)]).cluster),
    ],
    ids=["topics", "brokers"],
)
def test_a_new_image_has_new_answers(node: Callable[..., Node], changed: MetadataImage) -> None:
    one = node()
    data = frame(metadata("t"), 12)
    before = one.by_handler(data)
    one.world.metadata.image = changed
    assert one.by_frame(data) is None
    after = one.by_handler(data)
    assert after != before
    assert one.by_frame(data) == after


def test_an_answer_about_a_missing_topic_is_not_kept(node: Callable[..., Node]) -> None:
    one = node()
    data = frame(metadata("t", "missing", allow_auto_topic_creation=False), 12)
    one.by_handler(data)
    assert one.by_frame(data) is None


def test_an_answer_of_several_turns_is_not_kept(node: Callable[..., Node]) -> None:
    names = [f"topic-{n:05}" for n in range(2001)]
    one = node(image_of({name: {0: registration()} for name in names}))
    data = frame(metadata(*names), 12)
    waiting = one.dispatcher.dispatch(*one.decode(memoryview(data)))
    assert asyncio.iscoroutine(waiting)
    one.world.loop.run_until_complete(waiting)
    assert one.by_frame(data) is None


def test_kept_answers_are_bounded(node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.broker.metadata.frame_answers._KEPT_BYTES", 2000)
    one = node()
    for correlation in range(20):
        data = encode_request(correlation, f"client-{correlation}", metadata("t"), 12)
        one.by_handler(data)
        assert one.by_frame(data) is not None
    kept = [c for c in range(20) if one.by_frame(encode_request(1, f"client-{c}", metadata("t"), 12))]
    assert 1 <= len(kept) <= 6
