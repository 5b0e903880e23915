"""Runs the same probes on Apache Kafka and on Quorate, in turn, and writes the medians side by side.

    python -m bench.compare --rounds 3 coldstart topics produce

The probes are those of `bench.probes`. The rounds are interleaved: java, quorate, java, quorate, ..., so
that a drift of the machine's speed meets both. The median, minimum and maximum of every figure go to
bench/results/, with the ratio quorate / java of the medians. Lines are printed as they come.

    python -m bench.compare --base OLD/.venv/bin coldstart topics produce

compares an older checkout of Quorate with this one instead. `--base` names the folder of its console
scripts. The ratio is then that of this checkout to the older one, and nothing is written to
bench/results/ unless `--out` names a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench.result import heading

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BIN = Path(sys.executable).parent


def one(impl: str, scripts: Path, probe: str, timeout_s: float) -> dict[str, object]:
    """One run of one probe, or {"error": ...} if it failed. `scripts` is the folder of Quorate's console
    scripts."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench.probes", impl, probe],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={**os.environ, "QUORATE_BIN": str(scripts)},
            cwd=ROOT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {timeout_s} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"error": done.stderr[-500:]}
    result: dict[str, object] = json.loads(lines[-1])
    return result


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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=600, help="seconds that one run may take")
    parser.add_argument("--only", choices=("java", "quorate"), help="run one implementation (no ratio)")
    parser.add_argument("--base", type=Path, help="console scripts of an older checkout to compare with")
    parser.add_argument("--out", type=Path, help="folder for the results (default bench/results)")
    args = parser.parse_args()
    scripts = Path(os.environ.get("QUORATE_BIN") or BIN)
    if args.base is not None:
        sides = {"base": ("quorate", args.base.resolve()), "quorate": ("quorate", scripts)}
    else:
        sides = {impl: (impl, scripts) for impl in ("java", "quorate") if args.only in (None, impl)}
    folder = args.out or (HERE / "results" if args.base is None and len(sides) == 2 else None)
    for probe in args.probes:
        about = heading(probe, args.rounds)
        runs: dict[str, list[dict[str, object]]] = {side: [] for side in sides}
        for _ in range(args.rounds):
            for side, (impl, bin_folder) in sides.items():
                result = one(impl, bin_folder, probe, args.timeout)
                runs[side].append(result)
                print(json.dumps({"side": side, **result}), flush=True)
        tables = {side: summary(runs[side]) for side in sides}
        report: dict[str, object] = {**about, "figures": tables}
        if len(sides) == 2:
            first, second = sides
            shared = tables[first].keys() & tables[second].keys()
            ratios = {
                key: round(tables[second][key]["median"] / tables[first][key]["median"], 3)
                for key in sorted(shared)
                if tables[first][key]["median"]
            }
            report[f"ratio_{second}_to_{first}"] = ratios
            for key, ratio in ratios.items():
                old, new = (tables[side][key]["median"] for side in sides)
                print(f"{probe:15} {key:32} {first} {old:>12} {second} {new:>12} ratio {ratio}")
        report["errors"] = [r["error"] for rs in runs.values() for r in rs if "error" in r]
        if folder is not None:
            (folder / f"{probe}.json").write_text(json.dumps(report, indent=1) + "\n")
    return 1 if any("error" in r for rs in runs.values() for r in rs) else 0


if __name__ == "__main__":
    sys.exit(main())
