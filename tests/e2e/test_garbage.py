"""Random bytes, oversized frames, half-open and slow connections on both listeners are refused or time out,
while other clients are served."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.support.cluster import Node, running, wait_for

API_VERSIONS_V0 = struct.pack(">ihhih", 2 + 2 + 4 + 2, 18, 0, 7, -1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with running(
        Node(tmp_path_factory.mktemp("garbage") / "node", extra={"connections.max.idle.ms": 4000})
    ) as n:
        yield n


def connect(port: int) -> socket.socket:
    s = socket.create_connection(("127.0.0.1", port), 5)
    s.settimeout(15)
    return s


def served(node: Node) -> None:
    """Both listeners answer ApiVersions within a second."""
    for port in (node.broker_port, node.controller_port):
        with connect(port) as s:
            s.settimeout(1)
            s.sendall(API_VERSIONS_V0)
            assert struct.unpack(">i", s.recv(4, socket.MSG_WAITALL))[0] > 4


def closed_by_peer(s: socket.socket) -> bool:
    """Whether the peer closes the connection. Remaining responses are read and ignored."""
    with contextlib.suppress(ConnectionError):
        while s.recv(65536):
            pass
    return True


def ports(node: Node) -> list[int]:
    return [node.broker_port, node.controller_port]


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0x7FFFFFFF) + b"x" * 100,
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 999, 1, -1),
        struct.pack(">ihhih", 10, 3, 9, 1, -1),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    ],
    ids=[
        "negative length",
        "2 GiB",
        "empty",
        "no header",
        "unknown key",
        "unknown version",
        "cut body",
        "HTTP",
        "TLS hello",
    ],
)
def test_an_invalid_frame_ends_only_its_connection(node: Node, frame: bytes) -> None:
    for port in ports(node):
        with connect(port) as s:
            s.sendall(frame)
            assert closed_by_peer(s)
        served(node)


def test_random_bytes_never_stop_the_node(node: Node) -> None:
    rng = random.Random(11)
    for i in range(150):
        with contextlib.suppress(ConnectionError), connect(ports(node)[i % 2]) as s:
            body = rng.randbytes(rng.randrange(1, 400))
            if i % 3:
                body = struct.pack(">hhih", rng.randrange(93), rng.randrange(14), i, -1) + body
            s.sendall(struct.pack(">i", len(body)) + body)
            s.shutdown(socket.SHUT_WR)
            closed_by_peer(s)
    served(node)
    assert node.proc is not None and node.proc.poll() is None


def test_a_large_frame_before_any_valid_request_takes_no_memory(node: Node) -> None:
    assert node.proc is not None
    rss = psutil.Process(node.proc.pid).memory_info().rss
    held = []
    for i in range(30):
        s = connect(ports(node)[i % 2])
        held.append(s)
        with contextlib.suppress(ConnectionError):
            s.sendall(struct.pack(">ihhih", 90_000_000, 0, 9, 1, -1) + bytes(300_000))
    served(node)
    assert psutil.Process(node.proc.pid).memory_info().rss - rss < 20_000_000
    for s in held:
        s.close()


def test_a_silent_connection_is_closed_when_idle(node: Node) -> None:
    for port in ports(node):
        with connect(port) as s:
            t = time.monotonic()
            assert closed_by_peer(s)
            assert time.monotonic() - t < 10


def test_a_very_slow_frame_times_out(node: Node) -> None:
    with connect(node.broker_port) as s:
        s.sendall(struct.pack(">i", 1000))
        s.settimeout(0.5)

        def ended() -> bool:
            try:
                s.sendall(b"x")
                return s.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_for("the slow connection to be closed", ended, 20)
    served(node)


def test_a_client_that_reads_nothing_is_not_buffered_without_bound(node: Node) -> None:
    assert node.proc is not None
    process = psutil.Process(node.proc.pid)
    rss = process.memory_info().rss
    with connect(node.broker_port) as s:
        s.settimeout(0.2)
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 40_000_000:
                sent += s.send(API_VERSIONS_V0 * 2000)
        served(node)
        assert process.memory_info().rss - rss < 60_000_000
    served(node)


def test_two_hundred_half_open_connections_do_not_stop_the_node(node: Node) -> None:
    held = [connect(ports(node)[i % 2]) for i in range(200)]
    for s in held[::2]:
        s.sendall(b"\x00\x00")
    served(node)
    for s in held:
        s.close()


def test_descriptors_are_released(node: Node) -> None:
    assert node.proc is not None
    process = psutil.Process(node.proc.pid)
    served(node)
    wait_for(
        "closed connections to give their descriptors back",
        lambda: process.num_fds() < 120 + 50,
        15,
    )
