"""Requests with many elements take long to decode. Meanwhile other connections are served, and the responses
of the connection stay in order."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from quorate.net import dispatch
from quorate.net.client import Connection
from quorate.net.connections import response_queue
from quorate.net.dispatch import Dispatcher, ListenerKind, RequestContext
from quorate.net.server import Listener
from quorate.protocol.api import ApiKey, decode_response, encode_request
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse


class World:
    """A listener whose decoder pauses at a Metadata request of more than 100,000 bytes until the test
    releases it."""

    def __init__(self) -> None:
        self.listener = Listener()
        self.decoding = threading.Event()
        self.go_on = threading.Event()
        self.seen: list[int] = []
        self.dispatcher = Dispatcher(ListenerKind.BROKER)
        self.dispatcher.register(ApiKey.METADATA, self._metadata)
        self.dispatcher.register(ApiKey.FIND_COORDINATOR, lambda c, r: FindCoordinatorResponse())
        decode = self.dispatcher.decode

        def slow(frame: memoryview, context: RequestContext) -> Any:
            if len(frame) > 100_000:
                self.decoding.set()
                assert self.go_on.wait(10)
            return decode(frame, context)

        self.dispatcher.decode = slow  # type: ignore[method-assign]

    def _metadata(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        self.seen.append(context.correlation_id)
        return MetadataResponse(cluster_id=str(len(request.topics or ())))

    async def started(self) -> None:
        while not self.decoding.is_set():
            await asyncio.sleep(0.001)

    async def serves(self) -> None:
        client = await Connection.connect("127.0.0.1", self.listener.port)
        await client.call(FindCoordinatorRequest(key="g"), 5, 2)
        client.close()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    def runner(test: Callable[[World], Awaitable[None]]) -> None:
        async def main() -> None:
            world = World()
            await world.listener.start("127.0.0.1", 0, world.dispatcher, "TEST")
            try:
                await asyncio.wait_for(test(world), 15)
            finally:
                world.go_on.set()
                await world.listener.close()

        with asyncio.Runner(loop_factory=request.param) as loop:
            loop.run(main())

    return runner


def frame(correlation_id: int, topics: int) -> bytes:
    asked = [MetadataRequest.MetadataRequestTopic(name="ab")] * topics
    data = encode_request(correlation_id, "test", MetadataRequest(topics=asked), 5)
    return struct.pack(">i", len(data)) + data


async def answers(reader: asyncio.StreamReader) -> list[int]:
    found = []
    while head := await reader.read(4):
        (size,) = struct.unpack(">i", head)
        found.append(struct.unpack_from(">i", await reader.readexactly(size))[0])
    return found


def refusal(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """A handler that fails."""
    raise KafkaError(ErrorCode.INVALID_REQUEST)


async def later_refusal(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """A handler that fails in a later turn."""
    return refusal(context, request)


def test_other_connections_are_served_and_the_order_of_responses_holds(run: Callable[..., None]) -> None:
    async def test(world: World) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
        writer.write(frame(1, 1) + frame(2, 100_000) + frame(3, 1) + frame(4, 100_000) + frame(5, 1))
        writer.write_eof()
        await world.started()
        await world.serves()
        assert world.seen == [1]
        world.go_on.set()
        assert await answers(reader) == [1, 2, 3, 4, 5]
        assert world.seen == [1, 2, 3, 4, 5]
        writer.close()

    run(test)


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_responses_to_large_requests_are_encoded_in_a_thread(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    """Such responses have as many elements as the requests."""
    encoding, go_on = threading.Event(), threading.Event()
    encode = response_queue.encode_response

    def slow(correlation_id: int, key: int, version: int, message: Any) -> Any:
        if key == ApiKey.METADATA and correlation_id % 2 == 0:
            encoding.set()
            assert go_on.wait(10)
        return encode(correlation_id, key, version, message)

    monkeypatch.setattr(response_queue, "encode_response", slow)

    async def test(world: World) -> None:
        world.go_on.set()
        if later:
            told = world.dispatcher.routes[ApiKey.METADATA]

            async def tell(context: RequestContext, request: MetadataRequest) -> Any:
                return told(context, request)

            world.dispatcher.routes[ApiKey.METADATA] = tell
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
        writer.write(frame(1, 1) + frame(2, 100_000) + frame(3, 1) + frame(4, 100_000) + frame(5, 1))
        while not encoding.is_set():
            await asyncio.sleep(0.001)
        await world.serves()
        go_on.set()
        writer.write_eof()
        assert await answers(reader) == [1, 2, 3, 4, 5]
        writer.close()

    run(test)


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_the_response_to_a_large_request_that_fails_is_made_in_a_thread(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    """It may repeat all elements of the request."""
    making, go_on = threading.Event(), threading.Event()
    failure = dispatch.failure

    def slow(*args: Any) -> Any:
        making.set()
        assert go_on.wait(10)
        return failure(*args)

    monkeypatch.setattr(dispatch, "failure", slow)

    async def test(world: World) -> None:
        world.go_on.set()
        world.dispatcher.routes[ApiKey.METADATA] = later_refusal if later else refusal
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
        writer.write(frame(1, 100_000))
        while not making.is_set():
            await asyncio.sleep(0.001)
        await world.serves()
        go_on.set()
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        answer = decode_response(memoryview(await reader.readexactly(size)), ApiKey.METADATA, 5)[1]
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST] * 100_000
        writer.close()

    run(test)


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_a_large_request_that_fails_is_freed_without_the_garbage_collector(
    run: Callable[..., None], later: bool
) -> None:
    """The collector would free all of its elements in one turn of the event loop."""

    async def test(world: World) -> None:
        world.go_on.set()
        world.dispatcher.routes[ApiKey.METADATA] = later_refusal if later else refusal
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
        gc.collect()
        gc.disable()
        try:
            writer.write(frame(1, 100_000))
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(size)
            while any(isinstance(found, MetadataRequest) for found in gc.get_objects()):
                await asyncio.sleep(0.01)
        finally:
            gc.enable()
        writer.close()

    run(test)


def test_a_large_request_that_fails_is_counted_on_the_event_loop(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counters are read there, and are not locked."""
    counted: list[threading.Thread] = []
    monkeypatch.setattr(Dispatcher, "count_failure", lambda *_: counted.append(threading.current_thread()))

    async def test(world: World) -> None:
        world.go_on.set()
        world.dispatcher.routes[ApiKey.METADATA] = refusal
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
        writer.write(frame(1, 100_000))
        await reader.readexactly(4)
        assert counted == [threading.current_thread()]
        writer.close()

    run(test)


