"""Controllers start on a large snapshot: when the first one is active, and how soon a standby replaces it.

    python -m bench.snapshot_start                         # a million partitions
    python -m bench.snapshot_start --partitions 100000 --kills 3

One controller starts on the snapshot. The time begins at exec and ends with the answer to the first
creation of a topic; 200 creations of one partition follow, one at a time. Then three controllers
start on the same snapshot. The active one is killed with SIGKILL, and the time runs until a standby
has created a topic; this is repeated with three controllers whose snapshot has 20 partitions.
Result: bench/results/snapshot_start.json.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from bench.result import heading
from bench.snapshot import LOADED, Controller, data_batches, log_of, put_snapshot
from quorate.net.client import Connection
from quorate.net.errors import NetError
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.describe_quorum import DescribeQuorumRequest
from quorate.protocol.metadata_partition import METADATA_TOPIC
from tests.support.cluster import free_ports, wait_for

HERE = Path(__file__).resolve().parent
LONG_S = 300.0
POLL_S = 0.002
CREATIONS = 200
FEW = 20
"""The partitions of the small snapshot."""
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": 1 << 40,
    "metadata.log.max.snapshot.interval.ms": 0,
    "broker.session.timeout.ms": 600_000,  # the brokers of the snapshot do not run
}


@contextlib.contextmanager
def controllers(base: Path, count: int, batches: list[bytes]) -> Iterator[list[Controller]]:
    """Formatted controllers with the snapshot, which are killed at the end."""
    ports = dict(zip(range(1, count + 1), free_ports(count), strict=True))
    nodes = [
        Controller(
            base / f"c{i}", i, "controller", "quorate", voters=ports, controller_port=port, extra=SETTINGS
        )
        for i, port in ports.items()
    ]
    try:
        for node in nodes:
            node.format(
                "--initial-controllers", ",".join(f"{i}@127.0.0.1:{port}" for i, port in ports.items())
            )
            put_snapshot(node, batches)
        yield nodes
    finally:
        for node in nodes:
            node.kill()


async def created(node: Controller, name: str, timeout_s: float = 10.0) -> bool:
    """Whether this controller has created a topic of one partition."""
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    try:
        connection = await Connection.connect("127.0.0.1", node.controller_port, timeout_s=timeout_s)
        try:
            answer = await connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), timeout_s)
        finally:
            connection.close()
    except NetError:
        return False
    return answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


async def first_to_create(nodes: Sequence[Controller], name: str) -> Controller:
    """Asks the controllers in turn until one has created the topic."""
    deadline = time.monotonic() + LONG_S
    while time.monotonic() < deadline:
        for node in nodes:
            if await created(node, name):
                return node
        await asyncio.sleep(POLL_S)
    raise TimeoutError("no controller has created a topic")


async def creations_ms(node: Controller) -> list[float]:
    """The times of creations, one after the other."""
    connection = await Connection.connect("127.0.0.1", node.controller_port)
    took = []
    for i in range(CREATIONS):
        topic = CreateTopicsRequest.CreatableTopic(name=f"one-{i}", num_partitions=1, replication_factor=1)
        began = time.perf_counter()
        answer = await connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        took.append((time.perf_counter() - began) * 1000)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
    connection.close()
    return took


def start(base: Path, batches: list[bytes]) -> dict[str, float]:
    """One controller: until it is active, its memory, and its creations."""
    with controllers(base, 1, batches) as nodes:
        began = time.perf_counter()
        nodes[0].start(wait=False)
        asyncio.run(first_to_create(nodes, "first"))
        active_s = time.perf_counter() - began
        took = sorted(asyncio.run(creations_ms(nodes[0])))
        assert nodes[0].proc is not None
        process = psutil.Process(nodes[0].proc.pid)
        return {
            "active_s": round(active_s, 2),
            "create_p50_ms": round(statistics.median(took), 2),
            "create_p99_ms": round(took[int(len(took) * 0.99)], 2),
            "rss_mb": round(process.memory_info().rss / 1e6, 1),
            "cpu_s": round(sum(process.cpu_times()[:2]), 2),
        }


def replaced_s(base: Path, batches: list[bytes], kills: int, tells: bool) -> list[float]:
    """The seconds from each SIGKILL of the active controller until another one has created a topic. `tells`
    is whether the snapshot is so large that a controller tells when it has loaded it."""
    took = []
    with controllers(base, 3, batches) as nodes:
        for node in nodes:
            node.start(wait=False)
        for node in nodes if tells else []:
            await_loads(node, 1)
        starts = dict.fromkeys([node.node_id for node in nodes], 1)
        for i in range(kills):
            active = asyncio.run(first_to_create(nodes, f"before-{i}"))
            wait_for("the followers", lambda a=active: asyncio.run(all_follow(a)), LONG_S, 0.05)
            began = time.perf_counter()
            active.kill()
            asyncio.run(first_to_create([node for node in nodes if node is not active], f"after-{i}"))
            took.append(time.perf_counter() - began)
            starts[active.node_id] += 1
            active.start(wait=False)
            if tells:
                await_loads(active, starts[active.node_id])
    return took


async def all_follow(active: Controller) -> bool:
    """Whether every voter has the complete log of the active controller."""
    part, topic = DescribeQuorumRequest.PartitionData, DescribeQuorumRequest.TopicData
    request = DescribeQuorumRequest(topics=[topic(topic_name=METADATA_TOPIC, partitions=[part()])])
    try:
        connection = await Connection.connect("127.0.0.1", active.controller_port)
        answer = (await connection.call(request)).topics[0].partitions[0]
        connection.close()
    except NetError:
        return False
    end = answer.high_watermark
    return answer.error_code == ErrorCode.NONE and all(v.log_end_offset >= end for v in answer.current_voters)


def await_loads(node: Controller, count: int) -> None:
    """Waits until a controller has told in its log that often that it has loaded a snapshot."""
    wait_for("the snapshot to be loaded", lambda: len(LOADED.findall(log_of(node))) >= count, LONG_S, 0.05)


def figure(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
        "runs": len(values),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--no-result", action="store_true", help="print only")
    args = parser.parse_args()
    batches = list(data_batches(args.partitions, fenced=False))
    few = list(data_batches(FEW, fenced=False))
    about = heading("snapshot_start", 1)
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as place:
        figures = {key: figure([value]) for key, value in start(Path(place) / "one", batches).items()}
        print(json.dumps(figures), flush=True)
        figures["replaced_s"] = figure(replaced_s(Path(place) / "three", batches, args.kills, True))
        figures["replaced_few_s"] = figure(replaced_s(Path(place) / "few", few, args.kills, False))
    print(json.dumps(figures, indent=1))
    result = {**about, "load_average": load, "partitions": args.partitions, "figures": {"quorate": figures}}
    if not args.no_result:
        (HERE / "results" / "snapshot_start.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
