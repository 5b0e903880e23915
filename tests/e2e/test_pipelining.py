"""Clients that pipeline requests and read no response, on a node with many topics: other clients are served,
and memory stays bounded."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from quorate.protocol.api import encode_request
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.metadata import MetadataRequest
from tests.support.cluster import Node, running, wait_for

TOPICS = 3000
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    from confluent_kafka.admin import NewTopic

    with running(Node(tmp_path_factory.mktemp("pipelining") / "node")) as n:
        admin = n.admin()
        for begin in range(0, TOPICS, 1000):
            new = [NewTopic(f"topic-{i:05d}", 1, 1) for i in range(begin, begin + 1000)]
            for created in admin.create_topics(new, request_timeout=60).values():
                created.result(60)
        yield n


def frame(correlation_id: int, request: Any, version: int) -> bytes:
    data = encode_request(correlation_id, "test", request, version)
    return struct.pack(">i", len(data)) + data


def fetch(wait_ms: int) -> bytes:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic="topic-00000", partitions=[partition])
    return frame(0, FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[topic]), 12)


def connect(node: Node) -> socket.socket:
    s = socket.create_connection(("127.0.0.1", node.broker_port), 5)
    s.settimeout(30)
    return s


def served_s(node: Node) -> float:
    """The time until a new client gets its first response."""
    begin = time.monotonic()
    with connect(node) as s:
        s.sendall(API_VERSIONS)
        with s.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            assert len(stream.read(size)) == size
    return time.monotonic() - begin


def answers(s: socket.socket) -> list[int]:
    """The correlation ids of the responses until the node closes the connection."""
    found = []
    with s.makefile("rb") as stream:
        while head := stream.read(4):
            (size,) = struct.unpack(">i", head)
            found.append(struct.unpack_from(">i", stream.read(size))[0])
    return found


def test_clients_that_pipeline_neither_starve_others_nor_use_much_memory(node: Node) -> None:
    """99 requests for all topics follow a Fetch that waits. Their responses would take 22 MB for each
    connection."""
    assert node.proc is not None
    process = psutil.Process(node.proc.pid)
    served_s(node)
    rss = process.memory_info().rss
    with contextlib.ExitStack() as held:
        for i in range(5):
            s = held.enter_context(connect(node))
            s.sendall(
                fetch(60_000) + b"".join(frame(n, MetadataRequest(topics=None), 8 + i) for n in range(1, 100))
            )
        waits = [served_s(node) for _ in range(50)]
        assert max(waits) < 1.5, waits
        assert process.memory_info().rss - rss < 40 << 20


def test_pipelining_clients_get_all_responses_when_they_read(node: Node) -> None:
    with connect(node) as s:
        requests = [fetch(1000), *(frame(n, MetadataRequest(topics=None), 12) for n in range(1, 100))]
        s.sendall(b"".join(requests))
        s.shutdown(socket.SHUT_WR)
        assert answers(s) == list(range(100))


def test_a_request_of_millions_of_topics_does_not_starve_others(node: Node) -> None:
    """The smallest elements that a request can have."""
    count = 1_000_000  # the most elements that an array may have
    body = struct.pack(">hhihi", 3, 5, 1, -1, count) + b"\0\2ab" * count + b"\0"
    with connect(node) as s:
        s.sendall(API_VERSIONS)
        s.sendall(struct.pack(">i", len(body)) + body)
        s.shutdown(socket.SHUT_WR)
        waits = [served_s(node) for _ in range(50)]
        assert max(waits) < 1.5, waits
        assert answers(s) == [7, 1]


def test_half_closed_connections_are_closed(tmp_path: Any) -> None:
    with running(Node(tmp_path / "node", extra={"connections.max.idle.ms": 2000})) as node:
        assert node.proc is not None
        process = psutil.Process(node.proc.pid)

        def open_connections() -> int:
            ours = [c for c in process.net_connections("tcp") if c.laddr and c.laddr.port == node.broker_port]
            return sum(1 for c in ours if c.status in (psutil.CONN_ESTABLISHED, psutil.CONN_CLOSE_WAIT))

        admin = node.admin()
        from confluent_kafka.admin import NewTopic

        admin.create_topics([NewTopic("topic-00000", 1, 1)])["topic-00000"].result(30)
        del admin
        with contextlib.ExitStack() as held:
            for _ in range(20):
                s = held.enter_context(connect(node))
                s.sendall(fetch(2_000_000_000))
                s.shutdown(socket.SHUT_WR)
            wait_for("the half-closed connections", lambda: open_connections() >= 20)
            wait_for("their end", lambda: open_connections() == 0, 20)
        served_s(node)
