"""Runs simulations of Raft quorums, one for each of the seeds S, S + 1, ..., until N events have
been run or M minutes have passed.

`--level core` simulates the pure Raft core on logs in memory, `--level node` complete Raft clients on
simulated disks. If an invariant is broken, its seed is printed, and the exit status is 1. `--replay SEED`
runs that seed again and prints the end of its trace.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from simulation.checker.invariants import InvariantError
from simulation.run_report import RunReport
from simulation.runner import EVENTS_PER_SEED, LEVELS, replay, run_seeds
from simulation.seeds import disable_logging

PROGRAM = "python -m simulation"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument(
        "--level", choices=sorted(LEVELS), default="core", help="what is simulated (default: core)"
    )
    parser.add_argument("--events", type=int, default=1_000_000, metavar="N", help="events to run in all")
    parser.add_argument("--minutes", type=float, metavar="M", help="end after this time")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed")
    parser.add_argument(
        "--each", type=int, default=EVENTS_PER_SEED, metavar="N", help="events of each seed under faults"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="processes that run seeds at the same time"
    )
    parser.add_argument(
        "--replay", type=int, metavar="SEED", help="run this seed alone and print the end of its trace"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="add the statistics of this run to a JSON file"
    )
    args = parser.parse_args(argv)
    disable_logging()

    def write_line(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    if args.replay is not None:
        return 0 if replay(args.level, args.replay, args.each, write_line) else 1
    options = (
        f"--level {args.level} --seed {args.seed} --events {args.events} --each {args.each} --jobs "
        f"{args.jobs}"
    )
    run_report = (
        RunReport(args.json, args.level, f"{PROGRAM} {options}", args.seed) if args.json is not None else None
    )
    try:
        run_seeds(
            args.level,
            args.seed,
            args.events,
            args.each,
            write_line,
            args.jobs,
            run_report,
            minutes=args.minutes,
        )
    except InvariantError as e:
        write_line(f"FAILED: {e}")
        level = f" --level {args.level}" if args.level != "core" else ""
        write_line(f"replay it by: --replay SEED{level} --each {args.each}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
