"""Requests about very many topics or partitions take several turns of the event loop. Their responses equal
those of a request in one turn."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.handlers import (
    delete_records,
    describe_producers,
    describe_topic_partitions,
    offset_for_leader_epoch,
)
from quorate.net import turns
from quorate.protocol.api import REGISTRY, ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.delete_records import DeleteRecordsRequest
from quorate.protocol.messages.describe_producers import DescribeProducersRequest
from quorate.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from quorate.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.broker.coordinators.client import Turns

from .fakes import registration
from .world import Broker, batch_of, image_of, produce

COUNT = 300
MODULES = (delete_records, describe_producers, describe_topic_partitions, offset_for_leader_epoch)


def made(directory: Path) -> Broker:
    hosted = {i: registration() for i in range(4)}
    waits = {0: registration(replicas=(1, 2), isr=(1,))}
    broker = Broker(directory, image_of({"t": hosted, "u": hosted, "__consumer_offsets": hosted, "w": waits}))
    broker.ask(produce("t", *[(i, batch_of(b"a", b"b", producer_id=i, producer_epoch=0)) for i in range(4)]))
    broker.ask(produce("w", (0, batch_of(b"a")), acks=1))
    return broker


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    broker = made(tmp_path)
    yield broker
    broker.close()


def deletions(timeout_ms: int = 20, topics: tuple[str, ...] = ("t", "nope", "w")) -> DeleteRecordsRequest:
    parts = [DeleteRecordsRequest.DeleteRecordsPartition(partition_index=i, offset=1) for i in range(COUNT)]
    parts[2].offset = 77
    return DeleteRecordsRequest(
        timeout_ms=timeout_ms,
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=parts) for name in topics],
    )


REQUESTS: dict[str, Any] = {
    "DeleteRecords": deletions(),
    "DescribeProducers": DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name=name, partition_indexes=list(range(COUNT)))
            for name in ("u", "t", "nope", "t")
        ]
    ),
    "OffsetForLeaderEpoch": OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                topic=name,
                partitions=[
                    OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=i, leader_epoch=i % 2)
                    for i in range(COUNT)
                ],
            )
            for name in ("u", "t", "nope", "t")
        ],
    ),
    "DescribeTopicPartitions": DescribeTopicPartitionsRequest(
        topics=[
            DescribeTopicPartitionsRequest.TopicRequest(name=name)
            for name in ("u", "t", "t", *(f"x{i * 7 % COUNT}" for i in range(COUNT)), "a b")
        ],
        response_partition_limit=6,
    ),
    "DescribeTopicPartitions with a cursor": DescribeTopicPartitionsRequest(
        topics=[
            DescribeTopicPartitionsRequest.TopicRequest(name=name)
            for name in (*(f"x{i}" for i in range(COUNT)), "u", "t", "t", "a")
        ],
        response_partition_limit=6,
        cursor=DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=3),
    ),
}


def answer_of(broker: Broker, answer: Any, key: ApiKey) -> Any:
    return broker.wait(answer, key) if asyncio.isfuture(answer) or asyncio.iscoroutine(answer) else answer


@pytest.mark.parametrize("name", REQUESTS)
def test_it_takes_several_turns(
    one: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    request = REQUESTS[name]
    key = ApiKey(type(request).KEY)
    counted = Turns()

    async def main() -> Any:
        return await counted.during(one.ask(request))

    told = one.coded(one.loop.run_until_complete(main()), key, REGISTRY[key].max_version)
    assert counted.count >= COUNT
    for module in MODULES:
        monkeypatch.setattr(module, "AT_ONCE", sys.maxsize)
    other = made(tmp_path / "other")
    assert repr(told) == repr(answer_of(other, other.ask(request), key))
    other.close()


def test_a_leader_that_loses_its_role_between_two_turns_ends_the_wait(one: Broker) -> None:
    """Deletions that were done in earlier turns wait for followers already."""
    task = one.loop.create_task(one.ask(deletions(60_000, ("w", *["nope"] * 4))))
    one.turn()
    gone = registration(replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=9)
    one.publish(image_of({"w": {0: gone}}))
    answer = one.wait(task, ApiKey.DELETE_RECORDS)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_cursor_must_be_among_very_many_topics(one: Broker) -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=f"x{i}") for i in range(COUNT)],
        response_partition_limit=6,
        cursor=DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=3),
    )
    with pytest.raises(KafkaError) as refused:
        answer_of(one, one.ask(request), ApiKey.DESCRIBE_TOPIC_PARTITIONS)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
