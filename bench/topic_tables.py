"""How many MB a second one core writes from a topic to its table, in processor time.

    python -m bench.topic_tables [--records 1100000] [--rounds 2]

One node serves a topic with two partitions and replication factor 1, whose records have 1 KB of random bytes. The
command `quorate-pipeline topics --format raw` with one core of Spark has read a batch before, so that Java has
compiled most of its code. The processor time is that of Python and Java together, planning, commits and compilation
included, without the node. `processor_s_by_thread` says which threads of Java took it. Result:
bench/results/topic_tables.json.
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

from bench.result import heading
from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic
from quorate.pipeline.spark.session import local_session
from quorate.pipeline.tables.lake import Lake
from quorate.pipeline.topics.brokers import Brokers
from quorate.pipeline.topics.formats import RawFormat
from quorate.pipeline.topics.keep import Keeper, keep
from quorate.pipeline.topics.positions import Positions
from quorate.pipeline.topics.tables import TopicTables
from quorate.testing import KafkaCluster

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


THREADS = {
    "tasks": ("Executor task",),
    "compiler": ("C1 Compiler", "C2 Compiler"),
    "garbage collection": ("GC Thread", "ParGC", "G1 ", "VM Thread"),
}
"""What the names of Java's threads begin with."""


def by_thread(processes: list[psutil.Process]) -> dict[str, float]:
    """The processor time of each group of threads until now, of those that live."""
    found = {**dict.fromkeys(THREADS, 0.0), "other": 0.0}
    for process in processes:
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
            group = next((g for g, starts in THREADS.items() if name.startswith(starts)), "other")
            fields = rest.split()
            found[group] += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_100_000)
    parser.add_argument("--warm-up", type=int, default=1_000_000, help="records of the first batch")
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    figures: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, KafkaCluster() as cluster:
        with AdminClient(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, 2, 1)])
        spark = local_session("bench", cores=1, lake=True, topics=True, long=True)
        own = psutil.Process()
        java = [child for child in own.children(recursive=True) if child.name() == "java"]
        with Brokers(cluster.bootstrap_servers, {}) as brokers:
            lake = Lake(spark, folder)
            tables = TopicTables(lake, "c", brokers.servers, brokers.properties, RawFormat())
            keeper = Keeper(brokers, Positions(lake, "c"), tables, TOPIC.__eq__, print)
            for number in range(args.rounds + 1):
                records = args.records if number else args.warm_up
                produce(cluster.bootstrap_servers, records)
                begin, used, threads = time.monotonic(), processor_time([own, *java]), by_thread(java)
                keep(keeper, print)
                wall, used = time.monotonic() - begin, processor_time([own, *java]) - used
                spent = {name: round(s - threads[name], 2) for name, s in by_thread(java).items()}
                size = records * RECORD_BYTES / 1e6
                if number:
                    figures.append({
                        "mb": size, "processor_s": round(used, 2), "wall_s": round(wall, 2),
                        "mb_per_processor_s": round(size / used, 1), "mb_per_wall_s": round(size / wall, 1),
                        "processor_s_by_thread": spent,
                    })  # fmt: skip
                    print(figures[-1], flush=True)
        spark.stop()
    result = {
        **heading("topic_tables", args.rounds), "load_average": round(load, 1), "record_bytes": RECORD_BYTES,
        "figures": figures,
    }  # fmt: skip
    target = Path(__file__).parent / "results" / "topic_tables.json"
    target.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
