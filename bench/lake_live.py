"""How soon a change of a live cluster is in the tables of a lake that `quorate-pipeline run --follow` keeps.

    python -m bench.lake_live [--changes 20] [--seed 1]

A quorum of three controllers, and a broker, run as processes. Topics are created at random moments.
Measured is the time from the answer to CreateTopics, which comes after the commit of its records,
until the new topic and its partitions are in commits of the tables `topics` and `partitions`. The
commits and files of the tables are read directly, without Spark. `idle_processor_share` is the
processor time that the command takes for each second while nothing changes. Result:
bench/results/lake_live.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import psutil
from pyarrow import parquet

from bench.result import heading
from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic
from quorate.pipeline.spark.delta import JARS_VARIABLE
from quorate.testing import KafkaCluster
from quorate.tools.lake.pipeline import INTERVAL_S

ROOT: Final = Path(__file__).resolve().parents[1]
TABLES: Final = ("topics", "partitions")
PARTITIONS: Final = 3
IDLE_S: Final = 20.0
NEVER_S: Final = 120.0
POLL_S: Final = 0.02


class Table:
    """The topics of the rows that commits have added to a table since this object was last asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read = 0
        self.rows: dict[str, int] = {}
        """How many rows each topic has in the files that were added last."""

    def look(self) -> None:
        """Reads new commits."""
        while (commit := self._folder / "_delta_log" / f"{self._read:020d}.json").exists():
            for line in commit.read_text().splitlines():
                if (added := json.loads(line).get("add")) is not None:
                    self._count(self._folder / unquote(added["path"]))
            self._read += 1

    def _count(self, file: Path) -> None:
        found: dict[str, int] = {}
        for name in parquet.read_table(file, columns=["topic"])["topic"].to_pylist():
            found[name] = found.get(name, 0) + 1
        self.rows |= found


def wait_until_there(tables: dict[str, Table], topic: str) -> None:
    """Waits until a topic and its partitions are in the tables."""
    wanted = {"topics": 1, "partitions": PARTITIONS}
    deadline = time.monotonic() + NEVER_S
    while any(tables[name].rows.get(topic, 0) < count for name, count in wanted.items()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} is not in the tables")
        time.sleep(POLL_S)
        for table in tables.values():
            table.look()


def processor_s(pid: int) -> float:
    """The processor time of a process and those below it."""
    command = psutil.Process(pid)
    return sum([sum(process.cpu_times()[:2]) for process in (command, *command.children(recursive=True))])


def changes(cluster: KafkaCluster, lake: Path, count: int, rng: random.Random) -> Iterator[float]:
    """Creates topics at random moments. Yields for each one the seconds until it is in the tables."""
    tables = {name: Table(lake / name) for name in TABLES}
    with AdminClient(cluster.bootstrap_servers) as admin:
        for number in range(-1, count):
            if number >= 0:
                time.sleep(rng.uniform(0, INTERVAL_S))
            topic = f"topic-{number}"
            admin.create_topics([NewTopic(topic, PARTITIONS)])
            begun = time.monotonic()
            wait_until_there(tables, topic)
            if number >= 0:  # before that, Spark starts
                yield time.monotonic() - begun


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results" / "lake_live.json")
    args = parser.parse_args()
    environment = {JARS_VARIABLE: str(ROOT / ".cache" / "delta-4.4.0"), **os.environ}
    with (
        tempfile.TemporaryDirectory() as name,
        KafkaCluster(controllers=3, brokers=1, separate_roles=True) as cluster,
    ):
        lake = Path(name) / "lake"
        command = [sys.executable, "-m", "quorate.tools.lake.pipeline", "run", "--follow"]
        command += ["--source", f"controllers://{cluster.bootstrap_controllers}", "--lake", str(lake)]
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL) as run:
            try:
                took = []
                for seconds in changes(cluster, lake, args.changes, random.Random(args.seed)):
                    took.append(seconds)
                    print(f"{len(took)}: {seconds:.2f} s", flush=True)
                used = processor_s(run.pid)
                time.sleep(IDLE_S)
                idle = (processor_s(run.pid) - used) / IDLE_S
            finally:
                run.send_signal(signal.SIGINT)
    result = heading("lake_live", args.changes) | {
        "seed": args.seed,
        "load_average": round(os.getloadavg()[0], 1),
        "worst_s": round(max(took), 2),
        "median_s": round(statistics.median(took), 2),
        "seconds": [round(seconds, 2) for seconds in took],
        "idle_processor_share": round(idle, 2),
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
