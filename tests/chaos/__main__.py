"""Runs three controllers and three brokers under load and random faults for a given time, and checks what the
clients observed.

    python -m tests.chaos --minutes 10 --seed 1 --json FILE
    python -m tests.chaos --minutes 120 --faults none --rate 200 --sample-every 900 --json FILE

One controller and one broker at a time are killed, frozen, stopped, cut off from one node or from all, or get
a full, failing or slow disk. After a random time the fault is healed, and the cluster must recover within
--bound. Idempotent producers with acks=all, a reader, a group whose members come and go, and an operator who
creates, configures and deletes topics and deletes records are served all the time. At the end every property
in tests/chaos/checker.py is checked. The exit status is 1 if one is violated; the directories of the nodes
are kept.

With `--wide` the cluster has four brokers with two log directories each, one of which may fail, and
a rack each. Replicas move to other brokers and directories, and some moves are cancelled. A second
reader is in a rack and is served by followers.

`--faults none` makes it a soak, in which no broker may be fenced. The faults depend on the seed alone; their
times depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.faults import ONLY_WIDE, Kind
from tests.chaos.run import Run, Settings


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the record of the run is written")
    parser.add_argument(
        "--faults", default="all", metavar="KINDS", help=f"all, none, or some of {','.join(Kind)}"
    )
    parser.add_argument(
        "--rate", type=float, default=300, metavar="N", help="records a second (default: 300)"
    )
    parser.add_argument(
        "--bound", type=float, default=120, metavar="S", help="until the cluster has recovered from a fault"
    )
    parser.add_argument(
        "--sample-every", type=float, default=60, metavar="S", help="between samples of the processes"
    )
    parser.add_argument(
        "--wide",
        action="store_true",
        help="four brokers with two log directories and racks; replicas move; a second reader is in a rack",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new folder for the nodes, which is kept")
    args = parser.parse_args()
    names = {"all": [kind for kind in Kind if args.wide or kind not in ONLY_WIDE], "none": []}.get(
        args.faults, args.faults.split(",")
    )
    try:
        kinds = tuple(Kind(name) for name in names)
    except ValueError as e:
        parser.error(str(e))
    if not args.wide and set(kinds) & set(ONLY_WIDE):
        parser.error(f"{','.join(ONLY_WIDE)} needs --wide")
    settings = Settings(
        seed=args.seed,
        minutes=args.minutes,
        kinds=kinds,
        rate=args.rate,
        bound_s=args.bound,
        sample_every_s=args.sample_every,
        wide=args.wide,
    )
    logging.getLogger("quorate").setLevel(logging.CRITICAL)  # that nodes are away is the purpose
    folder = args.keep or Path(tempfile.mkdtemp(prefix="chaos-"))
    run = Run(settings, folder, lambda line: print(line, flush=True))
    try:
        run.run()
    finally:
        run.close()
        if args.json is not None:
            args.json.write_text(json.dumps(run.result(), indent=1) + "\n")
    for violation in run.violations:
        print(f"FAILED: {violation}")
    if run.violations:
        print(f"seed {args.seed}; the nodes' directories and logs: {folder}")
        return 1
    if args.keep is None:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
