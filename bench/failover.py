"""How long the cluster is impaired when a node dies:

    python -m bench.failover kill term
    python -m bench.failover broker --only quorate --busy 2

`kill` is kill -9 of the active controller, `term` its SIGTERM; `bench.probes.quorum.failover` describes
one round. `broker` is kill -9 of a broker (`bench.probes.quorum.broker_death`). Rounds are interleaved
(java, quorate, java, ...). The times of all rounds, their median and the worst go to
bench/results/failover_kill.json and so on, with the load of the machine before each round. `--busy`
keeps that many cores busy with other processes; the files are then named failover_kill_busy.json and so on.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.probes.quorum import broker_death, failover
from bench.result import heading

HERE = Path(__file__).resolve().parent
IMPLS = ("java", "quorate")
DEATHS = {"kill": signal.SIGKILL, "term": signal.SIGTERM}
BROKER = "broker"
KEYS = ("gap_s", "metadata_s", "produce_s")


@contextlib.contextmanager
def busy(cores: int) -> Iterator[None]:
    """Runs that many processes that compute without a pause."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def fsync_ms() -> float:
    """Median of twenty fsyncs of a small file beside the clusters' directories, ms."""
    took = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(20):
            begun = datetime.datetime.now().timestamp()
            file.write(b"x" * 100)
            file.flush()
            os.fsync(file.fileno())
            took.append(datetime.datetime.now().timestamp() - begun)
    return round(statistics.median(took) * 1000, 2)


def rounds(impls: tuple[str, ...], death: str, count: int) -> dict[str, list[dict[str, Any]]]:
    """Each round's gap in seconds, or its error, beside the machine's state."""
    runs: dict[str, list[dict[str, Any]]] = {impl: [] for impl in impls}
    for _ in range(count):
        for impl in impls:
            run: dict[str, Any] = {"load": round(os.getloadavg()[0], 1), "fsync_ms": fsync_ms()}
            try:
                if death == BROKER:
                    run |= {key: round(value, 3) for key, value in broker_death(impl).items()}
                else:
                    [run["gap_s"]] = failover(impl, DEATHS[death], 1)["gap_s"]
            except Exception as e:
                run["error"] = repr(e)
            runs[impl].append(run)
            print(json.dumps({"impl": impl, "death": death, **run}), flush=True)
    return runs


def figures(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The median and the worst of all rounds."""
    table = {}
    for key in KEYS:
        times = [run[key] for run in runs if key in run]
        if times:
            prefix = "" if key == "gap_s" else key.removesuffix("s")
            for name, value in (("median_s", round(statistics.median(times), 3)), ("max_s", max(times))):
                table[prefix + name] = {"median": value, "min": value, "max": value, "runs": len(times)}
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("deaths", nargs="+", choices=(*DEATHS, BROKER))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--only", choices=IMPLS, help="run one implementation (no ratio, no file unless --out)"
    )
    parser.add_argument("--busy", type=int, default=0, help="cores that other processes keep busy")
    parser.add_argument("--out", type=Path, help="folder for the results (default bench/results)")
    args = parser.parse_args()
    impls = (args.only,) if args.only else IMPLS
    for death in args.deaths:
        about = heading(f"failover_{death}", args.rounds)
        with busy(args.busy):
            runs = rounds(impls, death, args.rounds)
        tables = {impl: figures(runs[impl]) for impl in impls}
        ratios = {}
        if len(impls) == 2 and tables["java"] and tables["quorate"]:
            ratios = {
                key: round(tables["quorate"][key]["median"] / tables["java"][key]["median"], 4)
                for key in tables["java"]
            }
        for impl in impls:
            print(
                f"{death} {impl:8}", {key: value["median"] for key, value in tables[impl].items()}, flush=True
            )
        result = {
            **about,
            "figures": tables,
            "ratio_quorate_to_java": ratios,
            "busy_cores": args.busy,
            "runs": runs,
            "errors": [run["error"] for rs in runs.values() for run in rs if "error" in run],
        }
        if args.out is not None or len(impls) == 2:
            folder = args.out if args.out is not None else HERE / "results"
            name = f"failover_{death}_busy" if args.busy else f"failover_{death}"
            (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
