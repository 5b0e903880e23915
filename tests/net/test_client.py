"""Client connections and channels to a listener with handlers of the test."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Any

import pytest

from quorate.net.channel import NodeChannel
from quorate.net.client import (
    Connection,
    KafkaConnectionError,
    RequestTimedOut,
)
from quorate.net.dispatch import (
    RequestContext,
)
from quorate.net.server import Listener
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.net.served import LOOPS, ServedListener, in_loop, run, use_loop


@pytest.fixture(autouse=True, params=LOOPS)
def _loop(request: pytest.FixtureRequest) -> None:
    """Every test runs on asyncio's own event loop and on uvloop, which nodes use."""
    use_loop(request.param)


def test_a_missing_response_times_out_and_the_connection_stays_usable() -> None:
    async def test(world: ServedListener) -> None:
        late: list[asyncio.Future[Any]] = []

        def metadata(context: RequestContext, request: MetadataRequest) -> Any:
            late.append(asyncio.get_running_loop().create_future())
            return late[-1]

        world.metadata = metadata
        connection = await world.connect()
        with pytest.raises(RequestTimedOut, match="METADATA"):
            await connection.call(MetadataRequest(), 0.05)
        late[0].set_result(MetadataResponse())
        assert isinstance(
            await connection.call(FindCoordinatorRequest(key="g"), 5, 2), FindCoordinatorResponse
        )

    run(test)


def test_requests_in_flight_fail_when_the_connection_is_lost() -> None:
    async def test(world: ServedListener) -> None:
        world.metadata = lambda c, r: asyncio.get_running_loop().create_future()
        lost: list[Exception | None] = []
        connection = await world.connect(on_lost=lost.append)
        answer = connection.send(MetadataRequest())
        while not world.seen:
            await asyncio.sleep(0.001)
        next(iter(world.listener.connections)).close()
        with pytest.raises(KafkaConnectionError):
            await answer
        assert isinstance(lost[0], KafkaConnectionError)
        with pytest.raises(KafkaConnectionError):
            connection.send(MetadataRequest())

    run(test)


def test_a_refused_connection_is_reported() -> None:
    async def main() -> None:
        listener = Listener()
        listener.bind("127.0.0.1", 0, "X")
        with pytest.raises(KafkaConnectionError, match=f"127.0.0.1:{listener.port}"):
            await Connection.connect("127.0.0.1", listener.port)

    in_loop(main())


def test_a_channel_that_is_closed_while_it_connects_leaves_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect = Connection.connect
    channel: NodeChannel

    async def made_meanwhile(*args: Any, **options: Any) -> Connection:
        connection = await connect(*args, **options)
        channel.close()
        return connection

    monkeypatch.setattr(Connection, "connect", made_meanwhile)

    async def body(world: ServedListener) -> None:
        nonlocal channel
        channel = NodeChannel("127.0.0.1", world.listener.port)
        with pytest.raises(KafkaConnectionError):
            await channel.connected()
        while world.listener.connections:
            await asyncio.sleep(0.001)

    run(body)


def test_a_channel_connects_again_after_a_loss() -> None:
    async def test(world: ServedListener) -> None:
        channel = NodeChannel("127.0.0.1", world.listener.port, backoff_min_s=0.01)
        await asyncio.gather(*[channel.call(MetadataRequest(), 5) for _ in range(5)])
        assert len(world.listener.connections) == 1
        next(iter(world.listener.connections)).close()
        while channel.connection is not None:
            await asyncio.sleep(0.001)
        assert (await channel.call(MetadataRequest(), 5)).cluster_id == "here"
        channel.close()

    run(test)


def test_a_caller_that_is_cancelled_while_its_channel_is_closed_ends() -> None:
    """A fetcher is stopped so. In the turn in which it began to connect, its cancellation would be taken for
    that of the connection, and it would retry forever."""

    async def test(world: ServedListener) -> None:
        channel = NodeChannel("127.0.0.1", world.listener.port)
        call = asyncio.ensure_future(channel.connected())
        loop = asyncio.get_running_loop()

        def stop() -> None:
            call.cancel()
            channel.close()

        loop.call_soon(stop)  # after the first step of the call, before that of the connection
        await asyncio.wait([call], timeout=10)
        assert call.cancelled()

    run(test)


def test_a_caller_that_is_not_cancelled_gets_the_error_of_the_closed_channel() -> None:
    async def test(world: ServedListener) -> None:
        channel = NodeChannel("127.0.0.1", world.listener.port)
        call = asyncio.ensure_future(channel.connected())
        asyncio.get_running_loop().call_soon(channel.close)
        with pytest.raises(KafkaConnectionError, match="is closed"):
            await call

    run(test)


