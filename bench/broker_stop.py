"""SIGTERM of a broker with many replicas: what the stop costs that broker, and the other node of the cluster.

    python -m bench.broker_stop                          # 4,000 partitions with a record each
    python -m bench.broker_stop --partitions 20000 --settle 90
    python -m bench.broker_stop --restart                # the logs were not written since the start

Two nodes. Node 2 is a broker and leads all partitions; node 1 is the controller and the other replica. The
broker must first hand its leaderships over (controlled shutdown) and then close its logs. `--settle` waits before
the stop, for example until the epoch checkpoints were written in advance. CPU times come from /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from quorate.net.client import NodeChannel
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from tests.support.cluster import Node

PARTITIONS_EACH = 5_000
REPLICAS = [2, 1]


def cpu_s(pid: int) -> float:
    """The CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def topics(partitions: int) -> list[tuple[str, int]]:
    """The topics with their numbers of partitions."""
    return [
        (f"many-{first}", min(PARTITIONS_EACH, partitions - first))
        for first in range(0, partitions, PARTITIONS_EACH)
    ]


async def create(port: int, partitions: int) -> None:
    """Creates the topics, led by node 2."""
    topic, assignment = CreateTopicsRequest.CreatableTopic, CreateTopicsRequest.CreatableReplicaAssignment
    channel = NodeChannel("127.0.0.1", port, client_id="bench")
    for name, count in topics(partitions):
        assignments = [assignment(partition_index=n, broker_ids=REPLICAS) for n in range(count)]
        wanted = topic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
        created = await channel.call(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), 60)
        assert created.topics[0].error_code == 0, created.topics[0].error_message
    channel.close()


def fill(servers: str, partitions: int) -> None:
    """Writes one record to each partition."""
    producer = Producer({"bootstrap.servers": servers, "acks": 1, "message.timeout.ms": 300_000})
    for name, count in topics(partitions):
        for partition in range(count):
            producer.produce(name, b"x" * 100, partition=partition)
            producer.poll(0)
        assert producer.flush(300) == 0


def stop(broker: Node, other: Node) -> None:
    """Stops the broker and prints the times."""
    assert broker.proc is not None and other.proc is not None
    before, other_before = cpu_s(broker.proc.pid), cpu_s(other.proc.pid)
    last, began = before, time.monotonic()
    broker.proc.send_signal(signal.SIGTERM)
    while broker.proc.poll() is None:
        try:
            last = cpu_s(broker.proc.pid)
        except (OSError, IndexError):
            break
        time.sleep(0.005)
    broker.proc.wait()
    print(
        f"SIGTERM to end: {time.monotonic() - began:.2f} s; CPU of the broker {last - before:.2f} s, "
        f"of the other node {cpu_s(other.proc.pid) - other_before:.2f} s"
    )
    for line in broker.log_tail(400).splitlines():
        if re.search(r"SIGTERM|controlled shutdown|Shut down in", line):
            print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--partitions", type=int, default=4_000)
    parser.add_argument("--settle", type=float, default=3.0)
    parser.add_argument("--restart", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        one = Node(Path(base) / "one", 1, "broker,controller")
        two = Node(Path(base) / "two", 2, "broker", voters=one.voters)
        try:
            for node in (one, two):
                node.format()
                node.start()
            asyncio.run(create(one.broker_port, args.partitions))
            fill(two.bootstrap, args.partitions)
            if args.restart:
                stop(two, one)
                two.start()
            time.sleep(args.settle)
            stop(two, one)
        finally:
            one.kill()
            two.kill()


if __name__ == "__main__":
    main()
