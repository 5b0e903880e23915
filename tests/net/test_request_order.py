"""The requests of one connection are handled one after the other, as in Apache Kafka."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from quorate.net.dispatch import ListenerKind, RequestContext
from quorate.protocol.api import ApiKey
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from quorate.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from quorate.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.net import served
from tests.net.served import LOOPS, ServedListener, frame, use_loop


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Runs a test on asyncio's own event loop and on uvloop, which nodes use."""
    use_loop(request.param)
    return partial(served.run, fetches_wait=True)


def produce(correlation_id: int) -> bytes:
    return frame(correlation_id, ProduceRequest(acks=-1), 9)


def metadata(correlation_id: int, *topics: str) -> bytes:
    named = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    return frame(correlation_id, MetadataRequest(topics=named), 5)


def fetch(correlation_id: int) -> bytes:
    return frame(correlation_id, FetchRequest(max_wait_ms=100_000), 12)


def find_coordinator(correlation_id: int) -> bytes:
    return frame(correlation_id, FindCoordinatorRequest(key="g"), 2)


async def answers(reader: asyncio.StreamReader, count: int) -> list[int]:
    """The correlation ids of the next answers."""
    ids = []
    for _ in range(count):
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        (correlation_id,) = struct.unpack(">i", (await reader.readexactly(size))[:4])
        ids.append(correlation_id)
    return ids


class Appends:
    """Produce requests that wait until the test acknowledges them."""

    def __init__(self, world: ServedListener) -> None:
        self.futures: list[asyncio.Future[Any]] = []
        world.produce = self._wait

    def _wait(self, context: RequestContext, request: ProduceRequest) -> asyncio.Future[Any]:
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    async def started(self, count: int) -> None:
        while len(self.futures) < count:
            await asyncio.sleep(0)

    def acknowledge(self, number: int) -> None:
        self.futures[number].set_result(ProduceResponse())


def seen(world: ServedListener) -> list[int]:
    """The requests of the first connection that were handled."""
    first = world.seen[0].connection if world.seen else None
    return [context.correlation_id for context in world.seen if context.connection is first]


async def settled(world: ServedListener) -> list[int]:
    """The same, after others have been served."""
    for _ in range(3):
        await world.serves_others()
    return seen(world)


@pytest.mark.parametrize("later", [metadata, fetch, find_coordinator])
def test_a_request_behind_an_unanswered_produce_waits_for_its_answer(
    run: Callable[..., None], later: Callable[[int], bytes]
) -> None:
    async def test(world: ServedListener) -> None:
        appends = Appends(world)
        reader, writer = await world.raw()
        writer.write(produce(1) + later(2))
        await appends.started(1)
        assert await settled(world) == [1]
        appends.acknowledge(0)
        assert await answers(reader, 1) == [1]
        while 2 not in seen(world):
            await asyncio.sleep(0)
        if world.fetches:
            world.fetches[0].set_result(FetchResponse())
        assert await answers(reader, 1) == [2]
        writer.close()

    run(test)


