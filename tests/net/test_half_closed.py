"""Peers that have closed their sending direction get the responses to their requests. Then the connection is
closed and leaves nothing behind."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from functools import partial

import pytest

from quorate.net.client import Connection
from quorate.net.dispatch import ListenerKind
from quorate.net.limits import ConnectionLimits
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.net import served
from tests.net.served import LOOPS, ServedListener, frame, use_loop


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Runs a test on asyncio's own event loop and on uvloop, which nodes use."""
    use_loop(request.param)
    return partial(served.run, fetches_wait=True, until_all_closed=True)


def metadata(correlation_id: int) -> bytes:
    return frame(correlation_id, MetadataRequest(), 5)


def fetch(correlation_id: int) -> bytes:
    return frame(correlation_id, FetchRequest(max_wait_ms=100_000), 12)


async def answered(reader: asyncio.StreamReader) -> list[int]:
    """The correlation ids of the answers until the connection ends."""
    ids = []
    while head := await reader.read(4):
        (size,) = struct.unpack(
            ">i", head if len(head) == 4 else head + await reader.readexactly(4 - len(head))
        )
        ids.append(struct.unpack_from(">i", await reader.readexactly(size))[0])
    return ids


def test_pending_responses_are_sent(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        reader, writer = await world.half_closed(metadata(1), fetch(2), metadata(3), fetch(4))
        await world.fetching(2)
        await world.end_read()
        world.fetches[1].set_result(FetchResponse())
        world.fetches[0].set_result(FetchResponse())
        assert await answered(reader) == [1, 2, 3, 4]
        writer.close()

    run(test, kind=ListenerKind.CONTROLLER)


def test_a_connection_without_pending_responses_is_closed_at_once(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        for sent in ([], [metadata(1)], [metadata(1), metadata(2)[:-1]], [b"\0\0"]):
            reader, writer = await world.half_closed(*sent)
            assert await answered(reader) == [1][: len([part for part in sent if len(part) > 2])]
            writer.close()

    run(test)


def test_requests_that_wait_for_their_turn_are_handled(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        def slow() -> MetadataResponse:
            until = time.perf_counter() + 0.001
            while time.perf_counter() < until:
                pass
            return MetadataResponse()

        world.metadata = lambda context, request: slow()
        reader, writer = await world.half_closed(*map(metadata, range(200)))
        assert await answered(reader) == list(range(200))
        writer.close()

    run(test)


def test_a_slow_reader_gets_complete_responses(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        world.metadata = lambda context, request: MetadataResponse(cluster_id="x" * 30_000)
        reader, writer = await world.half_closed(*map(metadata, range(800)))
        writer.transport.pause_reading()
        while not world.seen:
            await asyncio.sleep(0.001)
        writer.transport.resume_reading()
        assert await answered(reader) == list(range(800))
        writer.close()

    run(test)


def test_an_invalid_request_does_not_prevent_earlier_responses(run: Callable[..., None]) -> None:
    """Apache Kafka reads the next request when it has answered the one before."""

    async def test(world: ServedListener) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
        writer.write(
            metadata(1) + fetch(2) + metadata(3) + struct.pack(">ihhih", 10, 999, 0, 1, -1) + metadata(4)
        )
        await world.fetching()
        world.fetches[0].set_result(FetchResponse())
        assert await answered(reader) == [1, 2, 3]
        writer.close()

    run(test)


def test_a_half_closed_connection_does_not_outlast_the_idle_time(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        reader, writer = await world.half_closed(fetch(1))
        assert await answered(reader) == []
        assert world.fetches[0].cancelled()
        writer.close()

    run(test, ConnectionLimits(max_idle_s=0.2))


def test_a_half_closed_peer_that_reads_nothing_is_disconnected(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        world.metadata = lambda context, request: MetadataResponse(cluster_id="x" * 30_000)
        _, writer = await world.half_closed(*map(metadata, range(3000)))
        writer.transport.pause_reading()
        while not world.seen or world.listener.connections:
            await asyncio.sleep(0.001)
        writer.transport.abort()

    run(test, ConnectionLimits(max_idle_s=0.3))


def test_close_callbacks_run_before_the_last_response(run: Callable[..., None]) -> None:
    """A controller that learns of a broker's death must not wait for a Fetch of that broker."""

    async def test(world: ServedListener) -> None:
        connection = await Connection.connect("127.0.0.1", world.listener.port)
        connection.send(FetchRequest())
        await world.fetching()
        gone: list[int] = []
        served = world.seen[-1].connection
        assert served is not None
        served.on_close(lambda: gone.append(1))
        connection.close()
        while not gone:
            await asyncio.sleep(0.001)
        served.on_close(lambda: gone.append(2))
        while len(gone) < 2:
            await asyncio.sleep(0.001)
        assert not world.fetches[0].done()
        world.fetches[0].set_result(FetchResponse())
        while world.listener.connections:
            await asyncio.sleep(0.001)
        assert gone == [1, 2]

    run(test)


def test_a_listener_that_closes_waits_for_half_closed_connections(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        soon: asyncio.Future[MetadataResponse] = asyncio.get_running_loop().create_future()
        world.metadata = lambda context, request: soon
        reader, writer = await world.half_closed(metadata(1))
        while not world.seen:
            await asyncio.sleep(0)
        await world.end_read()
        closing = asyncio.ensure_future(world.listener.close(grace_s=10))
        await asyncio.sleep(0)
        soon.set_result(MetadataResponse())
        assert await answered(reader) == [1]
        await closing
        writer.close()

    run(test)
