"""A listener with test handlers, over real sockets."""

from __future__ import annotations

import asyncio
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from quorate.net.client import (
    Connection,
    KafkaConnectionError,
    UnsupportedVersion,
)
from quorate.net.dispatch import (
    Dispatcher,
    ListenerKind,
    RequestContext,
    ServerIdentity,
)
from quorate.net.errors import ListenerError
from quorate.net.limits import ConnectionLimits
from quorate.net.server import Listener
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.file_region import FileRegion
from quorate.protocol.messages.api_versions import ApiVersionsRequest
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from quorate.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.net.served import LOOPS, ServedListener, closed, in_loop, run, use_loop


@pytest.fixture(autouse=True, params=LOOPS)
def _loop(request: pytest.FixtureRequest) -> None:
    """Every test runs on asyncio's own event loop and on uvloop, which nodes use."""
    use_loop(request.param)


def test_negotiates_versions_and_features() -> None:
    async def test(world: ServedListener) -> None:
        connection = await world.connect()
        assert connection.api_versions[ApiKey.METADATA] == (0, 13)
        assert connection.api_versions[ApiKey.PRODUCE] == (0, 13)
        assert ApiKey.VOTE not in connection.api_versions
        assert connection.supported_features == {"metadata.version": (7, 27), "kraft.version": (0, 1)}
        assert connection.finalized_features == {"metadata.version": 27}
        assert connection.finalized_features_epoch == 12
        with pytest.raises(UnsupportedVersion):
            connection.version_for(ApiKey.VOTE)

    run(test)


def test_older_api_versions_leave_out_features_from_level_zero() -> None:
    async def test(world: ServedListener) -> None:
        connection = await world.connect()
        answer = await connection.call(
            ApiVersionsRequest(client_software_name="a", client_software_version="1"), 5, 3
        )
        assert [f.name for f in answer.supported_features] == ["metadata.version"]

    run(test)


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("-a", "1"), ("a", "1 2"), ("a.", "1")])
def test_bad_software_names_are_refused(name: str, version: str) -> None:
    async def test(world: ServedListener) -> None:
        connection = await world.connect()
        answer = await connection.call(
            ApiVersionsRequest(client_software_name=name, client_software_version=version), 5, 3
        )
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    run(test)


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "broker", "controller"),
    [
        (None, -1, ErrorCode.NONE, ErrorCode.NONE),
        ("ours", 1, ErrorCode.NONE, ErrorCode.NONE),
        ("ours", 2, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.NONE),
        ("other", 1, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.NONE),
        ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.NONE),
        ("ours", -1, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_that_expects_another_node_must_bootstrap_again(
    cluster_id: str | None, node_id: int, broker: ErrorCode, controller: ErrorCode
) -> None:
    """KIP-1242. Only brokers compare; controllers have no identity here, as in Kafka."""
    request = ApiVersionsRequest(
        client_software_name="a", client_software_version="1", cluster_id=cluster_id, node_id=node_id
    )
    context = RequestContext(ApiKey.API_VERSIONS, 5, 1, "a", "L")
    for dispatcher, expected in (
        (Dispatcher(ListenerKind.BROKER, identity=ServerIdentity("ours", 1)), broker),
        (Dispatcher(ListenerKind.CONTROLLER), controller),
    ):
        answer = dispatcher.dispatch(context, request)
        assert answer.error_code == expected
        assert bool(answer.api_keys) is (expected is ErrorCode.NONE)


def test_an_unknown_api_versions_version_is_answered_in_version_0() -> None:
    async def test(world: ServedListener) -> None:
        reader, writer = await world.raw()
        writer.write(struct.pack(">ihhih", 14, 18, 99, 5, -1) + b"\0\0\0\0")
        frame = await reader.readexactly(4 + 4 + 2 + 4 + 6)
        assert struct.unpack(">iihihhh", frame) == (16, 5, 35, 1, 18, 0, 5)
        writer.close()

    run(test)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", 3),
        struct.pack(">i", 200 << 20) + bytes(100),
        struct.pack(">ihhih", 10, 52, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 9, 1, -1),
        struct.pack(">ihhih", 10, 0, 0, 1, -1),
        struct.pack(">ihhih", 70_000, 18, 3, 1, -1),
    ],
    ids=[
        "http",
        "negative",
        "tiny",
        "huge",
        "other listener's",
        "version",
        "key",
        "body",
        "produce 0",
        "big first",
    ],
)
def test_a_client_of_another_protocol_is_disconnected(request_bytes: bytes) -> None:
    async def test(world: ServedListener) -> None:
        neighbour = await world.connect()
        reader, writer = await world.raw()
        writer.write(request_bytes)
        assert await closed(reader) == b""
        assert (await neighbour.call(MetadataRequest(), 5)).cluster_id == "here"
        writer.close()

    run(test)


