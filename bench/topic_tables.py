"""How many MB a second one core writes from a topic to its table, in processor time.

    python -m bench.topic_tables [--records 1100000] [--ways NAME ...]

One node serves a topic with two partitions and replication factor 1, whose records have 1 KB of
random bytes. One session of Spark with one core, that of the command `quorate-pipeline topics
--format raw`, reads the topic to a new table several times: first so that Java compiles its code,
then in each of WAYS. Java's compiler is at work in all of them, and has less to do in each, so the
last way is that of the beginning. The processor time is that of Python and Java together, planning,
commits and compilation included, without the node. `processor_s_by_thread` says which threads of
Java took it. Result: bench/results/topic_tables.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from bench.result import heading
from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic
from quorate.pipeline.spark import connector, delta
from quorate.pipeline.spark.session import local_session
from quorate.pipeline.tables.lake import Lake
from quorate.pipeline.topics.brokers import Brokers
from quorate.pipeline.topics.formats import RawFormat
from quorate.pipeline.topics.keep import Keeper, keep
from quorate.pipeline.topics.positions import Positions
from quorate.pipeline.topics.tables import TopicTables
from quorate.testing import KafkaCluster

ROOT = Path(__file__).parents[1]
TOPIC = "records"
RECORD_BYTES = 1000
DISTINCT = 1000


def produce(servers: str, records: int) -> None:
    rng = random.Random(1)
    values = [rng.randbytes(RECORD_BYTES) for _ in range(DISTINCT)]
    producer = Producer(
        {"bootstrap.servers": servers, "queue.buffering.max.kbytes": 1 << 18, "linger.ms": 20}
    )
    for number in range(records):
        value = number.to_bytes(8, "big") + values[number % DISTINCT][8:]
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % 2)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def processor_time(processes: list[psutil.Process]) -> float:
    return sum([sum(process.cpu_times()[:2]) for process in processes])


WAYS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "warm-up": ({}, {}),
    "as it is": ({}, {}),
    "Kafka's fetch settings": (
        {"max.poll.records": "500", "max.partition.fetch.bytes": "1048576", "receive.buffer.bytes": "65536"}, {},
    ),
    "values without a dictionary": ({}, {"parquet.enable.dictionary#value": "false"}),
    "lz4": ({}, {"spark.sql.parquet.compression.codec": "lz4_raw"}),
    "uncompressed": ({}, {"spark.sql.parquet.compression.codec": "uncompressed"}),
    "as it is, once more": ({}, {}),
}  # fmt: skip
"""For each way, properties of Kafka's consumer and settings of Spark's session."""

THREADS = {
    "tasks": ("Executor task",),
    "compiler": ("C1 Compiler", "C2 Compiler"),
    "garbage collection": ("GC Thread", "ParGC", "G1 ", "VM Thread"),
}
"""What the names of Java's threads begin with."""


def by_thread(processes: list[psutil.Process]) -> dict[tuple[str, str], float]:
    """The processor time of each thread until now, by its group and id. Those that have ended are missing."""
    found = {}
    for process in processes:
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            try:
                name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue  # it has ended since it was listed
            group = next((g for g, starts in THREADS.items() if name.startswith(starts)), "other")
            fields = rest.split()
            found[group, task.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def by_group(before: dict[tuple[str, str], float], after: dict[tuple[str, str], float]) -> dict[str, float]:
    """What the threads of each group have used in between."""
    used = {**dict.fromkeys(THREADS, 0.0), "other": 0.0}
    for (group, number), seconds in after.items():
        used[group] += seconds - before.get((group, number), 0.0)
    return {group: round(seconds, 2) for group, seconds in used.items()}


def measure(spark: SparkSession, servers: str, folder: str, properties: dict[str, str]) -> dict[str, Any]:
    """Reads the topic to a new table."""
    own = psutil.Process()
    java = [child for child in own.children(recursive=True) if child.name() == "java"]
    with Brokers(servers, properties) as brokers:
        begin, used, threads = time.monotonic(), processor_time([own, *java]), by_thread(java)
        lake = Lake(spark, folder)
        tables = TopicTables(lake, "c", servers, properties, RawFormat())
        positions = Positions(lake, "c")
        keep(Keeper(brokers, positions, tables, TOPIC.__eq__, print), print)
        wall, used = time.monotonic() - begin, processor_time([own, *java]) - used
    [position] = positions.known.values()
    size = sum(position.starts.values()) * RECORD_BYTES / 1e6
    return {
        "mb": size, "processor_s": round(used, 2), "wall_s": round(wall, 2),
        "mb_per_processor_s": round(size / used, 1), "mb_per_wall_s": round(size / wall, 1),
        "load_average": round(os.getloadavg()[0], 1),
        "processor_s_by_thread": by_group(threads, by_thread(java)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_100_000)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    args = parser.parse_args()
    target = ROOT / "bench" / "results" / "topic_tables.json"
    os.environ.setdefault(delta.JARS_VARIABLE, str(ROOT / ".cache" / "delta-4.4.0"))
    os.environ.setdefault(connector.JARS_VARIABLE, str(ROOT / ".cache" / "spark-kafka-4.1.1"))
    figures: dict[str, dict[str, Any]] = {}
    with KafkaCluster() as cluster:
        with AdminClient(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, 2, 1)])
        produce(cluster.bootstrap_servers, args.records)
        spark = local_session("bench", cores=1, lake=True, topics=True, long=True)
        for way in args.ways:
            properties, settings = WAYS[way]
            before = {name: spark.conf.get(name, None) for name in settings}
            for name, value in settings.items():
                spark.conf.set(name, value)
            with tempfile.TemporaryDirectory() as folder:
                figures[way] = measure(spark, cluster.bootstrap_servers, folder, properties)
            for name, old in before.items():
                spark.conf.unset(name) if old is None else spark.conf.set(name, old)
            print(way, figures[way], flush=True)
            result = {**heading("topic_tables", 1), "record_bytes": RECORD_BYTES, "figures": figures}
            target.write_text(json.dumps(result, indent=1) + "\n")
        spark.stop()


if __name__ == "__main__":
    main()
