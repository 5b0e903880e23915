"""How long a lake takes to apply a log, and an increment of it, on local[2].

    python -m bench.lake [--records 200000]

The log is that of a simulated cluster. Processor time is that of the driver, its JVM and all workers. A small lake is
filled before, so that the JVM is warm. Result: bench/results/lake.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psutil

from bench.result import heading
from quorate.pipeline.generator.years import generate
from quorate.pipeline.lake_source import DirectorySource, Extent
from quorate.pipeline.spark.delta import JARS_VARIABLE
from quorate.pipeline.spark.session import local_session
from quorate.pipeline.tables.events import EVENTS, SOURCE_COLUMNS, to_events
from quorate.pipeline.tables.lake import Lake, Progress
from quorate.pipeline.tables.update import derive, update

ROOT: Final = Path(__file__).resolve().parents[1]
INCREMENTS: Final = (100, 10_000)


class UpTo(DirectorySource):
    """A source that has only the records before an offset."""

    def __init__(self, folder: Path, end: int) -> None:
        super().__init__([str(folder)])
        self._end = end

    def extent(self, offset: int) -> Extent:
        found = super().extent(offset)
        return replace(found, end=min(found.end, self._end))


def processor_s() -> float:
    """The processor time of this process and all below it, those that have ended included."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


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
    }
    print(what, json.dumps(found), flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results" / "lake.json")
    args = parser.parse_args()
    os.environ.setdefault(JARS_VARIABLE, str(ROOT / ".cache" / "delta-4.4.0"))
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "node"
        done = generate(log, seed=1, records=args.records)
        spark = local_session("bench", cores=2, lake=True)
        update(Lake(spark, str(folder / "warm")), UpTo(log, 3000), report=lambda text: None)
        lake = Lake(spark, str(folder / "lake"))
        begin = done.records - sum(INCREMENTS)
        source = UpTo(log, begin)

        def events() -> None:
            rows = source.rows(spark, source.extent(0), SOURCE_COLUMNS)
            lake.replace(
                EVENTS, "c", to_events(rows, "c", "c", transactions=True), "true", Progress(0, begin)
            )

        figures["events"] = measured("events", begin, events)
        figures["entities"] = measured("entities", begin, lambda: derive(lake, "c", lambda text: None))
        for count in INCREMENTS:
            begin += count
            more = UpTo(log, begin)
            figures[f"increment_of_{count}"] = measured(
                f"increment of {count}",
                count,
                lambda more=more: update(lake, more, "c", report=lambda text: None),
            )
        spark.stop()
    result = heading("lake", 1) | {"load_average": os.getloadavg()[0], "figures": figures}
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