def test_bytes_after_a_request_are_ignored() -> None:
    async def test(world: ServedListener) -> None:
        reader, writer = await world.raw()
        # librdkafka's request for the metadata of all topics, three bytes too long
        writer.write(bytes.fromhex("000000190003000d00000003000772646b61666b610000000000010000"))
        assert (await reader.readexactly(8))[4:] == struct.pack(">i", 3)
        writer.close()

    run(test)


def test_frames_may_arrive_in_any_pieces() -> None:
    async def test(world: ServedListener) -> None:
        reader, writer = await world.raw()
        frame = struct.pack(">ihhih", 14, 3, 0, 77, -1) + struct.pack(">i", 0)
        for _ in range(2):
            for i in range(len(frame)):
                writer.write(frame[i : i + 1])
                await writer.drain()
                await asyncio.sleep(0)
        writer.write(frame * 3)
        for _ in range(5):
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            body = await reader.readexactly(size)
            assert body[:4] == struct.pack(">i", 77)
        writer.close()

    run(test)


def test_a_request_larger_than_every_buffer_arrives_whole_and_writable() -> None:
    async def test(world: ServedListener) -> None:
        payload = os.urandom(9 << 20)
        got: list[Any] = []

        def produce(context: RequestContext, request: ProduceRequest) -> Any:
            records = request.topic_data[0].partition_data[0].records
            assert not records.readonly
            got.append(bytes(records))
            return ProduceResponse()

        world.produce = produce
        connection = await world.connect()
        data = ProduceRequest.PartitionProduceData(index=0, records=payload)
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
        await connection.call(ProduceRequest(acks=1, topic_data=[topic]), 10, 9)
        assert got == [payload]

    run(test)


def test_a_first_request_may_be_large_if_its_api_is_served() -> None:
    async def test(world: ServedListener) -> None:
        connection = await Connection.connect("127.0.0.1", world.listener.port, negotiate=False)
        data = ProduceRequest.PartitionProduceData(index=0, records=bytes(1 << 20))
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
        await connection.call(ProduceRequest(acks=1, topic_data=[topic]), 10, 9)

    run(test)


def test_answers_keep_the_order_of_requests() -> None:
    async def test(world: ServedListener) -> None:
        waiting: list[asyncio.Future[Any]] = []

        def metadata(context: RequestContext, request: MetadataRequest) -> Any:
            future = asyncio.get_running_loop().create_future()
            waiting.append(future)
            return future

        world.metadata = metadata
        connection = await world.connect()
        order: list[int] = []
        futures = [connection.send(MetadataRequest()) for _ in range(3)]
        futures.append(connection.send(FindCoordinatorRequest(key="x"), 1))
        for i, future in enumerate(futures):
            future.add_done_callback(lambda _, i=i: order.append(i))
        while len(world.seen) < 4:
            await asyncio.sleep(0.001)
        for future in reversed(waiting):  # all have started; they finish the other way round
            future.set_result(MetadataResponse(cluster_id=str(waiting.index(future))))
        answers = await asyncio.gather(*futures)
        assert order == [0, 1, 2, 3]
        assert [a.cluster_id for a in answers[:3]] == ["0", "1", "2"]

    run(test, kind=ListenerKind.CONTROLLER)


def test_coroutine_handlers_start_in_order() -> None:
    async def test(world: ServedListener) -> None:
        started: list[int] = []

        async def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
            started.append(context.correlation_id)
            await asyncio.sleep(0)
            return MetadataResponse()

        world.metadata = metadata
        connection = await world.connect()
        await asyncio.gather(*[connection.call(MetadataRequest(), 5) for _ in range(50)])
        assert started == sorted(started)

    run(test)


