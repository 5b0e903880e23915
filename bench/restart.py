"""A broker with many written partitions is killed and starts again: how soon do its clients read all of them?

    python -m bench.restart                              # 2,000 partitions of 1 MB, both implementations
    python -m bench.restart --partitions 10000 --rounds 1 --one-directory

One node of Apache Kafka and one of Quorate get the same batches, each once. Then they are killed
and started in turn. With `--one-directory` Quorate fills a directory, and both implementations
start on it in turn, because the page cache does not hold the files of two; before each start the
recovery points are removed, so that every log is recovered from its first record, as after the
fill. The time begins at exec. It ends when every partition has a leader, names the end offset that
was acknowledged before the kill, and its last batch was read. The files are in the page cache of
the system for both, as they are after the death of a process. Both run with their default threads.
CPU is that of the node from exec to that moment. Results: bench/results/restart.json, and
restart_10000.json for another number of partitions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.result import heading
from quorate.log.checkpoints import RECOVERY_POINTS
from quorate.net.client import Connection
from quorate.net.errors import NetError
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.list_offsets import ListOffsetsRequest
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.produce import ProduceRequest
from quorate.records.batch import build_batch
from quorate.records.record import Record
from tests.support import java
from tests.support.cluster import Node, free_ports

HERE = Path(__file__).resolve().parent
PARTITIONS = 2_000
PARTITIONS_EACH = 100
RECORD_BYTES = 1_000
BATCH_RECORDS = 16
IN_REQUEST = 50
"""Partitions that one Produce request names."""
LATEST = -1
LONG_S = 900.0
JAVA_HEAP = "-Xmx3g"


class Broker(Node):
    """With room for ten thousand partitions in Java."""

    def _command(self, what: str, *args: object) -> list[str]:
        return [JAVA_HEAP if word.startswith("-Xmx") else word for word in super()._command(what, *args)]


def topics_of(partitions: int) -> list[tuple[str, int]]:
    """(name, number of partitions) of the topics."""
    sizes = [min(PARTITIONS_EACH, partitions - at) for at in range(0, partitions, PARTITIONS_EACH)]
    return [(f"big-{i}", size) for i, size in enumerate(sizes)]


async def connect(node: Node) -> Connection:
    return await Connection.connect("127.0.0.1", node.broker_port, timeout_s=30)


async def fill(node: Node, topics: Sequence[tuple[str, int]], batches: int) -> None:
    """Creates the topics and appends that many batches to every partition."""
    connection = await connect(node)
    wanted = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=size, replication_factor=1)
        for name, size in topics
    ]
    for at in range(0, len(wanted), 10):
        request = CreateTopicsRequest(topics=wanted[at : at + 10], timeout_ms=120_000)
        answer = await connection.call(request, timeout_s=120)
        assert all(topic.error_code == ErrorCode.NONE for topic in answer.topics), answer.topics
    await until_led(connection, topics, time.monotonic() + LONG_S)
    r = random.Random(7)
    now_ms = time.time_ns() // 1_000_000
    records = [
        Record(offset=i, timestamp=now_ms, key=None, value=r.randbytes(RECORD_BYTES), headers=[])
        for i in range(BATCH_RECORDS)
    ]
    batch = bytes(build_batch(records))
    for _ in range(batches):
        await append(connection, topics, batch, acks=-1)
    connection.close()


async def append(
    connection: Connection, topics: Sequence[tuple[str, int]], batch: bytes, *, acks: int
) -> None:
    """Appends a batch to every partition of the topics. The broker leads them all."""
    topic, partition = ProduceRequest.TopicProduceData, ProduceRequest.PartitionProduceData
    for name, size in topics:
        for first in range(0, size, IN_REQUEST):
            ids = list(range(first, min(first + IN_REQUEST, size)))
            while ids:  # Metadata may name a leader before it has opened its log
                data = topic(name=name, partition_data=[partition(index=i, records=batch) for i in ids])
                request = ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[data])
                done = (await connection.call(request, timeout_s=120, version=9)).responses[0]
                errors = {p.index: p.error_code for p in done.partition_responses}
                assert set(errors.values()) <= {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}, errors
                ids = [i for i in ids if errors[i]]


async def until_led(connection: Connection, topics: Sequence[tuple[str, int]], deadline: float) -> None:
    """Waits until Metadata names a leader of every partition."""
    names = [MetadataRequest.MetadataRequestTopic(name=name) for name, _ in topics]
    while time.monotonic() < deadline:
        answer = await connection.call(MetadataRequest(topics=names), timeout_s=60)
        led = sum(p.leader_id >= 0 and p.error_code == 0 for t in answer.topics for p in t.partitions)
        if led == sum(size for _, size in topics):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("not every partition has a leader")


async def until_read(node: Node, topics: Sequence[tuple[str, int]], end: int, deadline: float) -> None:
    """Waits until every partition has its end offset and its last batch is read."""
    while True:
        try:
            connection = await connect(node)
            await until_led(connection, topics, deadline)
            for name, size in topics:
                while not await is_read(connection, name, size, end):
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.02)
            connection.close()
            return
        except NetError:
            assert time.monotonic() < deadline
            assert node.proc is not None
            assert node.proc.poll() is None, node.log_tail()
            await asyncio.sleep(0.01)


async def is_read(connection: Connection, name: str, size: int, end: int) -> bool:
    """Whether the end offsets of a topic's partitions are known and their last batches can be read."""
    topic, partition = ListOffsetsRequest.ListOffsetsTopic, ListOffsetsRequest.ListOffsetsPartition
    asked = [partition(partition_index=i, timestamp=LATEST) for i in range(size)]
    request = ListOffsetsRequest(replica_id=-1, topics=[topic(name=name, partitions=asked)])
    answer = (await connection.call(request, timeout_s=60)).topics[0].partitions
    if any(p.error_code != ErrorCode.NONE for p in answer):
        return False
    assert all(p.offset == end for p in answer), (name, {p.offset for p in answer})
    wanted = [
        FetchRequest.FetchPartition(
            partition=i,
            fetch_offset=end - BATCH_RECORDS,
            partition_max_bytes=4 * RECORD_BYTES * BATCH_RECORDS,
        )
        for i in range(size)
    ]
    fetch = FetchRequest(
        max_wait_ms=100, min_bytes=1, topics=[FetchRequest.FetchTopic(topic=name, partitions=wanted)]
    )
    fetched = (await connection.call(fetch, timeout_s=60, version=12)).responses[0].partitions
    size_bytes = RECORD_BYTES * BATCH_RECORDS
    return all(
        p.error_code == ErrorCode.NONE and p.records is not None and len(p.records) > size_bytes
        for p in fetched
    )


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def filled(folder: Path, node_id: int, impl: str, topics: Sequence[tuple[str, int]], batches: int) -> Node:
    """A node whose partitions have these batches. It was killed, and its files are on the disk."""
    broker, controller = free_ports(2)
    node = Broker(
        folder,
        node_id,
        impl=impl,
        extra={"log.retention.ms": -1},
        release=java.KAFKA_VERSION[:3],
        broker_port=broker,
        controller_port=controller,
    )
    node.format()
    try:
        node.start(timeout_s=LONG_S)
        asyncio.run(fill(node, topics, batches))
    finally:
        node.kill()
    os.sync()
    return node


