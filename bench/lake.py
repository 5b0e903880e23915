"""How long a lake takes to apply a log, an increment of it, and to give a state, on local[2].

    python -m bench.lake [--records 200000 1000000] [--log DIRECTORY]

The log is that of a simulated cluster, which `quorate-pipeline generate` may have written before.
Each size is a lake of its own, filled by `update`, as `quorate-pipeline run` does. Processor time
is that of the driver, its JVM and all workers. A small lake is filled before, so that the JVM is
warm. Result: bench/results/lake.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psutil
from pyspark.sql import SparkSession

from bench.result import heading
from quorate.pipeline.generator.years import generate
from quorate.pipeline.lake_source import DirectorySource, Extent
from quorate.pipeline.questions.state import state
from quorate.pipeline.spark.delta import JARS_VARIABLE
from quorate.pipeline.spark.session import local_session
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.events import EVENTS
from quorate.pipeline.tables.lake import Lake
from quorate.pipeline.tables.update import update

ROOT: Final = Path(__file__).resolve().parents[1]
INCREMENTS: Final = (100, 10_000, 100_000)


class UpTo(DirectorySource):
    """A source that has only the records before an offset."""

    def __init__(self, folder: Path, end: int) -> None:
        super().__init__([str(folder)])
        self._end = end

    def extent(self, offset: int) -> Extent:
        found = super().extent(offset)
        return replace(found, end=min(found.end, self._end))


_used: Final[dict[tuple[int, float], float]] = {}
"""For each process, by its id and the time of its start, the processor time that was seen last."""


def processor_s() -> float:
    """The processor time of this process and all below it.

    Those that have ended count up to the last call: Spark ends Python processes that have been idle
    for a minute.
    """
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
            _used[process.pid, process.create_time()] = times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return sum(_used.values())


class TimedLake(Lake):
    """A lake that knows what the commits of the events took, and all others."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        super().__init__(spark, folder)
        self.took: dict[str, float] = {}
        self._last = time.monotonic(), processor_s()

    def begin_to_measure(self) -> None:
        """Begins to measure."""
        self.took = {}
        self._last = time.monotonic(), processor_s()

    def part(self, name: str) -> None:
        """Adds the time since the last call to a part."""
        now = time.monotonic(), processor_s()
        for kind, before, after in zip(("seconds", "processor_seconds"), self._last, now, strict=True):
            key = f"{name}_{kind}"
            self.took[key] = round(self.took.get(key, 0.0) + after - before, 1)
        self._last = now

    def commit(self, table: str, *args: Any, **options: Any) -> Any:
        done = super().commit(table, *args, **options)
        self.part("events" if table == EVENTS else "entities")
        return done


def measured(what: str, records: int, step: Callable[[], Any]) -> dict[str, Any]:
    begun, cpu = time.monotonic(), processor_s()
    step()
    took, used = time.monotonic() - begun, processor_s() - cpu
    found = {
        "records": records,
        "seconds": round(took, 1),
        "processor_seconds": round(used, 1),
        "records_per_s": round(records / took),
        "records_per_processor_s": round(records / used),
        "load_average": round(os.getloadavg()[0], 1),
    }
    print(what, json.dumps(found), flush=True)
    return found


def of_size(spark: SparkSession, log: Path, folder: Path, size: int) -> Iterator[dict[str, Any]]:
    """The figures of a lake with so many records, as far as they are known."""
    lake = TimedLake(spark, str(folder))
    lake.begin_to_measure()
    found = {"first_run": measured("first run", size, lambda: apply(lake, log, size))}
    lake.part("entities")
    found["first_run"] |= lake.took
    print(json.dumps(lake.took), flush=True)
    yield found
    middle = size // 2
    for entity in (ENTITIES["partitions"], ENTITIES["topics"]):
        found[f"state_of_{entity.name}_at_the_middle"] = measured(
            f"state of {entity.name}",
            state(lake, "c", entity, middle).count(),
            lambda entity=entity: (
                state(lake, "c", entity, middle).write.format("noop").mode("overwrite").save()
            ),
        )
    for count in INCREMENTS:
        size += count
        found[f"increment_of_{count}"] = measured(
            f"increment of {count}", count, lambda size=size: apply(lake, log, size)
        )
        yield found


def apply(lake: Lake, log: Path, end: int) -> None:
    update(lake, UpTo(log, end), "c", report=lambda text: None)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, nargs="+", default=[200_000])
    parser.add_argument("--log", type=Path, help="a log of that many records and the increments")
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results" / "lake.json")
    args = parser.parse_args()
    os.environ.setdefault(JARS_VARIABLE, str(ROOT / ".cache" / "delta-4.4.0"))
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = args.log or folder / "node"
        if args.log is None:
            generate(log, seed=1, records=max(args.records) + sum(INCREMENTS))
        spark = local_session("bench", cores=2, lake=True)
        figures["warm_up"] = measured(
            "warm up", 3000, lambda: apply(Lake(spark, str(folder / "warm")), log, 3000)
        )
        for size in args.records:
            for found in of_size(spark, log, folder / str(size), size):
                figures[f"{size}_records"] = found
                result = heading("lake", 1) | {"figures": figures}
                args.output.write_text(json.dumps(result, indent=1) + "\n")
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
