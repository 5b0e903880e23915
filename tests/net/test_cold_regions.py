"""File regions that are not in the page cache: they are read ahead in a thread, never by the event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.net.client import Connection, KafkaConnectionError
from quorate.net.connections import output
from quorate.net.dispatch import Dispatcher, ListenerKind
from quorate.net.limits import ConnectionLimits
from quorate.net.server import Listener
from quorate.protocol import page_cache
from quorate.protocol.api import ApiKey
from quorate.protocol.file_region import FileRegion, HasFileno
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from tests.net.served import LOOPS, ServedListener, run, served_for, use_loop

SIZE = 3_500_000
IDLE_S = 2.0


class ColdFile:
    """Simulates the kernel's page cache: each MiB of a file becomes readable when it is read ahead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, evicts: bool = False) -> None:
        self.warm: set[int] = set()
        self.read_by: list[int] = []
        self.evicts = evicts
        self.error: OSError | None = None
        monkeypatch.setattr(output, "resident_bytes", self._resident)
        monkeypatch.setattr(output, "read_resident", lambda *_: None)
        monkeypatch.setattr(output, "read_ahead", self._read_ahead)

    def _resident(self, fd: int, position: int, length: int) -> int:
        done = 0
        while done < length and (position + done) >> 20 in self.warm:
            done = min(length, (((position + done) >> 20) + 1 << 20) - position)
        return done

    def _read_ahead(self, owner: HasFileno, position: int, length: int) -> None:
        self.read_by.append(threading.get_ident())
        if self.error is not None:
            raise self.error
        if not self.evicts:
            self.warm.add(position >> 20)


def serve(path: Path, test: Callable[[Connection, bytes], asyncio.Future[None]]) -> None:
    content = os.urandom(SIZE)
    path.write_bytes(content)

    async def main() -> None:
        with path.open("rb") as file:
            partitions = [
                FetchResponse.PartitionData(partition_index=0, records=FileRegion(file, 10, SIZE - 10)),
                FetchResponse.PartitionData(partition_index=1, records=b"behind"),
            ]
            answer = FetchResponse(
                responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=partitions)]
            )
            dispatcher = Dispatcher(ListenerKind.BROKER)
            dispatcher.register(ApiKey.FETCH, lambda context, request: answer)
            listener = Listener()
            await listener.start("127.0.0.1", 0, dispatcher, "PLAINTEXT")
            connection = await Connection.connect("127.0.0.1", listener.port)
            try:
                await test(connection, content)
            finally:
                connection.close()
                await listener.close()

    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("evicts", [False, True], ids=["stays in the page cache", "is evicted at once"])
def test_a_cold_region_is_read_ahead_in_a_thread_and_sent_completely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evicts: bool
) -> None:
    cold = ColdFile(monkeypatch, evicts=evicts)

    async def test(connection: Connection, content: bytes) -> None:
        answers = await asyncio.gather(*[connection.call(FetchRequest(), 10, 12) for _ in range(3)])
        for answer in answers:
            assert [bytes(p.records) for p in answer.responses[0].partitions] == [content[10:], b"behind"]
        assert len(cold.read_by) >= 4
        assert threading.get_ident() not in cold.read_by

    serve(tmp_path / "segment", test)


def test_a_disk_that_fails_while_a_region_is_read_ahead_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold = ColdFile(monkeypatch)
    cold.error = OSError(errno.EIO, "Input/output error")

    async def test(connection: Connection, content: bytes) -> None:
        with pytest.raises(KafkaConnectionError):
            await connection.call(FetchRequest(), 10, 12)

    serve(tmp_path / "segment", test)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_of_long_standing_may_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    """Its last response that did not go out at once may be older than a connection may be idle."""
    use_loop(loop)
    began, ends = threading.Event(), threading.Event()

    def read_ahead(*_: object) -> None:
        began.set()
        ends.wait(20)

    path = tmp_path / "segment"
    path.write_bytes(b"r" * 1000)
    monkeypatch.setattr(output, "resident_bytes", lambda *_: 0)
    monkeypatch.setattr(output, "read_resident", lambda *_: None)
    monkeypatch.setattr(output, "read_ahead", read_ahead)

    async def test(world: ServedListener) -> None:
        with path.open("rb") as file:
            partition = FetchResponse.PartitionData(records=FileRegion(file, 0, 1000))
            topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
            world.fetch = lambda context, request: FetchResponse(responses=[topic])
            connection = await world.connect()
            (served,) = world.listener.connections
            await served_for(connection, IDLE_S)
            waiting = connection.send(FetchRequest(), 12)
            while not began.is_set():
                await asyncio.sleep(0.001)
            served.check(asyncio.get_running_loop().time())
            assert not served.closed
            ends.set()
            answer = await waiting
            assert bytes(answer.responses[0].partitions[0].records) == b"r" * 1000
            connection.close()

    try:
        run(test, ConnectionLimits(max_idle_s=IDLE_S))
    finally:
        ends.set()


def test_probes_detect_what_the_page_cache_holds(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        assert page_cache.resident_bytes(file.fileno(), 0, 1 << 20) == 1 << 20
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if page_cache.resident_bytes(file.fileno(), 0, 1 << 20):
            pytest.skip("this file system does not tell what it has in the page cache")
        page_cache.read_ahead(file, 0, 1 << 20)
        assert page_cache.resident_bytes(file.fileno(), 0, 1 << 20) == 1 << 20


@pytest.mark.parametrize(("size", "copied"), [(1, True), (16_000, True), (16_385, False)])
def test_only_a_small_region_is_copied_into_the_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, copied: bool
) -> None:
    use_loop("uvloop")
    path = tmp_path / "segment"
    path.write_bytes(b"head" + b"r" * size)
    with path.open("rb") as probed:
        if page_cache.read_resident(probed, 0, 1) is None:
            pytest.skip("the file system cannot tell what is in the page cache")
    sent: list[int] = []
    sendfile = os.sendfile
    monkeypatch.setattr(os, "sendfile", lambda *args: sent.append(args[3]) or sendfile(*args))  # type: ignore[func-returns-value]

    async def test(world: ServedListener) -> None:
        with path.open("rb") as file:
            partition = FetchResponse.PartitionData(records=FileRegion(file, 4, size))
            topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
            world.fetch = lambda context, request: FetchResponse(responses=[topic])
            connection = await world.connect()
            answer = await connection.send(FetchRequest(), 12)
            assert bytes(answer.responses[0].partitions[0].records) == b"r" * size
            connection.close()

    run(test)
    assert bool(sent) is not copied