def restart(node: Node, topics: Sequence[tuple[str, int]], end: int) -> dict[str, float]:
    """Starts a killed node, and kills it when everything was read."""
    began = time.monotonic()
    node.start(wait=False)
    asyncio.run(until_read(node, topics, end, began + LONG_S))
    took = time.monotonic() - began
    assert node.proc is not None
    figures = {"restart_s": round(took, 3), "restart_cpu_s": round(cpu_s(node.proc.pid), 2)}
    node.kill()
    print(json.dumps({"impl": node.impl} | figures), flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--mb", type=float, default=1.0, help="in each partition (1)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one-directory", action="store_true", help="which both start on in turn")
    parser.add_argument("--only", choices=("java", "quorate"))
    parser.add_argument("--dir", type=Path, help="where the nodes live (a temporary directory)")
    parser.add_argument("--no-result", action="store_true", help="print only")
    args = parser.parse_args()
    topics = topics_of(args.partitions)
    batches = max(1, round(args.mb * 1e6 / (RECORD_BYTES * BATCH_RECORDS)))
    sides = [side for side in ("java", "quorate") if args.only in (None, side)]
    place = Path(tempfile.mkdtemp(dir=args.dir))
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    load = os.getloadavg()[0]
    nodes: dict[str, Node] = {}
    try:
        if args.one_directory:
            nodes = dict.fromkeys(sides, filled(place / "both", 1, "quorate", topics, batches))
        else:
            for i, side in enumerate(sides):
                nodes[side] = filled(place / side, i + 1, side, topics, batches)
        for _ in range(args.rounds):
            for side, node in nodes.items():
                node.impl = side
                if args.one_directory:
                    (node.data / RECOVERY_POINTS).unlink(missing_ok=True)
                runs[side].append(restart(node, topics, batches * BATCH_RECORDS))
    finally:
        for node in nodes.values():
            node.kill()
        shutil.rmtree(place)
    figures = {
        side: {
            key: {"median": statistics.median(xs), "min": min(xs), "max": max(xs), "runs": len(xs)}
            for key in runs[side][0]
            for xs in [[run[key] for run in runs[side]]]
        }
        for side in sides
    }
    about = heading("restart", args.rounds)
    result = {
        **about,
        "load_average": {"before": round(load, 1), "after": round(os.getloadavg()[0], 1)},
        "partitions": args.partitions,
        "bytes_each": batches * BATCH_RECORDS * RECORD_BYTES,
        "figures": figures,
    }
    if len(sides) == 2:
        result["ratio_quorate_to_java"] = {
            key: round(figures["quorate"][key]["median"] / figures["java"][key]["median"], 3)
            for key in figures["java"]
        }
        if not args.no_result:
            name = "restart" if args.partitions == PARTITIONS else f"restart_{args.partitions}"
            (HERE / "results" / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["figures"] | {"ratio": result.get("ratio_quorate_to_java")}, indent=1))


if __name__ == "__main__":
    main()