def test_a_kafka_error_becomes_the_answer() -> None:
    async def test(world: ServedListener) -> None:
        def metadata(context: RequestContext, request: MetadataRequest) -> Any:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)

        async def coordinator(context: RequestContext, request: FindCoordinatorRequest) -> Any:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not yet")

        world.metadata, world.coordinator = metadata, coordinator
        connection = await world.connect()
        assert (await connection.call(MetadataRequest(), 5, 13)).error_code == ErrorCode.BROKER_NOT_AVAILABLE
        answer = await connection.call(FindCoordinatorRequest(key="g"), 5, 2)
        assert (answer.error_code, answer.error_message) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "not yet")

    run(test)


def test_a_failing_handler_answers_unknown_server_error(caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: ServedListener) -> None:
        def metadata(context: RequestContext, request: MetadataRequest) -> Any:
            raise ZeroDivisionError

        world.metadata = metadata
        connection = await world.connect()
        assert (await connection.call(MetadataRequest(), 5, 13)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    run(test)
    assert "METADATA" in caplog.text


def test_no_answer_is_sent_for_none() -> None:
    async def test(world: ServedListener) -> None:
        world.produce = lambda c, r: None
        connection = await world.connect()
        connection.send(ProduceRequest(acks=0), expect_answer=False)
        assert (await connection.call(MetadataRequest(), 5)).cluster_id == "here"

    run(test)


def test_requests_in_flight_are_bounded_and_none_is_lost() -> None:
    async def test(world: ServedListener) -> None:
        waiting: list[asyncio.Future[Any]] = []

        def metadata(context: RequestContext, request: MetadataRequest) -> Any:
            waiting.append(asyncio.get_running_loop().create_future())
            return waiting[-1]

        world.metadata = metadata
        connection = await world.connect()
        futures = [connection.send(MetadataRequest()) for _ in range(40)]
        await asyncio.sleep(0.05)
        assert len(waiting) == 4
        answered = 0
        while answered < 40:
            assert len(waiting) - answered <= 4
            waiting[answered].set_result(MetadataResponse())
            await futures[answered]
            answered += 1
            while len(waiting) <= answered < 40:
                await asyncio.sleep(0)

    run(test, ConnectionLimits(max_in_flight=4), kind=ListenerKind.CONTROLLER)


def test_file_regions_are_sent_in_their_place(tmp_path: Path) -> None:
    content = os.urandom(8 << 20)
    path = tmp_path / "segment"
    path.write_bytes(content)

    async def test(world: ServedListener) -> None:
        with path.open("rb") as file:

            def fetch(context: RequestContext, request: FetchRequest) -> Any:
                partition = FetchResponse.PartitionData
                return FetchResponse(
                    responses=[
                        FetchResponse.FetchableTopicResponse(
                            topic="t",
                            partitions=[
                                partition(partition_index=0, records=FileRegion(file, 100, 5_000_000)),
                                partition(partition_index=1, records=b"between"),
                                partition(partition_index=2, records=FileRegion(file, 7, 0)),
                                partition(
                                    partition_index=3,
                                    records=[FileRegion(file, 1, 2), FileRegion(file, 9, 3)],
                                ),
                            ],
                        )
                    ]
                )

            world.fetch = fetch
            connection = await world.connect()
            answers = await asyncio.gather(*[connection.call(FetchRequest(), 10, 12) for _ in range(3)])
            for answer in answers:
                got = [bytes(p.records) for p in answer.responses[0].partitions]
                assert got == [content[100:5_000_100], b"between", b"", content[1:3] + content[9:12]]

    run(test)


def test_a_file_that_is_shorter_than_promised_ends_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"short")

    async def test(world: ServedListener) -> None:
        with path.open("rb") as file:
            partition = FetchResponse.PartitionData(records=FileRegion(file, 0, 100))
            topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
            world.fetch = lambda c, r: FetchResponse(responses=[topic])
            connection = await world.connect()
            with pytest.raises(KafkaConnectionError):
                await connection.call(FetchRequest(), 5, 12)

    run(test)


def test_a_client_that_reads_nothing_is_disconnected_and_others_are_served() -> None:
    async def test(world: ServedListener) -> None:
        world.metadata = lambda c, r: MetadataResponse(cluster_id="x" * 30_000)
        _reader, writer = await world.raw()
        frame = struct.pack(">ihhih", 14, 3, 2, 77, -1) + struct.pack(">i", 0)
        writer.transport.pause_reading()
        gone = asyncio.get_running_loop().create_future()
        for connection in world.listener.connections:
            connection.on_close(lambda: gone.set_result(None))
        writer.write(frame * 3000)
        other = await world.connect()
        await other.call(MetadataRequest(), 5)
        await asyncio.wait_for(gone, 5)
        another = await world.connect()
        await another.call(MetadataRequest(), 5)
        writer.transport.abort()

    run(test, ConnectionLimits(max_idle_s=0.3))


