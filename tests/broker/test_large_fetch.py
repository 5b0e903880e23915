"""Fetch requests of so many partitions that they take several turns of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.handlers import fetch as fetch_handler
from quorate.broker.handlers import large_fetch
from quorate.net import turns
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.fetch import FetchRequest
from tests.broker.coordinators.client import Turns

from .fakes import registration
from .test_produce_fetch import fetch
from .world import Broker, batch_of, image_of, produce, topic_id_of, values_in

COUNT = 12
HOSTED = {i: registration() for i in range(COUNT)}
ELSEWHERE = registration(replicas=(2,), leader=2)


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker with records in its even partitions. A Fetch of more than 4 partitions is large, and each
    step for two of them takes a turn."""
    monkeypatch.setattr(fetch_handler, "AT_ONCE", 4)
    monkeypatch.setattr(large_fetch, "PIECE", 2)
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    broker = Broker(tmp_path, image_of({"t": {**HOSTED, COUNT: ELSEWHERE}}))
    broker.ask(produce("t", *[(i, batch_of(b"v%d" % i)) for i in range(0, COUNT, 2)]))
    yield broker
    broker.close()


def ask(broker: Broker, request: FetchRequest, version: int = 17) -> Any:
    answer = broker.ask(request, version)
    return broker.wait(answer, ApiKey.FETCH, version) if asyncio.iscoroutine(answer) else answer


def everything(offset: int = 0, **request: Any) -> FetchRequest:
    return fetch("t", *[(i, offset) for i in range(COUNT)], **request)


def test_it_takes_several_turns(one: Broker) -> None:
    counted = Turns()

    async def main() -> Any:
        return await counted.during(one.ask(everything()))

    one.loop.run_until_complete(main())
    assert counted.count >= 4 * COUNT / 2  # found, chosen, read and answered


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("max_bytes", [1, 100, 200, 1 << 20])
@pytest.mark.parametrize("isolation", [0, 1])
def test_the_answer_is_that_of_a_small_fetch(
    one: Broker, monkeypatch: pytest.MonkeyPatch, version: int, max_bytes: int, isolation: int
) -> None:
    wanted = [(50, 0), *[(i, i % 3) for i in range(COUNT)], (COUNT, 0), (51, 0)]
    request = fetch("t", *wanted, max_bytes=max_bytes, isolation=isolation, session_epoch=-1)
    for topic in ("t", "unknown"):  # topics of one partition each
        request.topics += fetch(topic, (2, 0)).topics
    large = ask(one, request, version)
    monkeypatch.setattr(fetch_handler, "AT_ONCE", 100)
    assert repr(large) == repr(ask(one, request, version))


def steps_of_a_session(broker: Broker) -> list[str]:
    """The answers to some requests of one session."""
    first = ask(broker, everything(session_epoch=0))
    answers = [first]

    def then(request: FetchRequest) -> None:
        request.session_id, request.session_epoch = first.session_id, len(answers)
        answers.append(ask(broker, request))

    then(everything(1, max_bytes=1))
    then(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1))
    broker.ask(produce("t", (3, batch_of(b"new3")), (4, batch_of(b"new4"))))
    then(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20))
    then(fetch("t", (3, 0), (4, 2), (60, 0)))
    gone = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20)
    forgotten = FetchRequest.ForgottenTopic(
        topic="t", topic_id=topic_id_of("t"), partitions=[1, 60, *range(4, COUNT)]
    )
    gone.forgotten_topics_data = [forgotten]
    then(gone)
    last = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=first.session_id)
    last.session_epoch = 1
    answers.append(ask(broker, last))
    assert answers[-1].error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    forgotten.partitions = list(range(100))
    answers.pop()
    then(gone)
    answers.append(ask(broker, last))
    assert answers[-1].error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    for answer in answers:
        answer.session_id = 0
    return list(map(repr, answers))