def test_a_response_never_tells_of_an_older_state_than_the_one_before_it(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        offset = 5
        world.metadata = lambda context, request: MetadataResponse(controller_id=offset)
        reader, writer = await world.raw()
        writer.write(fetch(1) + metadata(2))
        await world.fetching()
        await settled(world)
        offset = 6
        world.fetches[0].set_result(FetchResponse())
        assert await answers(reader, 1) == [1]
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        response = MetadataResponse.decode(memoryview(await reader.readexactly(size))[4:], 5)
        assert response.controller_id == 6
        writer.close()

    run(test)


def test_pipelined_appends_start_at_once(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        appends = Appends(world)
        reader, writer = await world.raw()
        writer.write(produce(1) + produce(2) + metadata(3) + produce(4) + produce(5))
        await appends.started(2)
        assert await settled(world) == [1, 2]
        appends.acknowledge(1)
        assert await settled(world) == [1, 2]
        appends.acknowledge(0)
        await appends.started(4)
        assert await settled(world) == [1, 2, 3, 4, 5]
        assert await answers(reader, 3) == [1, 2, 3]
        appends.acknowledge(3)
        appends.acknowledge(2)
        assert await answers(reader, 2) == [4, 5]
        writer.close()

    run(test)


def test_a_frame_handler_does_not_overtake_an_unanswered_request(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        answered: list[int] = []

        def answer(data: memoryview, _: Any) -> bytes:
            answered.append(data[7])
            return struct.pack(">i", 4) + bytes(data[4:8])

        world.dispatcher.frame_routes = {ApiKey.METADATA: answer}
        reader, writer = await world.raw()
        writer.write(fetch(1) + metadata(2) + metadata(3))
        await world.fetching()
        await settled(world)
        assert answered == []
        world.fetches[0].set_result(FetchResponse())
        assert await answers(reader, 3) == [1, 2, 3]
        assert answered == [2, 3]
        writer.close()

    run(test)


def test_a_large_request_waits_too(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        reader, writer = await world.raw()
        writer.write(fetch(1) + metadata(2, *["t" * 200] * 1000) + metadata(3))
        await world.fetching()
        assert await settled(world) == [1]
        world.fetches[0].set_result(FetchResponse())
        assert await answers(reader, 3) == [1, 2, 3]
        writer.close()

    run(test)


@pytest.mark.parametrize("partitions, started", [(1, [1, 2]), (5000, [1])])
def test_nothing_overtakes_a_large_commit(
    run: Callable[..., None], partitions: int, started: list[int]
) -> None:
    """It is stored after some turns of the event loop; a small one is stored at once."""
    make = OffsetCommitRequest.OffsetCommitRequestPartition
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(
        name="t", partitions=[make(partition_index=index) for index in range(partitions)]
    )

    async def test(world: ServedListener) -> None:
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Any]] = []

        def commit(context: RequestContext, _: OffsetCommitRequest) -> asyncio.Future[Any]:
            world.seen.append(context)
            futures.append(loop.create_future())
            return futures[-1]

        world.dispatcher.register(ApiKey.OFFSET_COMMIT, commit)
        reader, writer = await world.raw()
        for number in (1, 2):
            topics = [topic] if number == 1 else []
            writer.write(frame(number, OffsetCommitRequest(group_id="g", topics=topics), 8))
        while not futures:
            await asyncio.sleep(0)
        assert await settled(world) == started
        futures[0].set_result(OffsetCommitResponse())
        assert await answers(reader, 1) == [1]
        while len(futures) < 2:
            await asyncio.sleep(0)
        futures[1].set_result(OffsetCommitResponse())
        assert await answers(reader, 1) == [2]
        writer.close()

    run(test)


def test_requests_that_arrive_byte_by_byte_keep_the_order(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        appends = Appends(world)
        reader, writer = await world.raw()
        for byte in produce(1) + metadata(2) + produce(3) + metadata(4):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        await appends.started(1)
        assert await settled(world) == [1]
        appends.acknowledge(0)
        await appends.started(2)
        assert await settled(world) == [1, 2, 3]
        appends.acknowledge(1)
        assert await answers(reader, 4) == [1, 2, 3, 4]
        writer.close()

    run(test)


def test_the_answers_of_waiting_requests_still_go_to_a_half_closed_client(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        reader, writer = await world.half_closed(fetch(1), metadata(2), metadata(3))
        await world.fetching()
        assert await settled(world) == [1]
        world.fetches[0].set_result(FetchResponse())
        assert await answers(reader, 3) == [1, 2, 3]
        assert await reader.read() == b""
        writer.close()

    run(test, until_all_closed=True)


def test_a_malformed_request_that_waits_closes_the_connection_after_the_earlier_answer(
    run: Callable[..., None],
) -> None:
    async def test(world: ServedListener) -> None:
        reader, writer = await world.raw()
        writer.write(fetch(1) + struct.pack(">ihhi", 8, 999, 0, 2) + metadata(3))
        await world.fetching()
        await settled(world)
        world.fetches[0].set_result(FetchResponse())
        assert await answers(reader, 1) == [1]
        assert await reader.read() == b""
        assert 3 not in seen(world)
        writer.close()

    run(test, until_all_closed=True)


def test_a_request_that_waits_is_not_started_once_the_listener_drains(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        appends = Appends(world)
        reader, writer = await world.raw()
        writer.write(produce(1) + metadata(2))
        await appends.started(1)
        await settled(world)
        closing = asyncio.create_task(world.listener.close(grace_s=10))
        await asyncio.sleep(0)
        appends.acknowledge(0)
        assert await answers(reader, 1) == [1]
        await closing
        assert await reader.read() == b""
        assert 2 not in seen(world)
        writer.close()

    run(test)


def test_requests_on_a_controllers_listener_overlap(run: Callable[..., None]) -> None:
    """A broker forwards the requests of many clients on one connection."""

    async def test(world: ServedListener) -> None:
        reader, writer = await world.raw()
        writer.write(fetch(1) + metadata(2))
        await world.fetching()
        while seen(world) != [1, 2]:
            await asyncio.sleep(0)
        world.fetches[0].set_result(FetchResponse())
        assert await answers(reader, 2) == [1, 2]
        writer.close()

    run(test, kind=ListenerKind.CONTROLLER)