@pytest.mark.parametrize("begun", [b"", struct.pack(">i", 100), struct.pack(">ihh", 100, 3, 0), b"\0\0"])
def test_a_peer_with_an_incomplete_request_is_disconnected(begun: bytes) -> None:
    async def test(world: ServedListener) -> None:
        reader, writer = await world.raw()
        writer.write(begun)
        assert await closed(reader) == b""
        writer.close()

    run(test, ConnectionLimits(frame_stall_s=0.1, first_request_s=0.1))


def test_idle_connections_end() -> None:
    async def test(world: ServedListener) -> None:
        connection = await world.connect()
        await asyncio.wait_for(connection.closed, 5)

    run(test, ConnectionLimits(max_idle_s=0.1))


def test_connections_are_limited() -> None:
    async def test(world: ServedListener) -> None:
        first, second = await world.connect(), await world.connect()
        with pytest.raises(KafkaConnectionError):
            await world.connect()
        first.close()
        await first.closed
        while len(world.listener.connections) > 1:
            await asyncio.sleep(0.001)
        third = await world.connect()
        await third.call(MetadataRequest(), 5)
        second.close()

    run(test, ConnectionLimits(max_connections_per_ip=2))


def test_closing_waits_for_answers_in_flight() -> None:
    async def main() -> None:
        world = ServedListener()
        await world.listener.start("127.0.0.1", 0, world.dispatcher, "TEST")

        async def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
            await asyncio.sleep(0.05)
            return MetadataResponse(cluster_id="late")

        world.metadata = metadata
        connection = await world.connect()
        answer = connection.send(MetadataRequest())
        while not world.seen:
            await asyncio.sleep(0.001)
        await world.listener.close(grace_s=5)
        assert (await answer).cluster_id == "late"

    in_loop(main())


def test_closing_does_not_wait_for_fetches_that_wait_for_records() -> None:
    async def test(world: ServedListener) -> None:
        loop = asyncio.get_running_loop()
        forever: asyncio.Future[FetchResponse] = loop.create_future()
        soon: asyncio.Future[MetadataResponse] = loop.create_future()
        world.fetch = lambda c, r: forever
        world.metadata = lambda c, r: soon
        reader = await world.connect()
        waits = reader.send(FetchRequest())
        other = await world.connect()
        answer = other.send(MetadataRequest())
        waits_too = other.send(FetchRequest())
        while len(world.seen) < 3:
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(world.listener.close(grace_s=3600))
        done, _ = await asyncio.wait([closing], timeout=0.05)
        assert not done, "the answer to Metadata is due"
        soon.set_result(MetadataResponse(cluster_id="answered"))
        async with asyncio.timeout(10):
            await closing
            assert (await answer).cluster_id == "answered"
            with pytest.raises(KafkaConnectionError):
                await waits
            with pytest.raises(KafkaConnectionError):
                await waits_too

    run(test, kind=ListenerKind.CONTROLLER)


def test_the_error_for_a_busy_port_names_it_and_the_remedy() -> None:
    async def test(world: ServedListener) -> None:
        with pytest.raises(ListenerError, match=rf"port {world.listener.port} is in use .* listeners"):
            Listener().bind("127.0.0.1", world.listener.port, "OTHER")

    run(test)


def test_listens_on_ipv6_and_on_every_address() -> None:
    async def main() -> None:
        for host, peers in (("[::1]", ["::1"]), ("", ["127.0.0.1", "::1"])):
            world = ServedListener()
            await world.listener.start(host, 0, world.dispatcher, "TEST")
            for peer in peers:
                connection = await Connection.connect(peer, world.listener.port)
                await connection.call(MetadataRequest(), 5)
                assert world.seen[-1].client_host == peer
            await world.listener.close()

    in_loop(main())


def test_the_context_identifies_the_client() -> None:
    async def test(world: ServedListener) -> None:
        connection = await world.connect()
        await connection.call(MetadataRequest(), 5)
        context = world.seen[0]
        assert (context.client_id, context.listener, context.client_host) == ("test", "TEST", "127.0.0.1")
        assert context.software_name == "quorate"
        assert context.principal == "User:ANONYMOUS"

    run(test)


# -- the client's side
