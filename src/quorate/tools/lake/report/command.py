"""The command `quorate-pipeline report`."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_module, lazy_modules
from quorate.tools.command_line import ToolError
from quorate.tools.lake import progress
from quorate.tools.lake.options import add_lake, add_min_isr, add_period

if TYPE_CHECKING:
    from quorate.pipeline.questions import moments
    from quorate.pipeline.tables import lake as lakes
    from quorate.tools.lake.report import collect, page
else:
    moments = lazy_module("quorate.pipeline.questions.moments")
    lakes = lazy_module("quorate.pipeline.tables.lake")
    collect, page = lazy_modules("quorate.tools.lake.report", "collect", "page")


def add_report(commands: Any) -> None:
    """Adds the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "report", help="write a page with pictures: what happened in the cluster"
    )
    add_lake(parser)
    add_period(parser)
    add_min_isr(parser)
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="the HTML file to write")
    parser.add_argument("--title", help="the page's title (default: the name of the cluster)")
    parser.set_defaults(run_on_lake=report)


def report(lake: lakes.Lake, args: argparse.Namespace) -> None:
    """Writes the page. Raises ToolError, OSError, LakeError."""
    if not args.out.parent.is_dir():
        raise ToolError(f"{args.out.parent} is not a directory")
    since, until = moments.parse_moment(args.since), moments.parse_moment(args.until)
    with progress.shown(lake.spark) as shown:
        cluster = moments.cluster_of(lake, args.cluster)
        try:
            found = collect.collect(lake, cluster, since, until, args.min_isr, shown.step)
        except ModuleNotFoundError as error:
            raise ToolError(f"{error.name} is not installed: pip install 'quorate[spark]'") from error
    title = args.title or f"Cluster {cluster}"
    args.out.write_text(page.html(title, found, datetime.now(UTC)), encoding="utf-8")
    print(f"{args.out}: {cluster}, {page.period_text(found.period)}, {args.out.stat().st_size // 1024} KiB")
