"""SIGTERM of a broker with many replicas: what the stop costs that broker, and the controller.

    python -m bench.broker_stop                          # 4,000 partitions with a record each
    python -m bench.broker_stop --partitions 100000 --written 20000
    python -m bench.broker_stop --restart                # the logs were not written since the start

Node 1 is the controller. Node 2 is a broker, and leads all partitions; nodes 3 and 4 are the
brokers that have one of two other replicas each. Node 2 must first hand its leaderships over
(controlled shutdown) and then close its logs. `--settle` waits before the stop, for example until
the epoch checkpoints were written in advance. CPU times come from /proc. At the end every partition
is led by another broker, and the stop has left the mark of a clean shutdown. Result:
bench/results/broker_stop.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import tempfile
import time
from pathlib import Path

from bench.restart import LONG_S, append, connect, cpu_s
from bench.result import heading
from quorate.log.directories import clean_shutdown
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.records.batch import build_batch
from quorate.records.record import Record
from tests.support.cluster import Node

HERE = Path(__file__).resolve().parent
PARTITIONS_EACH = 5_000
STOPPED, OTHERS = 2, (3, 4)
Topics = list[tuple[str, int]]


def topics_of(partitions: int) -> Topics:
    """The topics with their numbers of partitions."""
    return [
        (f"many-{first}", min(PARTITIONS_EACH, partitions - first))
        for first in range(0, partitions, PARTITIONS_EACH)
    ]


async def create(node: Node, topics: Topics) -> None:
    """Creates the topics, led by the broker that will be stopped."""
    topic, assignment = CreateTopicsRequest.CreatableTopic, CreateTopicsRequest.CreatableReplicaAssignment
    connection = await connect(node)
    for name, count in topics:
        assignments = [
            assignment(partition_index=n, broker_ids=[STOPPED, OTHERS[n % len(OTHERS)]]) for n in range(count)
        ]
        wanted = topic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
        created = await connection.call(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), 60)
        assert created.topics[0].error_code == 0, created.topics[0].error_message
    connection.close()


async def write(node: Node, topics: Topics) -> None:
    """Writes one record to each partition."""
    now_ms = time.time_ns() // 1_000_000
    record = Record(offset=0, timestamp=now_ms, key=None, value=b"x" * 100, headers=[])
    connection = await connect(node)
    await append(connection, topics, bytes(build_batch([record])), acks=1)
    connection.close()


async def until(node: Node, topics: Topics, *, leads: bool) -> float:
    """Waits until the broker that is stopped leads every partition, with a whole ISR, or until it leads none
    and is in no ISR. Returns the elapsed seconds."""
    began = time.monotonic()
    connection = await connect(node)
    while True:
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name, _ in topics]
        answer = await connection.call(MetadataRequest(topics=wanted), timeout_s=60)
        right = sum(
            (len(p.isr_nodes) == 2 and p.leader_id == STOPPED)
            if leads
            else (STOPPED not in p.isr_nodes and p.leader_id in OTHERS)
            for topic in answer.topics
            for p in topic.partitions
        )
        if right == sum(count for _, count in topics):
            connection.close()
            return time.monotonic() - began
        assert time.monotonic() - began < LONG_S, f"{right} partitions only"
        await asyncio.sleep(0.1)


def stop(broker: Node, controller: Node) -> dict[str, float]:
    """Stops the broker, and prints and returns the times."""
    assert broker.proc is not None
    assert controller.proc is not None
    before, controller_before = cpu_s(broker.proc.pid), cpu_s(controller.proc.pid)
    last, began = before, time.monotonic()
    broker.proc.send_signal(signal.SIGTERM)
    while broker.proc.poll() is None:
        try:
            last = cpu_s(broker.proc.pid)
        except (OSError, IndexError):
            break
        time.sleep(0.005)
    status = broker.proc.wait()
    figures = {
        "stop_s": round(time.monotonic() - began, 2),
        "stop_cpu_s": round(last - before, 2),
        "controller_cpu_s": round(cpu_s(controller.proc.pid) - controller_before, 2),
    }
    print(json.dumps(figures), flush=True)
    for line in broker.log_tail(400).splitlines():
        if re.search(r"SIGTERM|controlled shutdown|Shut down in", line):
            print(line)
    assert status == 0, status
    assert clean_shutdown.read(str(broker.data)) is not None, "the shutdown was not clean"
    return figures


def rss_mb(node: Node) -> float:
    assert node.proc is not None
    pages = int(Path(f"/proc/{node.proc.pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--partitions", type=int, default=4_000)
    parser.add_argument("--written", type=int, help="so many of them get a record (all)")
    parser.add_argument("--settle", type=float, default=3.0)
    parser.add_argument("--restart", action="store_true")
    parser.add_argument("--result", action="store_true", help="write bench/results/broker_stop.json")
    args = parser.parse_args()
    topics = topics_of(args.partitions)
    written = topics_of(args.partitions if args.written is None else args.written)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as base:
        controller = Node(Path(base) / "1", 1, "controller")
        brokers = [
            Node(Path(base) / str(n), n, "broker", voters=controller.voters) for n in (STOPPED, *OTHERS)
        ]
        stopped, other = brokers[:2]
        try:
            for node in (controller, *brokers):
                node.format()
                node.start()
            asyncio.run(create(other, topics))
            asyncio.run(until(other, topics, leads=True))
            began = time.monotonic()
            asyncio.run(write(stopped, written))
            print(f"written in {time.monotonic() - began:.1f} s", flush=True)
            if args.restart:
                stop(stopped, controller)
                stopped.start(timeout_s=LONG_S)
            time.sleep(args.settle)
            memory = {"rss_mb": rss_mb(stopped), "controller_rss_mb": rss_mb(controller)}
            figures = stop(stopped, controller) | memory
            asyncio.run(until(other, topics, leads=False))
            result = {
                **heading("broker_stop", 1),
                "load_average": {"before": round(load, 1), "after": round(os.getloadavg()[0], 1)},
                "partitions": args.partitions,
                "written": sum(count for _, count in written),
                "figures": {
                    "quorate": {k: {"median": v, "min": v, "max": v, "runs": 1} for k, v in figures.items()}
                },
            }
            print(json.dumps(result["figures"]))
            if args.result:
                (HERE / "results" / "broker_stop.json").write_text(json.dumps(result, indent=1) + "\n")
        finally:
            for node in (controller, *brokers):
                node.kill()


if __name__ == "__main__":
    main()
