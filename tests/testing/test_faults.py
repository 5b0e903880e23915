"""The faults inside a node's process, one by one: real sockets for links, real files in a process of
its own for disks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorate.node.main import new_event_loop
from quorate.testing.link_faults import CuttableTransport, Links
from quorate.testing.messages import DiskFault, Launch, LinkFault, decode, encode

pytestmark = pytest.mark.timeout(60)


class Recorder(asyncio.Protocol):
    """One end of a connection: what came, and whether it ended."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.received = b""
        self.lost = asyncio.Event()
        self.changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    async def receives(self, wanted: bytes) -> None:
        while self.received != wanted:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 10)


class Pair:
    """A connection through `links` to a server of this loop."""

    def __init__(self, links: Links, near: Recorder, far: Recorder, port: int) -> None:
        self.links, self.near, self.far, self.port = links, near, far, port

    def cut(self) -> None:
        self.links.apply(LinkFault([self.port]))

    def heal(self) -> None:
        self.links.apply(LinkFault())

    async def nothing_passes(self) -> None:
        """A second connection of the same loop, to the same server but not cut, carries a round trip
        meanwhile."""
        before = self.near.received, self.far.received
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(b"ping")
            await asyncio.wait_for(reader.readexactly(4), 10)
            writer.close()
        assert (self.near.received, self.far.received) == before