def test_a_peer_that_accepts_late_gets_more_time_with_each_attempt() -> None:
    """A busy server accepts connections in their order. If its clients always gave up after the same time, it
    would only accept connections that are closed already."""

    async def test(world: ServedListener) -> None:
        attempts = 0

        async def accept_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal attempts
            attempts += 1
            await asyncio.sleep(0.9)
            there, back = await asyncio.open_connection("127.0.0.1", world.listener.port)
            await asyncio.gather(copy(reader, back), copy(there, writer))

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(1 << 16):
                    sink.write(data)
            sink.close()

        server = await asyncio.start_server(accept_late, "127.0.0.1", 0)
        channel = NodeChannel("127.0.0.1", server.sockets[0].getsockname()[1], connect_timeout_s=0.6)
        with pytest.raises(RequestTimedOut):
            await channel.connected()
        assert not (await channel.connected()).closed.done()
        assert attempts == 2
        channel.close()
        server.close()

    run(test)


def test_a_channel_whose_login_fails_backs_off() -> None:
    """Otherwise a caller that tries again would try passwords as fast as the server refuses them."""

    async def test(world: ServedListener) -> None:
        loop = asyncio.get_running_loop()
        times: list[float] = []

        async def refused(connection: Connection) -> None:
            times.append(loop.time())
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED)

        channel = NodeChannel("127.0.0.1", world.listener.port, sasl=refused, backoff_min_s=0.1)
        for _ in range(3):
            with pytest.raises(KafkaError):
                await channel.connected()
        first, second, third = times
        assert second - first >= 0.08 and third - second >= 0.16
        channel.close()

    run(test)


def test_a_closed_channel_ends_requests_on_a_connection_whose_session_ended() -> None:
    async def test(world: ServedListener) -> None:
        async def login(connection: Connection) -> None:
            connection.replace_after(0.0)

        answer = world.metadata
        world.metadata = lambda c, r: asyncio.get_running_loop().create_future()
        channel = NodeChannel("127.0.0.1", world.listener.port, sasl=login)
        waiting = asyncio.ensure_future(channel.call(MetadataRequest(), 20))
        while not world.seen:
            await asyncio.sleep(0.001)
        world.metadata = answer
        await channel.call(MetadataRequest(), 5)
        assert len(world.listener.connections) == 2 and not waiting.done()
        channel.close()
        with pytest.raises(KafkaConnectionError):
            await asyncio.wait_for(waiting, 5)

    run(test)


async def frame_from(reader: asyncio.StreamReader) -> bytes:
    prefix = await reader.readexactly(4)
    return prefix + await reader.readexactly(int.from_bytes(prefix))


def test_a_response_may_be_as_large_as_its_batch() -> None:
    """With socket.request.max.bytes above 256 MiB, a follower could never fetch a larger batch: it closed the
    connection and asked again."""
    size = 300_000_000

    async def test(world: ServedListener) -> None:
        async def begin_to_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection("127.0.0.1", world.listener.port)
            back.write(await frame_from(reader))
            writer.write(await frame_from(there))
            request = await frame_from(reader)
            writer.write(struct.pack(">i", size) + request[8:12] + bytes(100))
            await reader.read()
            back.close()
            writer.close()

        server = await asyncio.start_server(begin_to_answer, "127.0.0.1", 0)
        connection = await Connection.connect("127.0.0.1", server.sockets[0].getsockname()[1])
        answer = connection.send(MetadataRequest())
        while not (answer.done() or connection._reader.expected):
            await asyncio.sleep(0.001)
        assert (connection._reader.expected, answer.done()) == (size, False)
        connection.close()
        with pytest.raises(KafkaConnectionError, match="from this end"):
            await answer
        server.close()

    run(test)


@pytest.mark.parametrize("stalls", [False, True])
def test_a_response_that_arrives_slowly_does_not_time_out_until_it_stalls(stalls: bool) -> None:
    async def test(world: ServedListener) -> None:
        async def answer_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection("127.0.0.1", world.listener.port)
            for _ in range(2):
                back.write(await frame_from(reader))
                answer = await frame_from(there)
                for byte in answer[:-1] if len(answer) < 100 else [answer[:-1]]:
                    writer.write(bytes([byte]) if isinstance(byte, int) else byte)
                    await asyncio.sleep(0.03)
                if not (stalls and len(answer) < 100):
                    writer.write(answer[-1:])
            await reader.read()
            back.close()
            writer.close()

        server = await asyncio.start_server(answer_slowly, "127.0.0.1", 0)
        parts: list[None] = []
        connection = await Connection.connect(
            "127.0.0.1", server.sockets[0].getsockname()[1], on_receiving=lambda: parts.append(None)
        )
        answer = connection.send(FindCoordinatorRequest(key="g"), 2, timeout_s=0.3)
        if stalls:
            with pytest.raises(RequestTimedOut):
                await answer
        else:
            assert isinstance(await answer, FindCoordinatorResponse)
            assert parts
        connection.close()
        server.close()

    run(test)


@pytest.mark.parametrize("first", [b"\x15\x03\x03\x00\x02\x02\x46", b"HTTP/1.1 400 Bad Request\r\n"])
def test_the_first_response_of_another_protocol_is_refused_at_once(first: bytes) -> None:
    async def main() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await frame_from(reader)
            writer.write(first.ljust(64, b" "))
            await reader.read()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        with pytest.raises(KafkaConnectionError, match="not a Kafka listener"):
            await Connection.connect("127.0.0.1", server.sockets[0].getsockname()[1])
        server.close()

    in_loop(main())
