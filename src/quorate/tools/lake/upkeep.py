"""The commands of quorate-pipeline that keep a lake small: compact, expire, migrate."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from quorate.lazy import lazy_modules
from quorate.pipeline.spark.delta import RETAIN_HOURS
from quorate.tools.confirmation import confirm
from quorate.tools.times import parse_datetime

if TYPE_CHECKING:
    from quorate.pipeline.tables import lake as lakes
    from quorate.pipeline.tables import schema, update, upkeep
    from quorate.pipeline.tables.lake import Lake
    from quorate.pipeline.topics import positions
    from quorate.pipeline.topics import tables as topics
else:
    positions, topics = lazy_modules("quorate.pipeline.topics", "positions", "tables")
    lakes, schema, update, upkeep = lazy_modules(
        "quorate.pipeline.tables", "lake", "schema", "update", "upkeep"
    )

MAX_RETAIN_HOURS: Final = 1_000_000
"""More than a hundred years. Delta's own limit is a number of milliseconds."""

_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes"}


def add_upkeep(commands: Any) -> None:
    """Adds the commands to the parser."""
    parser = _command(commands, "compact", "join small files, and delete those that no table refers to")
    parser.add_argument(
        "--retain-hours", type=_hours, default=RETAIN_HOURS, metavar="HOURS",
        help=f"keep files for so long that no table refers to any more ({RETAIN_HOURS}); "
        "less only while nothing else uses the lake, because readers and runs may need them",
    )  # fmt: skip
    parser.set_defaults(run_on_lake=_compact)
    parser = _command(commands, "expire", "remove old events; states and histories stay as they are")
    parser.add_argument("--cluster", metavar="NAME", help="only this cluster (default: all)")
    parser.add_argument(
        "--older-than", required=True, metavar="AGE|TIME", type=moment,
        help="such as 90d, 12h, or 2026-11-21T09:20:54 in UTC",
    )  # fmt: skip
    parser.set_defaults(run_on_lake=_expire)
    parser = _command(commands, "migrate", "bring tables of an older release to the schema of this one")
    parser.set_defaults(run_on_lake=_migrate)


def _command(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text)
    parser.add_argument("--lake", required=True, metavar="DIRECTORY", help="the directory of the tables")
    parser.add_argument("--dry-run", action="store_true", help="show the plan, and do nothing")
    parser.add_argument("--yes", "-y", action="store_true", help="perform the plan without asking")
    return parser


def moment(text: str) -> datetime:
    """The time of an age or a time in ISO 8601, in UTC unless it names a zone."""
    age = re.fullmatch(r"(\d+)([dhm])", text)
    try:
        if age is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[age[2]]: int(age[1])})
        return parse_datetime(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text} is neither an age such as 90d nor a time such as 2026-11-21T09:20:54"
        ) from None


def _hours(text: str) -> float:
    value = float(text)
    # A negative time would delete what a run has written and not committed yet.
    if not 0 <= value <= MAX_RETAIN_HOURS:
        raise argparse.ArgumentTypeError(f"{text} h: 0 to {MAX_RETAIN_HOURS:g} h")
    return value


def _is_confirmed(args: argparse.Namespace) -> bool:
    """Asks on a terminal. Raises ToolError if nobody can be asked, or the answer is no."""
    if args.dry_run or args.yes:
        return not args.dry_run
    confirm()
    return True


def _compact(lake: Lake, args: argparse.Namespace) -> None:
    if not lake.exists(positions.POSITIONS):  # a lake may have the tables of topics only
        lake.check_exists()
    found = list(upkeep.files(lake, topics.tables_of_topics(lake)))
    for each in found:
        if each.count:
            print(f"{each.table}: {each.count} files, {_size(each.size_bytes)}: {_joined(each.small)}")
    print(f"Files that no table has referred to for {args.retain_hours:g} hours are deleted.")
    if not _is_confirmed(args):
        return
    for each in found:
        upkeep.compact(lake, each.table, args.retain_hours)
    for after in upkeep.files(lake, topics.tables_of_topics(lake)):
        if after.count:
            print(f"{after.table}: {after.count} files, {_size(after.size_bytes)}")


def _joined(small: int) -> str:
    return f"{small} are small and joined" if small else "nothing to join"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 100_000 else f"{size_bytes / 1e3:.1f} kB"


def _expire(lake: Lake, args: argparse.Namespace) -> None:
    lake.check_exists()
    clusters = lake.clusters() if args.cluster is None else [args.cluster]
    found = [upkeep.older_than(lake, cluster, args.older_than) for cluster in clusters]
    for each in found:
        print(
            f"{each.cluster}: {each.records} events before offset {each.offset} are older than "
            f"{args.older_than.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        )
    found = [each for each in found if each.records]
    if not found or not _is_confirmed(args):
        return
    for each in found:
        upkeep.expire(lake, each, print)
        print(f"{each.cluster}: removed. Their files are deleted by quorate-pipeline compact.")


def _migrate(lake: Lake, args: argparse.Namespace) -> None:
    lake.check_exists()
    found = schema.outdated(lake)
    if not found:
        print(f"{lake.folder} has schema {lakes.SCHEMA}: there is nothing to do.")
        return
    for cluster, version in found.items():
        for step in schema.MIGRATIONS[version - 1 :]:
            print(f"{cluster}: schema {step.schema - 1} to {step.schema}: {step.meaning}")
    if _is_confirmed(args):
        update.migrate_all(lake, print)