def connected(body: Callable[[Pair], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        ends: list[Recorder] = []

        class End(Recorder):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                ends.append(self)

            def data_received(self, data: bytes) -> None:
                if data == b"ping":
                    self.transport.write(data)
                else:
                    super().data_received(data)

        server = await loop.create_server(End, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        links = Links(loop, [("an-old-name", 9093, port)])
        _, near = await links.create_connection(Recorder, "127.0.0.1", port)
        assert isinstance(near, Recorder) and isinstance(near.transport, CuttableTransport)
        near.transport.write(b"hello ")
        while not ends:
            await asyncio.sleep(0)
        await ends[0].receives(b"hello ")
        await body(Pair(links, near, ends[0], port))
        near.transport.abort()
        ends[0].transport.abort()
        server.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())


def test_what_is_written_on_a_cut_link_arrives_when_it_is_healed() -> None:
    async def body(pair: Pair) -> None:
        pair.cut()
        pair.near.transport.write(b"one ")
        pair.near.transport.writelines([b"two ", memoryview(b"three")])
        pair.far.transport.write(b"answer")
        await pair.nothing_passes()
        assert pair.near.transport.get_write_buffer_size() == 13
        pair.heal()
        await pair.far.receives(b"hello one two three")
        await pair.near.receives(b"answer")

    connected(body)


def test_a_link_is_healed_although_the_opening_of_a_connection_was_cancelled() -> None:
    """uvloop closes such a connection without telling its protocol. Its transport cannot be resumed, and the
    links behind it stayed cut."""

    async def body(pair: Pair) -> None:
        class Cancelled(Recorder):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                opening.cancel()

        opening = asyncio.ensure_future(pair.links.create_connection(Cancelled, "127.0.0.1", pair.port))
        with pytest.raises(asyncio.CancelledError):
            await opening
        pair.cut()
        pair.near.transport.write(b"world")
        pair.heal()
        await pair.far.receives(b"hello world")

    connected(body)


def test_a_connection_closed_on_a_cut_link_ends_for_its_peer_when_it_is_healed() -> None:
    async def body(pair: Pair) -> None:
        pair.cut()
        pair.near.transport.abort()
        assert pair.near.transport.is_closing()
        await asyncio.wait_for(pair.near.lost.wait(), 10)
        await pair.nothing_passes()
        assert not pair.far.lost.is_set()
        pair.heal()
        await asyncio.wait_for(pair.far.lost.wait(), 10)

    connected(body)


def test_the_peers_end_is_not_heard_of_while_the_link_is_cut() -> None:
    async def body(pair: Pair) -> None:
        pair.cut()
        pair.far.transport.close()
        await pair.nothing_passes()
        assert not pair.near.lost.is_set()
        pair.heal()
        await asyncio.wait_for(pair.near.lost.wait(), 10)

    connected(body)


def test_a_connection_over_a_cut_link_is_established_when_it_is_healed() -> None:
    async def body(pair: Pair) -> None:
        pair.cut()
        opening = asyncio.ensure_future(pair.links.create_connection(Recorder, "127.0.0.1", pair.port))
        await pair.nothing_passes()
        assert not opening.done()
        pair.heal()
        transport, _ = await asyncio.wait_for(opening, 10)
        transport.close()

    connected(body)


def test_a_reader_that_paused_stays_paused_when_the_link_is_healed() -> None:
    async def body(pair: Pair) -> None:
        pair.near.transport.pause_reading()
        pair.cut()
        pair.heal()
        pair.far.transport.write(b"later")
        await pair.nothing_passes()
        pair.near.transport.resume_reading()
        await pair.near.receives(b"later")

    connected(body)


def test_an_address_of_an_older_metadata_log_leads_to_the_port_in_use_now() -> None:
    async def body(pair: Pair) -> None:
        pair.links._redirects["127.0.0.1", 1] = pair.port
        transport, _ = await pair.links.create_connection(Recorder, "127.0.0.1", 1)
        assert transport.get_extra_info("peername")[1] == pair.port
        transport.close()

    connected(body)


DISK = """
import errno, os, sys, time
from quorate.log.files import write_all
from quorate.testing.disk_faults import FaultyDisk
from quorate.testing.messages import DiskFault

os.chdir(sys.argv[1])
disk = FaultyDisk()
fd = os.open("file", os.O_RDWR | os.O_CREAT)

def fails(what, error=errno.ENOSPC):
    try:
        what()
    except OSError as e:
        return e.errno == error
    return False

disk.apply(DiskFault(free_bytes=10))
assert write_all(fd, [b"123", b"456"], 0) == 6
assert os.pwritev(fd, [b"78", b"90", b"ab"], 6) == 4, "a part, as a file system writes it"
assert fails(lambda: os.pwrite(fd, b"x", 10))
assert fails(lambda: os.pwritev(fd, [b"x"], 10))
assert fails(lambda: os.write(fd, b"x"))
assert fails(lambda: os.mkdir("folder"))
assert fails(lambda: os.makedirs("a/b"))
assert os.pread(fd, 100, 0) == b"1234567890", "what is there stays and can be read"
reading, writing = os.pipe()
assert os.write(writing, b"a pipe") == 6
disk.apply(DiskFault())
assert os.pwrite(fd, b"room again", 10) == 10
os.mkdir("folder")

def took(what):
    started = time.monotonic()
    what()
    return time.monotonic() - started

disk.apply(DiskFault(fsync_ms=200))
assert took(lambda: os.fsync(fd)) >= 0.2
assert took(lambda: os.fdatasync(fd)) >= 0.2
disk.apply(DiskFault(read_ms=200))
if hasattr(os, "RWF_NOWAIT"):
    try:
        os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
        raise AssertionError("it is not in the page cache")
    except BlockingIOError:
        pass
assert took(lambda: os.pread(fd, 100, 0)) >= 0.2
assert took(lambda: [os.pread(fd, 1, 0) for _ in range(10)]) < 1, "what the page cache holds is not delayed"
os.pwrite(fd, bytes(200_000), 200_000)
assert took(lambda: [os.pread(fd, 1, 300_000) for _ in range(10)]) < 1, "what was just written is in the page cache"
disk.apply(DiskFault(read_ms=200))
assert took(lambda: os.pread(fd, 1, 300_000)) >= 0.2, "it is emptied each time"

disk.apply(DiskFault(failing=True))
for access in (
    lambda: os.fsync(fd),
    lambda: os.fdatasync(fd),
    lambda: os.pread(fd, 1, 0),
    lambda: os.preadv(fd, [bytearray(1)], 0),
    lambda: os.write(fd, b"x"),
    lambda: os.pwrite(fd, b"x", 0),
    lambda: os.pwritev(fd, [b"x"], 0),
    lambda: os.mkdir("another folder"),
):
    assert fails(access, errno.EIO)
assert os.write(writing, b"a pipe") == 6

disk.apply(DiskFault(failing=True, failing_under=os.path.join(os.getcwd(), "folder") + "/"))
other = os.open("folder/file", os.O_RDWR | os.O_CREAT)
assert fails(lambda: os.pwrite(other, b"x", 0), errno.EIO)
assert fails(lambda: os.fsync(other), errno.EIO)
assert fails(lambda: os.mkdir("folder/below"), errno.EIO)
assert os.pwrite(fd, b"x", 0) == 1, "outside of the directory all is well"
os.fsync(fd)
disk.apply(DiskFault())
assert os.pread(fd, 4, 10) == b"room", "nothing is lost"
print("done")
"""


def test_disks_run_full_and_slow_and_fail(tmp_path: object) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DISK, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.endswith("done\n"), done.stderr


@pytest.mark.parametrize(
    "message",
    [
        Launch("server.properties", [("host", 9093, 40001)], DiskFault(1.5, 2, 0), LinkFault([1, 2])),
        DiskFault(fsync_ms=3),
        DiskFault(failing=True, failing_under="/disk/"),
        LinkFault([7]),
    ],
)
def test_messages_come_back_as_they_were(message: Launch | DiskFault | LinkFault) -> None:
    line = encode(message)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert decode(line) == message
