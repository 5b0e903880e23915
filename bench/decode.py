"""How many records a second one core decodes into Arrow columns, in processor time.

    python -m bench.decode

The records are random with a fixed seed, in batches of 256. Of the partitions, a quarter has a smaller ISR in
`partitions_shrunk`. The decoder of objects takes turns with the decoder by columns, on fewer records. Result:
bench/results/decode.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.result import heading
from quorate.metadata.framing import encode_record
from quorate.metadata.records import PartitionChangeRecord, PartitionRecord
from quorate.pipeline.datasource.columns import LOG_COLUMNS, Selection, select
from quorate.pipeline.decoder.read import Reading, read_slice
from quorate.pipeline.directories.layout import Slice
from quorate.records.batch import build_metadata_batch

RECORDS = 65_536
DISTINCT = 4_096
BATCH_RECORDS = 256
LOG = ",".join(LOG_COLUMNS)
Maker = Callable[[random.Random, int], bytes]


def partition(rng: random.Random, number: int, *, shrunk: float = 0.0) -> bytes:
    """A PartitionRecord with three replicas."""
    replicas = rng.sample(range(100), 3)
    directories = [bytes([replica, 7]) * 8 for replica in replicas]
    isr = replicas[:2] if rng.random() < shrunk else replicas
    record = PartitionRecord(
        partition_id=number % 20, topic_id=random.Random(number // 20).randbytes(16), replicas=replicas, isr=isr,
        leader=replicas[0], leader_epoch=3, partition_epoch=4, directories=directories,
    )  # fmt: skip
    return encode_record(record, 2)


def change(rng: random.Random, number: int) -> bytes:
    """A PartitionChangeRecord: of the ISR, of the leader, or of both."""
    record = PartitionChangeRecord(
        partition_id=number % 20, topic_id=random.Random(number // 20).randbytes(16)
    )
    what = rng.random()
    if what < 0.7:
        record.isr = rng.sample(range(100), rng.randint(1, 3))
    if what > 0.3:
        record.leader = rng.randrange(100)
    return encode_record(record, 2)


def write(path: Path, make: Maker, records: int) -> Slice:
    """A segment of such records."""
    rng = random.Random(1)
    values = [make(rng, number) for number in range(DISTINCT)]
    with path.open("wb") as out:
        for base in range(0, records, BATCH_RECORDS):
            batch = [values[at % DISTINCT] for at in range(base, base + BATCH_RECORDS)]
            out.write(build_metadata_batch(batch, base_offset=base, leader_epoch=1, timestamp=1))
    return Slice(str(path), 0, -1, path.stat().st_size, base_offset=0)


def rate(part: Slice, selection: Selection, least: int) -> float:
    """Records a second of processor time."""
    begin = time.process_time()
    rows = sum([batch.num_rows for batch in read_slice(part, Reading(selection, least=least))])
    return rows / (time.process_time() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    cases: dict[str, tuple[Maker, str]] = {
        "partitions": (partition, f"{LOG},partition_record"),
        "partitions_shrunk": (
            lambda rng, number: partition(rng, number, shrunk=0.25),
            f"{LOG},partition_record",
        ),
        "partitions_4_fields": (
            partition,
            "offset,partition_record.topic_id,partition_record.partition_id,partition_record.leader,partition_record.isr",
        ),
        "changes": (change, f"{LOG},partition_change_record"),
    }
    figures: dict[str, dict[str, float]] = {}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        for name, (make, columns) in cases.items():
            parts = [write(Path(folder) / f"{name}.{n}", make, n) for n in (RECORDS, DISTINCT)]
            pairs = [
                (rate(parts[0], select(columns), 8), rate(parts[1], select(columns), sys.maxsize))
                for _ in range(rounds + 1)
            ][1:]
            figures[name] = {
                "columns_per_s_best": round(max(pair[0] for pair in pairs)),
                "columns_per_s_worst": round(min(pair[0] for pair in pairs)),
                "objects_per_s_best": round(max(pair[1] for pair in pairs)),
            }
            print(name, figures[name], flush=True)
    result = {**heading("decode", rounds), "load_average": round(load, 1), "figures": figures}
    target = Path(__file__).parent / "results" / "decode.json"
    target.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
