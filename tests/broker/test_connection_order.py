"""A response tells of no older state than the responses before it on its connection. Over a socket, with real
logs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from quorate.net.client import Connection
from quorate.net.dispatch import Dispatcher, ListenerKind
from quorate.net.server import Listener
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.delete_records import DeleteRecordsRequest
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.list_offsets import ListOffsetsRequest

from .pair import LEADER, Pair
from .world import batch_of, produce, topic_id_of, values_in

LATEST = ListOffsetsRequest(
    replica_id=-1,
    topics=[
        ListOffsetsRequest.ListOffsetsTopic(
            name="t",
            partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)],
        )
    ],
)


def fetch(offset: int, max_wait_ms: int) -> FetchRequest:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchRequest.FetchTopic(topic_id=topic_id_of("t"), partitions=[partition])],
    )


def delete_records(offset: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=20_000
    )


class Served:
    """The leader of a pair of brokers behind a socket."""

    def __init__(self, directory: Path) -> None:
        self.pair = Pair(directory)
        self.pair.follow()
        self._listener = Listener()
        self._connections: list[Connection] = []

    async def __aenter__(self) -> Served:
        dispatcher = Dispatcher(ListenerKind.BROKER)
        for key, handler in self.pair.brokers[LEADER].handlers.items():
            dispatcher.register(key, handler)
        await self._listener.start("127.0.0.1", 0, dispatcher, "PLAINTEXT")
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()
        await self._listener.close()

    async def connect(self) -> Connection:
        self._connections.append(await Connection.connect("127.0.0.1", self._listener.port, timeout_s=20))
        return self._connections[-1]

    async def replicate(self) -> None:
        """The follower copies all records and tells its end offset."""
        assert self.pair.fetcher is not None
        for _ in range(2):
            await self.pair.fetcher._fetch_once()


def test_requests_behind_an_append_see_it_committed(tmp_path: Path) -> None:
    served = Served(tmp_path)

    async def test() -> None:
        async with served, asyncio.timeout(30):
            connection = await served.connect()
            appended = connection.send(produce("t", (0, batch_of(b"one", b"two"))))
            latest = connection.send(LATEST)
            read = connection.send(fetch(0, max_wait_ms=0))
            deleted = connection.send(delete_records(1))
            other = await served.connect()
            before = await other.call(LATEST, 20)
            assert before.topics[0].partitions[0].offset == 0  # not replicated yet
            assert not appended.done()
            await served.replicate()
            (answer,) = (await appended).responses[0].partition_responses
            assert answer.error_code == ErrorCode.NONE
            assert (await latest).topics[0].partitions[0].offset == 2
            (data,) = (await read).responses[0].partitions
            assert data.high_watermark == 2
            assert values_in(data.records) == [b"one", b"two"]
            await served.replicate()
            (gone,) = (await deleted).topics[0].partitions
            assert (gone.error_code, gone.low_watermark) == (ErrorCode.NONE, 1)

    served.pair.loop.run_until_complete(test())
    served.pair.close()


def test_the_end_of_a_partition_does_not_fall_after_a_fetch_that_waited(tmp_path: Path) -> None:
    served = Served(tmp_path)

    async def test() -> None:
        async with served, asyncio.timeout(30):
            connection, producer = await served.connect(), await served.connect()
            read = connection.send(fetch(0, max_wait_ms=20_000))
            latest = connection.send(LATEST)
            assert (await producer.call(LATEST, 20)).topics[0].partitions[0].offset == 0
            appended = producer.send(produce("t", (0, batch_of(b"one"))))
            while served.pair.log(LEADER).log_end_offset == 0:
                await asyncio.sleep(0)
            await served.replicate()
            await appended
            (data,) = (await read).responses[0].partitions
            assert values_in(data.records) == [b"one"]
            assert (await latest).topics[0].partitions[0].offset >= data.high_watermark == 1

    served.pair.loop.run_until_complete(test())
    served.pair.close()


def test_pipelined_appends_need_not_wait_for_each_other(tmp_path: Path) -> None:
    served = Served(tmp_path)

    async def test() -> None:
        async with served, asyncio.timeout(30):
            connection = await served.connect()
            appended = [connection.send(produce("t", (0, batch_of(bytes([i]))))) for i in range(5)]
            while served.pair.log(LEADER).log_end_offset < 5:
                await asyncio.sleep(0)
            assert not any(future.done() for future in appended)
            await served.replicate()
            answers = [(await future).responses[0].partition_responses[0] for future in appended]
            assert [answer.base_offset for answer in answers] == [0, 1, 2, 3, 4]

    served.pair.loop.run_until_complete(test())
    served.pair.close()
