"""Connections that pipeline requests are limited in bytes and time, so that other connections are served."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from quorate.net.client import Connection
from quorate.net.connections.output import Part, SocketOutput
from quorate.net.connections.release import encode_and_release
from quorate.net.connections.response_queue import PendingResponse, ResponseQueue
from quorate.net.dispatch import FrameSource, ListenerKind, RequestContext
from quorate.net.limits import ConnectionLimits
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from quorate.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.net import served
from tests.net.served import LOOPS, ServedListener, frame, use_loop


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Runs a test on asyncio's own event loop and on uvloop, which nodes use.

    The listener is a controller's, on which all requests may overlap.
    """
    use_loop(request.param)
    return partial(served.run, fetches_wait=True, kind=ListenerKind.CONTROLLER)


def reset(writer: asyncio.StreamWriter) -> None:
    """Resets the connection. After an end of the stream, pending responses would still be sent."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


FETCH = frame(0, FetchRequest(max_wait_ms=100_000), 12)


async def answers(reader: asyncio.StreamReader, count: int) -> list[int]:
    """The correlation ids of the next answers."""
    ids = []
    for _ in range(count):
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        (correlation_id,) = struct.unpack(">i", (await reader.readexactly(size))[:4])
        ids.append(correlation_id)
    return ids


def test_responses_that_wait_for_an_unfinished_one_are_bounded_in_bytes(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        started: list[int] = []

        def metadata(context: RequestContext, request: MetadataRequest) -> Any:
            started.append(context.correlation_id)
            return MetadataResponse(cluster_id="x" * 30_000)

        world.metadata = metadata
        reader, writer = await world.raw()
        writer.write(FETCH + b"".join(frame(i, MetadataRequest(), 5) for i in range(1, 91)))
        while not started:
            await asyncio.sleep(0)
        for _ in range(3):
            await world.serves_others()
        assert len(started) == 10  # the one that exceeds 300,000 bytes is the last
        world.fetches[0].set_result(FetchResponse())
        assert await answers(reader, 91) == list(range(91))
        writer.close()

    run(test, ConnectionLimits(write_high_bytes=300_000))


def test_answers_of_awaited_handlers_count_as_well(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        started: list[int] = []

        async def metadata(context: RequestContext, request: MetadataRequest) -> Any:
            started.append(context.correlation_id)
            return MetadataResponse(cluster_id="x" * 30_000)

        world.metadata = metadata
        reader, writer = await world.raw()
        writer.write(FETCH + b"".join(frame(i, MetadataRequest(), 5) for i in range(1, 4)))
        while len(started) < 3:
            await asyncio.sleep(0)
        await world.serves_others()
        writer.write(b"".join(frame(i, MetadataRequest(), 5) for i in range(4, 20)))
        for _ in range(3):
            await world.serves_others()
        assert len(started) == 3
        world.fetches[0].set_result(FetchResponse())
        assert await answers(reader, 20) == list(range(20))
        writer.close()

    run(test, ConnectionLimits(write_high_bytes=80_000))


def test_request_bytes_in_flight_are_bounded(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        waiting: list[asyncio.Future[Any]] = []

        def produce(context: RequestContext, request: ProduceRequest) -> Any:
            waiting.append(asyncio.get_running_loop().create_future())
            return waiting[-1]

        world.produce = produce
        data = ProduceRequest.PartitionProduceData(index=0, records=bytes(100_000))
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
        reader, writer = await world.raw()
        writer.write(b"".join(frame(i, ProduceRequest(acks=-1, topic_data=[topic]), 9) for i in range(20)))
        while len(waiting) < 4:
            await asyncio.sleep(0)
        for _ in range(3):
            await world.serves_others()
        assert len(waiting) == 4
        for i in range(20):
            while len(waiting) <= i:
                await asyncio.sleep(0)
            assert len(waiting) <= i + 4
            waiting[i].set_result(ProduceResponse())
            assert await answers(reader, 1) == [i]
        writer.close()

    run(test, ConnectionLimits(max_in_flight_bytes=350_000))


def test_a_request_larger_than_what_may_be_in_flight_is_served(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        data = ProduceRequest.PartitionProduceData(index=0, records=bytes(200_000))
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
        reader, writer = await world.raw()
        writer.write(b"".join(frame(i, ProduceRequest(acks=-1, topic_data=[topic]), 9) for i in range(3)))
        assert await answers(reader, 3) == [0, 1, 2]
        writer.close()

    run(test, ConnectionLimits(max_in_flight_bytes=1000))


def test_connections_that_pipeline_slow_requests_do_not_starve_others(run: Callable[..., None]) -> None:
    """Six connections send a hundred requests each, and each request takes 2 ms. Other connections wait for
    a few of them, not for all."""

    async def test(world: ServedListener) -> None:
        runs = 0

        def metadata(context: RequestContext, request: MetadataRequest) -> Any:
            nonlocal runs
            runs += 1
            until = time.perf_counter() + 0.002
            while time.perf_counter() < until:
                pass
            return MetadataResponse()

        world.metadata = metadata
        other = await Connection.connect("127.0.0.1", world.listener.port, timeout_s=10)
        pairs = [await world.raw() for _ in range(6)]
        for _, writer in pairs:
            writer.write(b"".join(frame(i, MetadataRequest(), 5) for i in range(100)))
        while not runs:
            await asyncio.sleep(0)
        asked = []
        for _ in range(10):
            before = runs
            await other.call(FindCoordinatorRequest(key="g"), 10, 2)
            asked.append(runs - before)
        assert runs < 600
        assert sorted(asked)[5] <= 10, asked
        for reader, writer in pairs:
            assert await answers(reader, 100) == list(range(100))
            writer.close()

    run(test)


def test_a_lost_connection_keeps_no_answer_in_memory(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:

        seen: list[weakref.ref[Any]] = []

        def metadata(context: RequestContext, request: MetadataRequest) -> Any:
            seen.append(weakref.ref(context.frame))
            return MetadataResponse(cluster_id="x" * 30_000)

        world.metadata = metadata
        _, writer = await world.raw()
        writer.write(FETCH + b"".join(frame(i, MetadataRequest(), 5) for i in range(1, 9)))
        while len(seen) < 8:
            await asyncio.sleep(0)
        reset(writer)
        while world.listener.connections:
            await asyncio.sleep(0.001)
        world.seen.clear()  # the test's own references to the requests
        gc.collect()
        assert [ref for ref in seen if ref() is not None] == []

    run(test)


def test_a_fetch_that_waits_ends_with_its_connection(run: Callable[..., None]) -> None:
    """Otherwise each append would wake it until its timeout, which the client chooses."""

    async def test(world: ServedListener) -> None:
        _, writer = await world.raw()
        writer.write(FETCH)
        while not world.fetches:
            await asyncio.sleep(0)
        reset(writer)
        while not world.fetches[0].done():
            await asyncio.sleep(0.001)
        assert world.fetches[0].cancelled()

    run(test)


def test_answers_of_handlers_that_finish_together_are_written_in_one_call(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    write = SocketOutput.write

    def counted(self: SocketOutput, parts: list[Part]) -> None:
        writes.append(len(parts))
        write(self, parts)

    async def test(world: ServedListener) -> None:
        reader, writer = await world.raw()
        writer.write(b"".join(frame(i, FetchRequest(max_wait_ms=100_000), 12) for i in range(20)))
        await world.fetching(20)
        writes.clear()
        for number in (0, *range(19, 0, -1)):  # the first one finishes first
            world.fetches[number].set_result(FetchResponse())
        assert await answers(reader, 20) == list(range(20))
        assert len(writes) == 1
        writer.close()

    monkeypatch.setattr(SocketOutput, "write", counted)
    run(test)


def test_a_finished_answer_does_not_wait_for_one_that_is_encoded_in_a_thread(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoding, go_on = threading.Event(), threading.Event()

    def slow(context: RequestContext, messages: list[Any]) -> list[Part]:
        encoding.set()
        assert go_on.wait(20)
        return encode_and_release(context, messages)

    async def test(world: ServedListener) -> None:
        reader, writer = await world.raw()
        topics = [FetchRequest.FetchTopic(topic="t" * 30_000) for _ in range(3)]
        large = FetchRequest(max_wait_ms=100_000, topics=topics)
        writer.write(FETCH + frame(1, large, 12))
        await world.fetching(2)
        for future in world.fetches:
            future.set_result(FetchResponse())
        assert await answers(reader, 1) == [0]
        while not encoding.is_set():
            await asyncio.sleep(0)
        go_on.set()
        assert await answers(reader, 1) == [1]
        writer.close()

    monkeypatch.setattr("quorate.net.connections.release.encode_and_release", slow)
    run(test)


def test_a_frame_handler_answers_only_if_no_earlier_response_is_pending(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        metadata = frame(2, MetadataRequest(), 12)
        world.dispatcher.frame_routes = {
            ApiKey.METADATA: lambda data, _: struct.pack(">i", 4) + bytes(data[4:8])
        }
        reader, writer = await world.raw()
        writer.write(metadata)
        assert await answers(reader, 1) == [2]
        assert not world.seen
        writer.write(FETCH + metadata)
        await world.fetching()
        while len(world.seen) < 2:
            await asyncio.sleep(0)
        world.fetches[0].set_result(FetchResponse())
        assert await answers(reader, 2) == [0, 2]
        assert [ApiKey(context.api_key) for context in world.seen] == [ApiKey.FETCH, ApiKey.METADATA]
        writer.close()

    run(test)


def test_an_answer_that_a_frame_handler_gives_later_keeps_its_place(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        later: list[asyncio.Future[bytes]] = []

        def answer(data: memoryview, source: FrameSource) -> asyncio.Future[bytes]:
            later.append(asyncio.get_running_loop().create_future())
            return later[-1]

        world.dispatcher.frame_routes = {ApiKey.METADATA: answer}
        reader, writer = await world.raw()
        writer.write(frame(1, MetadataRequest(), 12) + frame(2, MetadataRequest(), 12))
        while not world.seen:  # the second request is handled, and its response waits
            await asyncio.sleep(0)
        assert [context.correlation_id for context in world.seen] == [2]
        later[0].set_result(struct.pack(">ii", 4, 1))
        assert await answers(reader, 2) == [1, 2]
        writer.write(frame(3, MetadataRequest(), 12))
        while len(later) < 2:
            await asyncio.sleep(0)
        later[1].set_result(struct.pack(">ii", 4, 3))
        assert await answers(reader, 1) == [3]
        writer.close()

    run(test)


def test_a_later_error_of_a_frame_handler_is_answered_as_that_of_a_handler(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        async def refuse(context: RequestContext, request: Any) -> None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

        def refuse_frame(data: memoryview, source: FrameSource) -> asyncio.Future[bytes]:
            future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
            return future

        world.coordinator = refuse
        reader, writer = await world.raw()
        found = []
        for routes in ({}, {ApiKey.FIND_COORDINATOR: refuse_frame}):
            world.dispatcher.frame_routes = routes
            writer.write(frame(5, FindCoordinatorRequest(coordinator_keys=["a", "b"]), 4))
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            found.append(await reader.readexactly(size))
        assert found[0] == found[1]
        assert found[0].count(struct.pack(">h", ErrorCode.NOT_COORDINATOR)) == 2
        assert len(world.seen) == 1
        writer.close()

    run(test)


def test_a_frame_handler_that_fails_closes_only_its_connection(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        world.dispatcher.frame_routes = {ApiKey.METADATA: lambda data, _: bytes([1 // (data[7] - 2)])}
        reader, writer = await world.raw()
        other, other_writer = await world.raw()
        writer.write(frame(2, MetadataRequest(), 12))
        assert await reader.read() == b""
        other_writer.write(FETCH)
        await world.fetching()
        world.fetches[0].set_result(FetchResponse())
        assert await answers(other, 1) == [0]
        writer.close()
        other_writer.close()

    run(test)


def test_a_connection_with_an_answer_that_is_not_written_yet_is_not_drained() -> None:
    async def test() -> None:
        queue = ResponseQueue()
        loop = asyncio.get_running_loop()
        for correlation_id in (0, 1):
            context = RequestContext(ApiKey.FETCH, 12, correlation_id, None, "TEST")
            queue.pending.append(PendingResponse(context, FetchRequest(), loop.create_future()))
        first, second = queue.pending
        assert queue.only_waits
        queue.hold(first, [b"answer"])
        assert second.future is not None
        second.future.set_result(FetchResponse())
        assert queue.next_finishes_now
        assert not queue.only_waits
        assert queue.take_ready() == [b"answer"]

    asyncio.run(test())
