"""quorate-pipeline: the metadata history of clusters as tables in a lake, and questions to them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_module, lazy_modules
from quorate.tools.command_line import Parser, run
from quorate.tools.lake.doctor import add_doctor
from quorate.tools.lake.generate import add_generate
from quorate.tools.lake.lake_session import lake_session
from quorate.tools.lake.options import add_lake
from quorate.tools.lake.questions import add_questions
from quorate.tools.lake.report.command import add_report
from quorate.tools.lake.topic_options import add_topics
from quorate.tools.lake.upkeep import add_upkeep

if TYPE_CHECKING:
    from quorate.pipeline import lake_source
    from quorate.pipeline.tables import lake as lakes
    from quorate.pipeline.tables import update
    from quorate.tools.client import options as client
else:
    lake_source = lazy_module("quorate.pipeline.lake_source")
    lakes, update = lazy_modules("quorate.pipeline.tables", "lake", "update")
    client = lazy_module("quorate.tools.client.options")

INTERVAL_S = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    return run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    parser = Parser("quorate-pipeline", "The metadata history of Kafka clusters as Delta tables.")
    parser.add_version()
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_run(commands)
    add_upkeep(commands)
    add_questions(commands)
    add_report(commands)
    add_topics(commands, lambda: lake_session("quorate-pipeline", topics=True))
    add_generate(commands)
    add_doctor(commands)
    args = parser.parse_args(argv)
    if "run_on_lake" not in args:
        status: int = args.run(args)
        return status
    with lake_session("quorate-pipeline") as spark:
        args.run_on_lake(lakes.Lake(spark, args.lake), args)
    return 0


def _add_run(commands: Any) -> None:
    command = commands.add_parser("run", help="read what is new, and bring all tables up to date")
    command.add_argument(
        "--source",
        required=True,
        metavar="DIRECTORY|controllers://HOST:PORT,...",
        help="metadata logs, the folder of a node or a cluster (running or not), or a live quorum",
    )
    add_lake(command)
    command.add_argument(
        "--command-config", "-c", metavar="FILE", help="properties of the client, for a live quorum"
    )
    command.add_argument("--follow", action="store_true", help="continue until Ctrl-C")
    command.add_argument(
        "--interval", type=float, default=INTERVAL_S, metavar="SECONDS",
        help=f"how often --follow looks for new records ({INTERVAL_S:g})",
    )  # fmt: skip
    command.set_defaults(run_on_lake=_run)


def _run(lake: lakes.Lake, args: argparse.Namespace) -> None:
    with closing(lake_source.open_source(args.source, client.read_properties(args.command_config))) as source:
        while True:
            done = update.update(lake, source, args.cluster, report=lambda text: print(text, flush=True))
            if not args.follow:
                if done.end == done.start:
                    print(f"{done.cluster}: nothing is new, applied up to offset {done.end - 1}")
                return
            while source.extent(done.end).end == done.end:
                time.sleep(args.interval)


if __name__ == "__main__":
    sys.exit(main())
