"""The processor time of each part of a lake's work for a record, without Spark: the least that a run takes.

    python -m bench.lake_parts [--records 200000] [--log DIRECTORY]

The log is that of a simulated cluster, which `quorate-pipeline generate` may have written before. Result:
bench/results/lake_parts.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from bench.result import heading
from quorate.pipeline.generator.years import generate
from quorate.pipeline.history.names import TopicNames
from quorate.pipeline.history.replay import history_rows
from quorate.pipeline.history.steps import Records, columns_read, steps
from quorate.pipeline.lake_source import DirectorySource, Extent
from quorate.pipeline.storage.data_files import Place, read_groups, write_file
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.events import (
    EVENT_SCHEMA,
    EVENTS,
    MARKERS,
    SOURCE_COLUMNS,
    Transactions,
    to_events,
)
from quorate.pipeline.tables.lake import statistics

ROOT: Final = Path(__file__).resolve().parents[1]


class Parts:
    """The microseconds of processor time that each part has taken for a record."""

    def __init__(self, records: int) -> None:
        self.records = records
        self.found: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Adds what the block takes to a part."""
        begun = time.process_time()
        yield
        took = (time.process_time() - begun) / self.records * 1e6
        self.found[name] = round(self.found.get(name, 0.0) + took, 2)


def measure(log: Path, records: int, folder: Path) -> dict[str, float]:
    parts = Parts(records)
    reader = DirectorySource([str(log)]).reader(Extent(0, records), SOURCE_COLUMNS)
    with parts.part("decode"):
        batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    rows = pa.Table.from_batches(batches)
    markers = rows.filter(pc.is_in(rows["type"], value_set=pa.array(MARKERS)))
    transactions = Transactions.of(markers["offset"].to_numpy(), markers["type"].to_pylist())
    with parts.part("columns of events"):
        events = pa.Table.from_batches([to_events(batch, "id", transactions) for batch in batches])
    place = Place(str(folder / EVENTS), "c", statistics(EVENTS))
    with parts.part("write events"):
        file = write_file(place, events)
    assert file is not None
    types = set(pc.unique(events["type"]).to_pylist())
    columns = sorted({path for entity in ENTITIES.values() for path in columns_read(entity, types)})
    with parts.part("read events"):
        read = pa.concat_tables(list(read_groups(place, file.path, EVENT_SCHEMA, columns, 0, records)))
        found = Records(read)
    names = None
    for name, entity in ENTITIES.items():
        with parts.part("steps of entities"):
            table = steps(entity, found, names=names)
        with parts.part("states of entities"):
            states = history_rows(entity, table)
        with parts.part("write states"):
            write_file(Place(str(folder / name), "c", statistics(name)), states)
        if name == "topics":
            names = TopicNames(states)
    return parts.found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--log", type=Path, help="a log of at least that many records")
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results" / "lake_parts.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = args.log or folder / "node"
        if args.log is None:
            generate(log, seed=1, records=args.records)
        found = measure(log, args.records, folder)
    figures = {"records": args.records, "microseconds_per_record": found}
    figures["sum_microseconds_per_record"] = round(sum(found.values()), 1)
    args.output.write_text(json.dumps(heading("lake_parts", 1) | figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
