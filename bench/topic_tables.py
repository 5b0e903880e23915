"""How many MB a second one core writes from a topic to its table, in processor time.

    python -m bench.topic_tables [--records 600000] [--rounds 2]

One node serves a topic with two partitions and replication factor 1, whose records have 1 KB of random bytes. The
command `quorate-pipeline topics --format raw` with one core of Spark has read a third as many records before, so that
Java has compiled most of its code. The processor time is that of Python and Java together, planning, commits and
compilation included, without the node. Result: bench/results/topic_tables.json.
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=600_000)
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
            keeper = Keeper(Lake(spark, folder), brokers, "c", TOPIC.__eq__, RawFormat(), print)
            for number in range(args.rounds + 1):
                records = args.records if number else args.records // 3
                produce(cluster.bootstrap_servers, records)
                begin, used = time.monotonic(), processor_time([own, *java])
                keep(keeper, print)
                wall, used = time.monotonic() - begin, processor_time([own, *java]) - used
                size = records * RECORD_BYTES / 1e6
                if number:
                    figures.append({
                        "mb": size, "processor_s": round(used, 2), "wall_s": round(wall, 2),
                        "mb_per_processor_s": round(size / used, 1), "mb_per_wall_s": round(size / wall, 1),
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
