"""Explores every state that a quorum of real Raft cores can reach within bounds, and checks the invariants.

The search is breadth first, so a violation comes with a shortest trace. Exit status 0: all worlds within
the bounds were explored, and no invariant is broken. 1: an invariant is broken, and the trace is printed.
2: the limit of time or of worlds was reached before.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields

from simulation.explorer.bounds import Bounds
from simulation.explorer.search import explore


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m simulation.explorer", description=__doc__)
    for f in fields(Bounds):
        name, explanation = "--" + f.name.replace("_", "-"), f.metadata["help"]
        if isinstance(f.default, bool):
            parser.add_argument(
                name, action=argparse.BooleanOptionalAction, default=f.default, help=explanation
            )
        else:
            parser.add_argument(
                name, type=int, default=f.default, metavar="N", help=f"{explanation} (default: {f.default})"
            )
    parser.add_argument(
        "--max-worlds", type=int, default=1 << 40, metavar="N", help="stop after this many worlds"
    )
    parser.add_argument("--max-seconds", type=float, default=1e9, metavar="S", help="stop after so much time")
    parser.add_argument(
        "--hashed",
        action="store_true",
        help="keep the visited worlds as hashes of 8 bytes: an eighth of the memory, and a small probability "
        "that a world is left out",
    )
    parser.add_argument("--json", metavar="FILE", help="write the result to this file")
    args = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)
    gc.disable()  # the explorer's data has no reference cycles, and there is much of it
    bounds = Bounds(**{f.name: getattr(args, f.name) for f in fields(Bounds)})

    def write_line(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    result = explore(
        bounds,
        max_worlds=args.max_worlds,
        max_s=args.max_seconds,
        hashed=args.hashed,
        write_line=write_line,
    )
    write_line(result.line())
    if result.violation is not None:
        for line in result.trace:
            write_line(line)
    else:
        write_line("complete" if result.complete else "not complete")
    if args.json:
        with open(args.json, "w") as out:
            json.dump(asdict(result), out, indent=1)
            out.write("\n")
    return 1 if result.violation is not None else 0 if result.complete else 2


if __name__ == "__main__":
    sys.exit(main())