def test_a_session_is_that_of_small_fetches(
    one: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = steps_of_a_session(one)
    monkeypatch.setattr(fetch_handler, "AT_ONCE", 1000)
    other = Broker(tmp_path / "other", image_of({"t": {**HOSTED, COUNT: ELSEWHERE}}))
    other.ask(produce("t", *[(i, batch_of(b"v%d" % i)) for i in range(0, COUNT, 2)]))
    assert large == steps_of_a_session(other)
    other.close()


def waiting(broker: Broker, request: FetchRequest, turns_taken: int = 300) -> asyncio.Task[Any]:
    task = broker.loop.create_task(broker.ask(request))

    async def some_turns() -> None:
        for _ in range(turns_taken):
            await asyncio.sleep(0)

    broker.loop.run_until_complete(some_turns())
    return task


def fetches_of(broker: Broker) -> list[int]:
    return [len(broker.replicas.partition("t", i).delayed_operations.fetches) for i in range(COUNT)]


AT_END = [(i, 1 - i % 2) for i in range(COUNT)]


def test_an_append_wakes_it(one: Broker) -> None:
    task = waiting(one, fetch("t", *AT_END, max_wait_ms=60_000))
    assert not task.done()
    assert fetches_of(one) == [1] * COUNT
    one.ask(produce("t", (7, batch_of(b"new"))))
    answer = one.wait(task, ApiKey.FETCH)
    assert {p.partition_index: values_in(p.records) for p in answer.responses[0].partitions if p.records} == {
        7: [b"new"]
    }
    assert fetches_of(one) == [0] * COUNT


def test_it_waits_for_enough_bytes(one: Broker) -> None:
    size = len(batch_of(b"new"))
    task = waiting(one, fetch("t", *AT_END, max_wait_ms=60_000, min_bytes=2 * size))
    one.ask(produce("t", (7, batch_of(b"new"))))
    waited = waiting(one, fetch("t", *AT_END))  # some turns
    assert waited.done() and not task.done()
    one.ask(produce("t", (3, batch_of(b"new"))))
    assert one.wait(task, ApiKey.FETCH).error_code == ErrorCode.NONE


@pytest.mark.parametrize("after", range(1, 60, 4))
def test_an_append_between_two_turns_is_not_missed(one: Broker, after: int) -> None:
    task = waiting(one, fetch("t", *AT_END, max_wait_ms=60_000), after)
    one.ask(produce("t", (0, batch_of(b"new"))))
    parts = one.wait(task, ApiKey.FETCH).responses[0].partitions
    assert sum(len(values_in(part.records)) for part in parts) == 1


@pytest.mark.parametrize("after", range(1, 60, 4))
def test_a_topic_that_is_deleted_between_two_turns_ends_it(one: Broker, after: int) -> None:
    task = waiting(one, fetch("t", *AT_END, max_wait_ms=60_000), after)
    one.publish(image_of({}))
    parts = one.wait(task, ApiKey.FETCH).responses[0].partitions
    assert [part.partition_index for part in parts] and len(parts) == COUNT
    assert any(part.error_code for part in parts)


def test_its_time_is_over(one: Broker) -> None:
    answer = ask(one, fetch("t", *AT_END, max_wait_ms=20))
    assert len(answer.responses[0].partitions) == COUNT
    assert fetches_of(one) == [0] * COUNT


@pytest.mark.parametrize("after", [*range(1, 60, 4), 300])
def test_a_client_that_disconnects_leaves_nothing(one: Broker, after: int) -> None:
    task = waiting(one, fetch("t", *AT_END, max_wait_ms=60_000), after)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        one.loop.run_until_complete(task)
    assert fetches_of(one) == [0] * COUNT


def test_a_later_request_of_its_session_ends_it(one: Broker) -> None:
    session = ask(one, fetch("t", *AT_END, session_epoch=0)).session_id
    first = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=100, session_id=session, session_epoch=1)
    task = waiting(one, first, 20)
    second = fetch("t", (1, 0), (90, 0), session_id=session, session_epoch=2)
    assert ask(one, second).error_code == ErrorCode.NONE
    one.ask(produce("t", (7, batch_of(b"new"))))
    answer = one.wait(task, ApiKey.FETCH)
    assert (answer.error_code, answer.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
