"""Produce requests whose appends take several turns of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.fetch import FetchRequest
from quorate.records.batch import decode_records, iter_batches

from .fakes import registration
from .world import Broker, batch_of, image_of, produce, topic_id_of

PARTITIONS = 5
A, B = object(), object()  # connections


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path, image_of({"t": {i: registration() for i in range(PARTITIONS)}}))
    broker.produce_handler.turn_s = -1.0  # each partition takes a turn
    yield broker
    broker.close()


def everywhere(value: bytes, acks: int = -1) -> Any:
    return produce("t", *[(i, batch_of(value)) for i in range(PARTITIONS)], acks=acks)


def values(broker: Broker, partition: int) -> list[bytes]:
    log = broker.logs.get("t", partition)
    if log is None:
        return []
    data = log.read_bytes(0, 1 << 20)
    return [record.value or b"" for _, batch in iter_batches(data) for record in decode_records(batch)]


def run(broker: Broker, *answers: Any) -> list[Any]:
    async def bounded() -> list[Any]:
        return await asyncio.wait_for(asyncio.gather(*answers), 10)

    return broker.loop.run_until_complete(bounded())


def test_requests_of_one_connection_are_appended_in_their_order(one: Broker) -> None:
    answers = [one.ask(everywhere(value), connection=A) for value in (b"1", b"2", b"3")]
    answers.append(one.ask(produce("t", (4, batch_of(b"4"))), connection=A))  # would be done at once
    for answer in run(one, *answers):
        assert all(p.error_code == ErrorCode.NONE for p in answer.responses[0].partition_responses)
    assert [values(one, i) for i in range(PARTITIONS)] == [[b"1", b"2", b"3"]] * 4 + [
        [b"1", b"2", b"3", b"4"]
    ]
    assert not one.produce_handler._unfinished


def test_another_connection_does_not_wait_for_a_large_produce(one: Broker) -> None:
    slow = one.ask(everywhere(b"slow"), connection=A)
    one.produce_handler.turn_s = 3600.0
    answer = one.ask(produce("t", (4, batch_of(b"quick"))), connection=B)
    assert answer.responses[0].partition_responses[0].base_offset == 0
    run(one, slow)
    assert values(one, 4) == [b"quick", b"slow"]


def test_the_request_of_a_client_that_disconnects_is_appended_completely(one: Broker) -> None:
    task = one.loop.create_task(one.ask(everywhere(b"a"), connection=A))
    one.turn()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        one.loop.run_until_complete(task)
    for _ in range(PARTITIONS):
        one.turn()
    assert [values(one, i) for i in range(PARTITIONS)] == [[b"a"]] * PARTITIONS


def test_without_acks_there_is_no_answer_and_everything_is_appended(one: Broker) -> None:
    assert run(one, one.ask(everywhere(b"a", acks=0), connection=A)) == [None]
    assert [values(one, i) for i in range(PARTITIONS)] == [[b"a"]] * PARTITIONS


def test_acks_all_counts_high_watermarks_that_moved_between_the_turns(tmp_path: Path) -> None:
    replicated = registration(replicas=(1, 2), isr=(1, 2))
    broker = Broker(tmp_path, image_of({"t": {0: replicated, 1: replicated}}))
    broker.produce_handler.turn_s = -1.0

    async def between_the_turns() -> Any:
        answer = broker.loop.create_task(
            broker.ask(produce("t", (0, batch_of(b"a")), (1, batch_of(b"b"))), connection=A)
        )
        await _until(lambda: values(broker, 0) == [b"a"])
        assert values(broker, 1) == []
        _fetched(broker, 0, 1)
        await _until(lambda: values(broker, 1) == [b"b"])
        assert not answer.done()
        _fetched(broker, 1, 1)
        return await answer

    (done,) = run(broker, between_the_turns())
    assert [p.error_code for p in done.responses[0].partition_responses] == [ErrorCode.NONE, ErrorCode.NONE]
    broker.close()


def test_a_leadership_lost_between_the_turns_fails_the_appended_batches(tmp_path: Path) -> None:
    replicated = registration(replicas=(1, 2), isr=(1, 2))
    broker = Broker(tmp_path, image_of({"t": {0: replicated, 1: replicated}}))
    broker.produce_handler.turn_s = -1.0
    answer = broker.loop.create_task(
        broker.ask(produce("t", (0, batch_of(b"a")), (1, batch_of(b"b"))), connection=A)
    )
    moved = registration(replicas=(1, 2), isr=(2,), leader=2, leader_epoch=1, partition_epoch=1)
    broker.publish(image_of({"t": {0: moved, 1: moved}}))
    (done,) = run(broker, answer)
    assert [p.error_code for p in done.responses[0].partition_responses] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    ] * 2
    broker.close()


def _fetched(broker: Broker, partition: int, offset: int) -> None:
    """The follower fetches at `offset`."""
    request = FetchRequest(
        max_wait_ms=0,
        replica_state=FetchRequest.ReplicaState(replica_id=2, replica_epoch=-1),
        topics=[
            FetchRequest.FetchTopic(
                topic="t",
                topic_id=topic_id_of("t"),
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
                    )
                ],
            )
        ],
        max_bytes=1 << 20,
    )
    broker.ask(request)


async def _until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


def test_topics_without_partitions_are_handled_in_slices_too(one: Broker) -> None:
    request = everywhere(b"a")
    empty = request.topic_data[0].__class__(name="t", topic_id=topic_id_of("t"))
    request.topic_data += [empty] * 100
    task = one.loop.create_task(one.ask(request))
    for _ in range(10):
        one.turn()
    assert not task.done()
    (answer,) = run(one, task)
    assert len(answer.responses) == 101
