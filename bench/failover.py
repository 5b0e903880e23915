"""How long no topic can be created when the active controller dies:

    python -m bench.failover kill term

`kill` is kill -9, `term` is SIGTERM; `bench.probes.quorum.failover` describes one round. Rounds are
interleaved (java, quorate, java, ...). The gaps of all rounds, their median and the worst go to
bench/results/failover_kill.json and failover_term.json, with the load of the machine before each round:
on a busy machine most of the gap is the time of fsyncs.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.probes.quorum import failover
from bench.result import heading

HERE = Path(__file__).resolve().parent
IMPLS = ("java", "quorate")
DEATHS = {"kill": signal.SIGKILL, "term": signal.SIGTERM}


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
                [run["gap_s"]] = failover(impl, DEATHS[death], 1)["gap_s"]
            except Exception as e:
                run["error"] = repr(e)
            runs[impl].append(run)
            print(json.dumps({"impl": impl, "death": death, **run}), flush=True)
    return runs


def figures(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    gaps = [run["gap_s"] for run in runs if "gap_s" in run]
    if not gaps:
        return {}
    values = {"median_s": round(statistics.median(gaps), 3), "max_s": max(gaps)}
    return {
        key: {"median": value, "min": value, "max": value, "runs": len(gaps)} for key, value in values.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("deaths", nargs="+", choices=DEATHS)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--only", choices=IMPLS, help="run one implementation (no ratio, no file unless --out)"
    )
    parser.add_argument("--out", type=Path, help="folder for the results (default bench/results)")
    args = parser.parse_args()
    impls = (args.only,) if args.only else IMPLS
    for death in args.deaths:
        about = heading(f"failover_{death}", args.rounds)
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
            "runs": runs,
            "errors": [run["error"] for rs in runs.values() for run in rs if "error" in run],
        }
        if args.out is not None or len(impls) == 2:
            folder = args.out if args.out is not None else HERE / "results"
            (folder / f"failover_{death}.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
