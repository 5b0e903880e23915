"""Situations in which a connection must not be closed, and failures that must not block it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from quorate.net import dispatch as dispatch_module
from quorate.net.client import Connection
from quorate.net.connections import connection as connection_module
from quorate.net.errors import KafkaConnectionError
from quorate.net.limits import ConnectionLimits
from quorate.net.turns import TurnQueue
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.net import served
from tests.net.served import LOOPS, ServedListener, frame, use_loop


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Runs a test on asyncio's own event loop and on uvloop, which nodes use."""
    use_loop(request.param)
    return partial(served.run, fetches_wait=True)


async def answer(reader: asyncio.StreamReader) -> int:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    (correlation_id,) = struct.unpack_from(">i", await reader.readexactly(size))
    return int(correlation_id)


def test_a_request_that_is_incomplete_because_reading_is_paused_does_not_time_out(
    run: Callable[..., None],
) -> None:
    """Reading is paused because too many bytes of responses wait for an earlier one. A part of the next
    request has already arrived."""

    async def test(world: ServedListener) -> None:
        made: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        world.metadata = lambda context, request: made
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
        request = frame(2, MetadataRequest(), 5)
        writer.write(frame(1, FetchRequest(max_wait_ms=100_000), 12) + request + request[:9])
        while not world.fetches:
            await asyncio.sleep(0)
        made.set_result(MetadataResponse(cluster_id="x" * 30_000))
        await world.sweeps(6)
        world.fetches[0].set_result(FetchResponse())
        assert await answer(reader) == 1
        writer.write(request[9:])
        assert [await answer(reader), await answer(reader)] == [2, 2]
        writer.close()

    run(test, ConnectionLimits(write_high_bytes=10_000, frame_stall_s=0.2, frame_min_rate=1 << 30))


IDLE_S = 60.0


def test_a_connection_is_not_idle_when_a_long_wait_has_just_been_answered(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        loop = asyncio.get_running_loop()
        connection = await Connection.connect("127.0.0.1", world.listener.port)
        waiting = connection.send(FetchRequest(max_wait_ms=100_000), 12)
        await world.fetching()
        received_at = world.seen[-1].received_at
        while loop.time() < received_at + 0.02:
            await asyncio.sleep(0.001)
        (served,) = world.listener.connections
        world.fetches[0].set_result(FetchResponse())
        await waiting
        served.check(received_at + IDLE_S + 0.01)
        assert isinstance(await connection.call(MetadataRequest(), 5), MetadataResponse)
        connection.close()

    run(test, ConnectionLimits(max_idle_s=IDLE_S))


@pytest.mark.parametrize("has_more", [False, True], ids=["one request", "another one behind it"])
@pytest.mark.parametrize("gone", [False, True], ids=["silent client", "client is gone"])
def test_a_request_that_waits_does_not_keep_a_connection_for_ever(
    run: Callable[..., None], has_more: bool, gone: bool
) -> None:
    """A connection whose next request has to wait is not read. So the end of its client goes unnoticed."""

    async def test(world: ServedListener) -> None:
        reader, writer = await world.raw()
        behind = frame(2, MetadataRequest(), 5) if has_more else b""
        writer.write(frame(1, FetchRequest(max_wait_ms=2**31 - 1), 12) + behind)
        await world.fetching()
        (served,) = world.listener.connections
        received_at = world.seen[-1].received_at
        if gone:
            writer.transport.abort()
        served.check(received_at + IDLE_S - 1)
        assert not served.closed
        served.check(received_at + IDLE_S + 1)
        assert served.closed
        if not gone:
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()
        while world.listener.connections:
            await asyncio.sleep(0.001)
        assert world.fetches[0].cancelled()

    run(test, ConnectionLimits(max_idle_s=IDLE_S))


def test_a_reader_may_pause_for_as_long_as_a_connection_may_be_idle(run: Callable[..., None]) -> None:
    """A consumer in Java reads only while its application polls, by default once in five minutes."""

    async def test(world: ServedListener) -> None:
        world.metadata = lambda context, request: MetadataResponse(cluster_id="x" * 30_000)
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port, limit=1 << 16)
        writer.transport.pause_reading()
        writer.write(b"".join(frame(i, MetadataRequest(), 5) for i in range(800)))
        while not any(c._output is not None and c._output.pending for c in world.listener.connections):
            await asyncio.sleep(0.001)
        await world.sweeps(8)
        writer.transport.resume_reading()
        assert [await answer(reader) for _ in range(800)] == list(range(800))
        writer.close()

    run(test, ConnectionLimits(max_idle_s=60, first_request_s=0.2, frame_stall_s=0.1))


def test_a_response_that_cannot_be_encoded_ends_the_connection(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the responses after it would wait forever."""

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    async def test(world: ServedListener) -> None:
        monkeypatch.setattr(dispatch_module, "failure", broken)
        connection = await Connection.connect("127.0.0.1", world.listener.port)
        waiting = connection.send(FetchRequest(max_wait_ms=100_000), 12)
        behind = connection.send(MetadataRequest())
        while not world.fetches:
            await asyncio.sleep(0)
        world.fetches[0].set_exception(RuntimeError())
        for request in (waiting, behind):
            with pytest.raises(KafkaConnectionError):
                await asyncio.wait_for(request, 5)

    run(test)


def test_a_connection_that_fails_in_its_turn_does_not_stop_the_others(run: Callable[..., None]) -> None:
    async def test(world: ServedListener) -> None:
        queue = TurnQueue(asyncio.get_running_loop())
        served = asyncio.get_running_loop().create_future()

        def fail() -> None:
            raise ZeroDivisionError

        queue.add(fail)
        queue.add(lambda: served.set_result(None))
        await asyncio.wait_for(served, 5)
        again = asyncio.get_running_loop().create_future()
        queue.add(lambda: again.set_result(None))
        await asyncio.wait_for(again, 5)

    run(test)


def test_a_connection_for_which_no_descriptor_is_left_is_closed(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: Any) -> Any:
        raise OSError(24, "Too many open files")

    async def test(world: ServedListener) -> None:
        reports: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
        with monkeypatch.context() as patch:
            patch.setattr(connection_module, "SocketOutput", exhausted)
            reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
            try:
                assert await asyncio.wait_for(reader.read(), 5) == b""
            except ConnectionError:
                pass
            writer.close()
        while world.listener.connections:
            await asyncio.sleep(0.001)
        connection = await Connection.connect("127.0.0.1", world.listener.port)
        await connection.call(MetadataRequest(), 5)
        connection.close()
        assert reports == []

    run(test)
