"""A late controller fetches a large snapshot: how fast, and how quick the leader and it stay to answer
meanwhile.

    python -m bench.snapshot                        # a million partitions: 125 MB
    python -m bench.snapshot --java --rounds 3      # and Apache Kafka's controllers on the same snapshot

Two controllers start on a snapshot of that many partitions, a third with an empty disk. Both
implementations are watched alike from outside: the fetch begins when the `.part` file appears and ends
when the snapshot has its final name, which it gets after its fsync. Meanwhile the leader is asked for
its API versions every 5 ms. Of Quorate, loading and the answers of the new controller while it loads
are told too. Result: bench/results/snapshot_fetch.json.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import platform
import random
import re
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from quorate.metadata.framing import encode_record
from quorate.metadata.records import FeatureLevelRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from quorate.net.client import Connection
from quorate.net.errors import NetError
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.describe_quorum import DescribeQuorumRequest
from quorate.protocol.metadata_partition import METADATA_TOPIC
from quorate.protocol.schema import Data
from quorate.raft.storage.snapshots.files import (
    SnapshotWriter,
    footer_batch,
    header_batch,
    place,
    read_head,
    snapshot_name,
)
from quorate.raft.types import OffsetEpoch
from quorate.records.batch import build_metadata_batch
from tests.support.cluster import Node, free_ports, wait_for

HERE = Path(__file__).resolve().parent
SNAPSHOT = OffsetEpoch(5_000_000, 1)
BROKERS = 6
PARTITIONS_EACH = 20
BATCH_RECORDS = 1024
ASK_EVERY_S = 0.005
JAVA_HEAP = "-Xmx3g"
LONG_S = 900.0  # a busy machine may need so long to load
AUTOGROUP = Path(
    "/proc/self/autogroup"
)  # priorities count within a session; this is that of the whole session
API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def records(partitions: int, fenced: bool) -> Iterator[tuple[Data, int]]:
    """A cluster of six brokers, every partition on three of them; always the same."""
    r = random.Random(42)
    directories = [r.randbytes(16) for _ in range(BROKERS)]
    yield FeatureLevelRecord(name="metadata.version", feature_level=25), 0
    for i in range(BROKERS):
        endpoint = RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host=f"broker-{i}", port=9092)
        feature = RegisterBrokerRecord.BrokerFeature(
            name="metadata.version", min_supported_version=7, max_supported_version=27
        )
        broker = RegisterBrokerRecord(
            broker_id=1000 + i, incarnation_id=r.randbytes(16), broker_epoch=i + 1, fenced=fenced
        )
        broker.end_points, broker.features, broker.log_dirs = [endpoint], [feature], [directories[i]]
        yield broker, 3
    for t in range(partitions // PARTITIONS_EACH):
        topic_id = b"\x01" + r.randbytes(15)
        yield TopicRecord(name=f"topic-{t}", topic_id=topic_id), 0
        for p in range(PARTITIONS_EACH):
            first = r.randrange(BROKERS)
            on = [(first + k) % BROKERS for k in range(3)]
            replicas = [1000 + i for i in on]
            partition = PartitionRecord(
                partition_id=p, topic_id=topic_id, replicas=replicas, isr=replicas, leader=replicas[0]
            )
            partition.leader_epoch, partition.partition_epoch = r.randrange(100), r.randrange(1000)
            partition.directories = [directories[i] for i in on]
            yield partition, 1


def data_batches(partitions: int, *, fenced: bool = True) -> Iterator[bytes]:
    """The batches of a snapshot of that many partitions, whose brokers are fenced or not."""
    values: list[bytes] = []
    for record, version in records(partitions, fenced):
        values.append(encode_record(record, version))
        if len(values) == BATCH_RECORDS:
            yield build_metadata_batch(values, base_offset=0, leader_epoch=0, timestamp=1)
            values = []
    if values:
        yield build_metadata_batch(values, base_offset=0, leader_epoch=0, timestamp=1)


def put_snapshot(node: Node, batches: list[bytes]) -> int:
    """Into a formatted controller's directory, with the voters that it was formatted with; the file's
    size."""
    directory = node.data / f"{METADATA_TOPIC}-0"
    head = read_head(directory / snapshot_name(OffsetEpoch(0, 0)))
    assert head.voters is not None
    now_ms = time.time_ns() // 1_000_000
    writer = SnapshotWriter(directory, SNAPSHOT)
    writer.write(header_batch(SNAPSHOT, now_ms, now_ms, 1, head.voters))
    offset = 3
    for batch in batches:
        placed, offset = place(batch, offset, SNAPSHOT.epoch)
        writer.write(placed)
    writer.write(footer_batch(SNAPSHOT, offset, now_ms))
    writer.freeze()
    return writer.size


class Asker:
    """Asks a controller for its API versions over and over; how long each answer took."""

    def __init__(self, port: int) -> None:
        self.took_s: list[float] = []
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with socket.create_connection(("127.0.0.1", self._port), 10) as s:
            s.settimeout(60)
            while not self._stop.wait(ASK_EVERY_S):
                began = time.perf_counter()
                s.sendall(API_VERSIONS_V0)
                (left,) = struct.unpack(">i", s.recv(4, socket.MSG_WAITALL))
                while left:
                    left -= len(s.recv(left))
                self.took_s.append(time.perf_counter() - began)

    def stop(self, name: str) -> dict[str, float]:
        self._stop.set()
        self._thread.join()
        took = sorted(self.took_s) or [0.0]
        return {
            f"{name}_answers_p50_ms": round(statistics.median(took) * 1000, 2),
            f"{name}_answers_p99_ms": round(took[int(len(took) * 0.99)] * 1000, 2),
            f"{name}_answers_max_ms": round(took[-1] * 1000, 2),
        }


class Controller(Node):
    """With room for a million partitions in Java."""

    def _command(self, what: str, *args: object) -> list[str]:
        return [JAVA_HEAP if word.startswith("-Xmx") else word for word in super()._command(what, *args)]


def settled(nodes: list[Node]) -> tuple[Node, int] | None:
    """The leader and its epoch, once there is one that answers."""
    return asyncio.run(_settled(nodes))


async def _settled(nodes: list[Node]) -> tuple[Node, int] | None:
    part, topic = DescribeQuorumRequest.PartitionData, DescribeQuorumRequest.TopicData
    request = DescribeQuorumRequest(topics=[topic(topic_name=METADATA_TOPIC, partitions=[part()])])
    for node in nodes:
        try:
            connection = await Connection.connect("127.0.0.1", node.controller_port, timeout_s=30)
            answer = (await connection.call(request)).topics[0].partitions[0]
            connection.close()
        except NetError:
            continue
        if (
            answer.error_code == ErrorCode.NONE
            and answer.leader_id == node.node_id
            and answer.high_watermark > 0
        ):
            return node, answer.leader_epoch
    return None


def one(impl: str, base: Path, batches: list[bytes], nice: int) -> dict[str, float]:
    ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
    extra = {
        "metadata.log.max.record.bytes.between.snapshots": 1 << 40,
        "metadata.log.max.snapshot.interval.ms": 0,
    }
    nodes = [
        Controller(
            base / f"c{i}", i, "controller", impl, voters=ports, controller_port=port, extra=dict(extra)
        )
        for i, port in ports.items()
    ]
    initial = ",".join(f"{i}@127.0.0.1:{ports[i]}" for i in (1, 2))
    result: dict[str, float] = {}
    try:
        for node in nodes[:2]:
            node.impl = "quorate"  # the storage tool writes the same for either
            node.format("--initial-controllers", initial)
            size = put_snapshot(node, batches)
            node.impl = impl
        nodes[2].impl = "quorate"
        nodes[2].format("--no-initial-controllers")
        nodes[2].impl = impl
        for node in nodes[:2]:
            node.start(timeout_s=LONG_S)
        found = wait_for("a leader that has loaded", lambda: settled(nodes[:2]), LONG_S, 0.5)
        leader, epoch = found  # type: ignore[misc]
        if impl == "quorate":
            for node in nodes[:2]:
                wait_for("the snapshot to be loaded", lambda n=node: LOADED.search(log_of(n)), LONG_S, 0.1)
        nodes[2].start(wait=False)
        if nice:
            AUTOGROUP.write_text(str(nice))
        asker = Asker(leader.controller_port)
        directory = nodes[2].data / f"{METADATA_TOPIC}-0"
        wait_for(
            "the fetch to begin", lambda: any(directory.glob(f"{SNAPSHOT.offset:020d}-*.part")), LONG_S, 0.001
        )
        began = time.perf_counter()
        final = directory / snapshot_name(SNAPSHOT)
        wait_for("the snapshot", final.exists, LONG_S, 0.001)
        took = time.perf_counter() - began
        result |= {
            "mb": round(size / 1e6, 1),
            "fetch_s": round(took, 3),
            "mb_per_s": round(size / 1e6 / took, 1),
        }
        result |= asker.stop("leader")
        assert final.stat().st_size == size
        if impl == "quorate":
            newcomer = Asker(ports[3])
            loaded = wait_for(
                "the snapshot to be loaded", lambda: LOADED.search(log_of(nodes[2])), LONG_S, 0.05
            )
            result |= {"load_s": float(loaded[1])} | newcomer.stop("loading")  # type: ignore[index]
            told = FETCHED.search(log_of(nodes[2]))
            assert told is not None
            result["fetch_told_s"] = float(told[1])
        found = wait_for("a leader still", lambda: settled(nodes[:2]), LONG_S, 0.5)
        result["epochs_passed"] = found[1] - epoch  # type: ignore[index]
    finally:
        for node in nodes:
            node.kill()
    return result


LOADED = re.compile(r"has loaded snapshot \(5000000, 1\) in ([0-9.]+) s")
FETCHED = re.compile(r"fetched, verified and durable in ([0-9.]+) s")


def log_of(node: Node) -> str:
    return (node.base / "out.log").read_text(errors="replace")


def summary(runs: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    out = {}
    for key in sorted({k for r in runs for k in r}):
        xs = [r[key] for r in runs if key in r]
        out[key] = {
            "median": round(statistics.median(xs), 3),
            "min": min(xs),
            "max": max(xs),
            "runs": len(xs),
        }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--java", action="store_true", help="Apache Kafka too")
    parser.add_argument(
        "--nice", type=int, default=0, help="of this session while fetching, where the machine has other work"
    )
    parser.add_argument("--dir", type=Path, help="where the nodes live (a temporary directory)")
    parser.add_argument("--no-result", action="store_true", help="print only")
    args = parser.parse_args()
    batches = list(data_batches(args.partitions))
    impls = ("java", "quorate") if args.java else ("quorate",)
    runs: dict[str, list[dict[str, float]]] = {i: [] for i in impls}
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(dir=args.dir) as place_:
        for n in range(args.rounds):
            for impl in impls:
                runs[impl].append(one(impl, Path(place_) / f"{impl}{n}", batches, args.nice))
                print(json.dumps({"impl": impl} | runs[impl][-1]), flush=True)
    result = {
        "probe": "snapshot_fetch",
        "date": datetime.date.today().isoformat(),
        "machine": {
            "cpus": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "load_average": {"before": round(load[0], 1), "after": round(os.getloadavg()[0], 1)},
        "partitions": args.partitions,
        "rounds": args.rounds,
        "nice": args.nice,
        "figures": {i: summary(runs[i]) for i in impls},
    }
    if args.java:
        ours, theirs = (summary(runs[i])["mb_per_s"]["median"] for i in ("quorate", "java"))
        result["ratio_quorate_to_java"] = {"mb_per_s": round(ours / theirs, 3)}
    if not args.no_result:
        (HERE / "results" / "snapshot_fetch.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
