"""Kills `quorate-pipeline run --follow` again and again while the log grows, and compares the lake
with an undisturbed one.

    python -m bench.lake_kills [--kills 30] [--seed 1]

A simulated cluster writes its metadata log all the time. Each run is killed with SIGKILL at a
random moment: the process of the command, its JVM, both with all workers, or one worker, in runs
that leave all reading to workers. In the end a last run applies what is left. The tables must then
have exactly the rows of a lake that one run has filled from the same log. Result:
bench/results/lake_kills.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import psutil

from bench.result import heading
from quorate.pipeline.generator.cluster import SimulatedCluster, Size
from quorate.pipeline.generator.files import LogFiles
from quorate.pipeline.generator.years import BEGIN_MS, LEVELS, Years
from quorate.pipeline.lake_source import open_source
from quorate.pipeline.spark.delta import JARS_VARIABLE
from quorate.pipeline.spark.session import local_session
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.lake import Lake
from quorate.pipeline.tables.update import update

ROOT: Final = Path(__file__).resolve().parents[1]
VICTIMS: Final = {"driver": 10, "driver, JVM and workers": 10, "JVM": 5, "worker": 5}
PROGRAMS: Final = {"JVM": "java", "worker": "python"}
NEVER_S: Final = 300.0

COMMAND: Final = ["-m", "quorate.tools.lake.pipeline"]
BY_WORKERS: Final = [
    "-c",
    "from quorate.pipeline import lake_source; lake_source.FEW_RECORDS = 0; "
    "from quorate.tools.lake.pipeline import main; raise SystemExit(main())",
]
"""The same command, but workers read few records, too, which the driver reads otherwise."""


class Feed(threading.Thread):
    """Writes the log of a simulated cluster until it is stopped."""

    def __init__(self, folder: Path, seed: int, pause_s: float) -> None:
        super().__init__(daemon=True)
        self._files = LogFiles(folder, "kills", bytes([1] * 16), BEGIN_MS, 1 << 20)
        self._files.lead(BEGIN_MS)
        cluster = SimulatedCluster(random.Random(seed), Size(6, 3, 8, 4), self._files, BEGIN_MS, LEVELS[0])
        self._years = Years(cluster)
        self._pause_s = pause_s
        self._stopped = threading.Event()
        self._years.begin()

    def run(self) -> None:
        while not self._stopped.wait(self._pause_s):
            self._years.step()

    def stop(self) -> int:
        """Ends the log and returns the number of its records."""
        self._stopped.set()
        self.join()
        self._files.close()
        return self._files.end_offset


class Kills:
    """Runs that are killed, one after the other."""

    def __init__(self, source: Path, lake: Path, seed: int) -> None:
        self.source, self.lake = source, lake
        self.rng = random.Random(seed)
        self.killed: list[dict[str, Any]] = []
        self.log = lake.parent / "runs.log"

    def commits(self) -> int:
        """The commits of all tables."""
        return len(list(self.lake.glob("*/_delta_log/*.json")))

    def kill_one(self) -> dict[str, Any]:
        """Starts a run and kills it, at the start or some time after a commit of its own."""
        before = self.commits()
        victim = self.rng.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        command = [sys.executable, *(BY_WORKERS if victim == "worker" else COMMAND)]
        command += ["run", "--follow", "--interval", "0.1"]
        command += ["--source", str(self.source), "--lake", str(self.lake)]
        with self.log.open("a") as out:
            run = subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True, cwd=ROOT
            )
        at_start = self.rng.random() < 0.1
        deadline = time.monotonic() + NEVER_S
        while not at_start and self.commits() == before:
            if run.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the run has committed nothing: see {self.log}")
            time.sleep(0.02)
        time.sleep(self.rng.uniform(0, 6))
        self._kill(run, victim)
        found = {"victim": victim, "commits": self.commits() - before, "at_start": at_start}
        self.killed.append(found)
        return found

    def _kill(self, run: subprocess.Popen[bytes], victim: str) -> None:
        """Kills a part of a run. If that does not end it, the rest is killed a moment later."""
        processes = _below(run.pid)
        deadline = time.monotonic() + NEVER_S
        while victim in ("worker", "JVM") and not _named(processes, PROGRAMS[victim]):
            if run.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the run has no {victim}: see {self.log}")
            time.sleep(0.02)
            processes = _below(run.pid)
        match victim:
            case "driver":
                _kill(run.pid)
            case "driver, JVM and workers":
                for pid in (run.pid, *[process.pid for process in processes]):
                    _kill(pid)
            case _:
                _kill(_named(processes, PROGRAMS[victim])[-1])
        if victim == "worker":
            time.sleep(self.rng.uniform(0, 2))
            _kill(run.pid)
        run.wait(NEVER_S)
        # A JVM that has lost its driver may still commit something. The next run starts nevertheless.
        if self.rng.random() < 0.5:
            psutil.wait_procs(processes, timeout=30)


def _below(pid: int) -> list[psutil.Process]:
    """The processes below one, or none if it has ended."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _named(processes: Iterable[psutil.Process], name: str) -> list[int]:
    """Those that run a program."""
    found = []
    for process in processes:
        try:
            if process.name().startswith(name):
                found.append(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def rows_of(lake: Lake) -> dict[str, list[str]]:
    """All rows of the tables as text."""
    return {
        table: sorted([str(row) for row in lake.read(table).collect()])
        for table in ("events", *ENTITIES)
        if lake.exists(table)
    }


def compare(spark: Any, source: Path, lake: Path, fresh: Path) -> dict[str, int]:
    """Finishes a lake, fills a fresh one, and returns the rows of each table.

    Raises AssertionError if the two differ.
    """
    found = []
    for folder in (lake, fresh):
        tables = Lake(spark, str(folder))
        update(tables, open_source(str(source)), report=lambda text: None)
        found.append(rows_of(tables))
    for table in ("events", *ENTITIES):
        one, other = (Counter(rows.get(table, [])) for rows in found)
        assert one == other, (
            f"{table}: {sum((one - other).values())} rows too many, {sum((other - one).values())} "
            f"missing, such as {list(one - other)[:1]} and {list(other - one)[:1]}"
        )
    return {table: len(rows) for table, rows in found[1].items()}


def disturbed(folder: Path, kills: int, seed: int, say: Callable[[str], None]) -> tuple[Kills, int]:
    """A lake of which the runs were killed. Returns the kills and the number of the log's records."""
    feed = Feed(folder / "node", seed, pause_s=0.4)
    feed.start()
    done = Kills(folder / "node", folder / "lake", seed)
    for number in range(kills):
        found = done.kill_one()
        say(f"{number + 1}: killed {found['victim']} after {found['commits']} commits of this run")
    return done, feed.stop()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results" / "lake_kills.json")
    args = parser.parse_args()
    os.environ.setdefault(JARS_VARIABLE, str(ROOT / ".cache" / "delta-4.4.0"))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done, records = disturbed(folder, args.kills, args.seed, lambda text: print(text, flush=True))
        spark = local_session("lake_kills", cores=2, lake=True)
        rows = compare(spark, folder / "node", folder / "lake", folder / "fresh")
        spark.stop()
    result = heading("lake_kills", args.kills) | {
        "seed": args.seed,
        "log_records": records,
        "victims": dict(Counter(found["victim"] for found in done.killed)),
        "commits_before_each_kill": [found["commits"] for found in done.killed],
        "rows_of_each_table": rows,
        "equal_to_an_undisturbed_lake": True,
        "seconds": round(time.monotonic() - begun),
        "load_average": round(os.getloadavg()[0], 1),
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["rows_of_each_table"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