def test_a_large_request_whose_answer_cannot_be_encoded_ends_its_connection(
    run: Callable[..., None],
) -> None:
    async def test(world: World) -> None:
        world.go_on.set()
        world.dispatcher.routes[ApiKey.METADATA] = lambda c, r: MetadataResponse(
            cluster_id=7 if c.correlation_id == 2 else "c"  # type: ignore[arg-type]
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
        writer.write(frame(1, 1) + frame(2, 100_000) + frame(3, 1))
        try:
            assert await answers(reader) == [1]
        except ConnectionResetError:
            pass  # what was behind it is not read
        while world.listener.connections:
            await asyncio.sleep(0.001)
        await world.serves()
        writer.close()

    run(test)


def test_a_large_request_that_is_malformed_ends_its_connection(run: Callable[..., None]) -> None:
    async def test(world: World) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
        cut = frame(2, 100_000)[4:-50_000]
        writer.write(frame(1, 1) + struct.pack(">i", len(cut)) + cut + frame(3, 1))
        await world.started()
        world.go_on.set()
        try:
            assert await answers(reader) == [1]
        except ConnectionResetError:
            pass  # what was behind it is not read
        while world.listener.connections:
            await asyncio.sleep(0.001)
        assert world.seen == [1]
        await world.serves()
        writer.close()

    run(test)


def test_a_client_that_disconnects_meanwhile_leaves_nothing(run: Callable[..., None]) -> None:
    async def test(world: World) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
        writer.write(frame(1, 100_000))
        await world.started()
        (served,) = world.listener.connections
        served.close()
        while world.listener.connections:
            await asyncio.sleep(0.001)
        world.go_on.set()
        await world.serves()
        assert world.seen == []
        writer.close()

    run(test)


def test_a_listener_that_closes_waits_for_a_large_request(run: Callable[..., None]) -> None:
    async def test(world: World) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        writer.write(frame(1, 100_000))
        await world.started()
        closing = asyncio.ensure_future(world.listener.close(grace_s=10))
        await asyncio.sleep(0)
        world.go_on.set()
        assert await answers(reader) == [1]
        await asyncio.wait_for(closing, 5)
        writer.close()

    run(test)
