"""Runs the same probes on Apache Kafka and on Quorate, in turn, and writes the medians side by side.

    python bench/compare.py --measure PATH/measure.py --rounds 3 coldstart topics produce

PATH/measure.py IMPL PROBE prints one JSON line for a probe (IMPL is `java` or `quorate`). The rounds
are interleaved: java, quorate, java, quorate, ..., so that a drift of the machine's speed meets both.
Every figure's median, minimum and maximum go to bench/results/, with the ratio quorate / java of the
medians; lines are printed as they come.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from result import heading

HERE = Path(__file__).resolve().parent
IMPLS = ("java", "quorate")


def one(measure: Path, impl: str, probe: str, timeout_s: float) -> dict[str, object]:
    """One run of one probe; {"error": ...} when it failed."""
    env = {**os.environ, "QUORATE_BIN": os.environ.get("QUORATE_BIN", str(Path(sys.executable).parent))}
    try:
        done = subprocess.run(
            [sys.executable, str(measure), impl, probe],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=env,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {timeout_s} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"error": done.stderr[-500:]}
    return json.loads(lines[-1])


def summary(runs: list[dict[str, object]]) -> dict[str, dict[str, float]]:
    """Median, minimum and maximum of every numeric figure over the runs."""
    keys = {k for r in runs for k, v in r.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    out = {}
    for key in sorted(keys - {"took_s"}):
        xs = [float(r[key]) for r in runs if isinstance(r.get(key), (int, float))]  # type: ignore[arg-type]
        out[key] = {
            "median": round(statistics.median(xs), 3),
            "min": min(xs),
            "max": max(xs),
            "runs": len(xs),
        }
    return out


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("probes", nargs="+")
    parser.add_argument("--measure", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=600, help="seconds that one run may take")
    parser.add_argument("--only", choices=IMPLS, help="run one implementation (no ratio)")
    args = parser.parse_args()
    impls = (args.only,) if args.only else IMPLS
    for probe in args.probes:
        about = heading(probe, args.rounds)
        runs: dict[str, list[dict[str, object]]] = {i: [] for i in impls}
        for _ in range(args.rounds):
            for impl in impls:
                r = one(args.measure, impl, probe, args.timeout)
                runs[impl].append(r)
                print(json.dumps(r), flush=True)
        tables = {i: summary(runs[i]) for i in impls}
        ratios = {}
        if len(impls) == 2:
            for key in tables["java"].keys() & tables["quorate"].keys():
                if tables["java"][key]["median"]:
                    ratios[key] = round(tables["quorate"][key]["median"] / tables["java"][key]["median"], 3)
        result = {
            **about,
            "figures": tables,
            "ratio_quorate_to_java": ratios,
            "errors": [r["error"] for rs in runs.values() for r in rs if "error" in r],
        }
        path = HERE / "results" / f"{probe}.json"
        if len(impls) == 2:
            path.write_text(json.dumps(result, indent=1) + "\n")
        for key, ratio in ratios.items():
            java, ours = (tables[name][key]["median"] for name in IMPLS)
            print(f"{probe:15} {key:32} java {java:>12} quorate {ours:>12} ratio {ratio}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
