"""How long `quorate-topic-history` takes for a large log, in elapsed and in processor time.

    python -m bench.topic_history [--records 2000000] [--cores 2]

The log has topics of 20 partitions, a PartitionRecord for each partition of three replicas, and as
many changes of ISR or leader, with a fixed seed, in segments of 500,000 records. The events are
written to Parquet, by the command's own functions in its own session. The processor time is that of
Python and Java together, from the start of the session on. Result:
bench/results/topic_history.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import psutil

from bench.decode import change, partition
from bench.result import heading
from quorate.metadata.framing import encode_record
from quorate.metadata.records import TopicRecord
from quorate.pipeline.jobs.topic_history import write_parquet
from quorate.pipeline.spark.session import local_session
from quorate.records.batch import build_metadata_batch

TARGET = Path(__file__).parent / "results" / "topic_history.json"
PARTITIONS = 20
BATCH_RECORDS = 500
SEGMENT_RECORDS = 500_000


def write(folder: Path, records: int) -> int:
    """Writes the log and returns its number of records."""
    rng = random.Random(1)
    count = records // 2
    values: list[bytes] = []
    offset = 0
    with ExitStack() as files:
        out: BinaryIO | None = None
        begun = 0

        def flush() -> None:
            nonlocal offset, out, begun
            if out is None or offset >= begun + SEGMENT_RECORDS:
                out, begun = files.enter_context((folder / f"{offset:020d}.log").open("wb")), offset
            time_ms = 1_700_000_000_000 + offset
            out.write(build_metadata_batch(values, base_offset=offset, leader_epoch=1, timestamp=time_ms))
            offset += len(values)
            values.clear()

        for number in range(count):
            if number % PARTITIONS == 0:
                topic_id = random.Random(number // PARTITIONS).randbytes(16)
                name = f"topic-{number // PARTITIONS}"
                values.append(encode_record(TopicRecord(name=name, topic_id=topic_id), 0))
            values.append(partition(rng, number))
            if len(values) >= BATCH_RECORDS:
                flush()
        for _ in range(count):
            values.append(change(rng, rng.randrange(count)))
            if len(values) >= BATCH_RECORDS:
                flush()
        if values:
            flush()
    return offset


def processor_time() -> float:
    own = psutil.Process()
    found = 0.0
    for process in (own, *own.children(recursive=True)):
        used = process.cpu_times()
        found += used.user + used.system + used.children_user + used.children_system
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--cores", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        records = write(Path(folder), args.records)
        begin, used = time.monotonic(), processor_time()
        spark = local_session("bench", cores=args.cores)
        started, started_used = time.monotonic() - begin, processor_time() - used
        write_parquet(spark, folder, f"{folder}/events")
        wall, used = time.monotonic() - begin, processor_time() - used
        events = spark.read.parquet(f"{folder}/events").count()
        spark.stop()
    result = {
        **heading("topic_history", 1),
        "load_average": round(os.getloadavg()[0], 1),
        "records": records,
        "cores": args.cores,
        "events": events,
        "session_wall_s": round(started, 1),
        "session_processor_s": round(started_used, 1),
        "wall_s": round(wall, 1),
        "processor_s": round(used, 1),
    }
    print(json.dumps(result, indent=1))
    TARGET.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
