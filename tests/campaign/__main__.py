"""Runs simulations, faults on six processes, and clusters mixed with Apache Kafka, for a given time from one
seed, and writes one report.

    make campaign MINUTES=30 SEED=7
    python -m tests.campaign --minutes 30 --seed 7

Each stage gets a share of the time (tests/campaign/stages.py). With two jobs, the simulations run beside the
others. Ctrl-C ends the stages, and the report covers what ran. The exit status is 1 if a stage failed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.campaign.report import markdown, report
from tests.campaign.runner import Runner
from tests.campaign.stages import ROOT, STAGES, Stage, share_out


def main(argv: Sequence[str] | None = None, stages: Sequence[Stage] = STAGES) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), help="1, or 2 on two cores (default)"
    )
    parser.add_argument("--only", metavar="STAGES", help="names, or parts of names, separated by commas")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="a new folder for the report (default: in build/campaigns)"
    )
    args = parser.parse_args(argv)
    if args.only:
        wanted = args.only.split(",")
        stages = [stage for stage in stages if any(word.strip() in stage.name for word in wanted)]
        if not stages:
            parser.error(f"no stage has a name with {args.only}: {', '.join(s.name for s in STAGES)}")
    now = datetime.datetime.now(datetime.UTC)
    folder = args.out or ROOT / "build" / "campaigns" / f"{now:%Y%m%d-%H%M%S}-seed-{args.seed}"
    folder.mkdir(parents=True)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{(time.monotonic() - began) / 60:6.1f} min  {line}", flush=True)

    runner = Runner(share_out(stages, args.minutes, args.jobs), args.seed, folder.absolute(), say)
    runner.run()
    document = report(
        runner.outcomes, seed=args.seed, minutes=args.minutes, started=f"{now:%Y-%m-%d %H:%M} UTC",
        interrupted=runner.interrupted,
    )  # fmt: skip
    (folder / "report.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / "report.md").write_text(markdown(document))
    say(f"{document['result']}; report: {os.path.relpath(folder / 'report.md')}")
    return 1 if document["failed"] else 130 if runner.interrupted else 0


def end_in_order_on_signals() -> None:
    """Lets SIGTERM end a campaign as Ctrl-C does: its stages have sessions of their own, and would go on.
    A shell that starts it in the background ignores SIGINT, which the stages would inherit.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


if __name__ == "__main__":
    end_in_order_on_signals()
    sys.exit(main())
