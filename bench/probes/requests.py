"""Many clients, each with one small request in flight."""

from __future__ import annotations

import select
import socket
import struct
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic

from bench.probes import wire
from bench.probes.cluster import Cluster, admin, create_topics, latencies_ms

PARTITIONS = 16


@dataclass
class Client:
    """A connection, what it sends again and again, and how much of the answer it has."""

    connection: socket.socket
    frame: bytes
    sent_at: float = 0.0
    received: int = 0
    expected: int = 0

    def send(self) -> None:
        self.sent_at, self.received, self.expected = time.perf_counter(), 0, 0
        self.connection.sendall(self.frame)

    def receive(self) -> bool:
        """Whether the answer is complete."""
        data = self.connection.recv(1 << 16)
        if not data:
            raise ConnectionError("closed by the node")
        if not self.expected:
            self.expected = 4 + struct.unpack(">i", data[:4])[0]
        self.received += len(data)
        return self.received >= self.expected


def drive(port: int, frames: list[bytes], connections: int, seconds: float) -> list[float]:
    """The seconds that each answer took."""
    poll = select.epoll()
    clients = {}
    for i in range(connections):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(connection, select.EPOLLIN)
        clients[connection.fileno()] = Client(connection, frames[i % len(frames)])
    took = []
    end = time.perf_counter() + seconds
    for client in clients.values():
        client.send()
    while time.perf_counter() < end:
        for fd, _ in poll.poll(0.1):
            client = clients[fd]
            if client.receive():
                took.append(time.perf_counter() - client.sent_at)
                client.send()
    for client in clients.values():
        client.connection.close()
    return took


def requests(impl: str, connections: int = 50, seconds: float = 4) -> dict[str, object]:
    """Rate, latency and the broker's CPU time for each request, of Produce, Metadata, Fetch and
    OffsetCommit.

    A Fetch asks for the last record of a partition, as a consumer that keeps up does.
    """
    figures: dict[str, object] = {}
    with Cluster([impl], combined=True) as cluster:
        cluster.start()
        node = cluster.nodes[0]
        create_topics(admin(cluster.bootstrap), NewTopic("small", PARTITIONS, 1))
        time.sleep(1)

        def measure(kind: str, frames: list[bytes]) -> None:
            drive(node.broker_port, frames, connections, seconds)  # warms the caches and Java's compiler
            cpu = node.cpu_s()
            took = drive(node.broker_port, frames, connections, seconds)
            cpu = node.cpu_s() - cpu
            figures.update(
                {
                    f"{kind}_per_s": len(took) / seconds,
                    **latencies_ms(kind, took),
                    f"{kind}_cpu_us": 1e6 * cpu / len(took),
                }
            )

        records = wire.batch_of_one(b"x" * 100)
        measure("produce", [wire.produce_frame("small", p, records) for p in range(PARTITIONS)])
        measure("metadata", [wire.metadata_frame("small")])
        ends = _log_ends(cluster.bootstrap)
        figures["appended"] = sum(ends)
        measure("fetch", [wire.fetch_frame("small", p, end - 1) for p, end in enumerate(ends)])
        groups = [f"probe-{i}" for i in range(PARTITIONS)]
        for group in groups:
            wire.wait_for_offset_commit(node.broker_port, group, "small")
        measure("offset_commit", [wire.offset_commit_frame(group, "small", 0) for group in groups])
    return figures


def _log_ends(bootstrap: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "probe"})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition("small", p), timeout=10)[1]
            for p in range(PARTITIONS)
        ]
    finally:
        consumer.close()
