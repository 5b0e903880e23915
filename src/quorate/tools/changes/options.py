"""The options of `quorate metadata log`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_module

if TYPE_CHECKING:
    from quorate.tools.changes import metadata_log
else:
    metadata_log = lazy_module("quorate.tools.changes.metadata_log")

MAX_RECORDS = 10
"""The records of a change that are shown as text. A change may have thousands."""


_DESCRIPTION = """Prints each change of the metadata: when and by whom, and its records."""


def add_metadata_log(commands: Any) -> None:
    """Adds `metadata log` to the subparsers of `quorate`."""
    metadata = commands.add_parser("metadata", help="show the metadata log")
    about = metadata.add_subparsers(dest="about", metavar="COMMAND", required=True)
    parser = about.add_parser("log", help="show who changed what", description=_DESCRIPTION)
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="only what concerns this topic")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--directory", "-d", type=Path, metavar="DIR",
        help="the metadata log directory of a node, which may run, or the directory that holds it",
    )  # fmt: skip
    where.add_argument(
        "--snapshot", "-s", type=Path, metavar="FILE", help="a snapshot, or a segment of the log"
    )
    where.add_argument(
        "--bootstrap-controller", "-C", metavar="HOST:PORT,...", help="the controllers of a running quorum"
    )
    parser.add_argument("--command-config", "-c", metavar="FILE", help="properties of the client")
    parser.add_argument("--principal", metavar="NAME", help="only changes by this principal")
    parser.add_argument(
        "--since", metavar="TIME", help="only changes from this time on: ISO 8601, or 90s, 10m, 2h, 3d"
    )
    parser.add_argument("--until", metavar="TIME", help="only changes before this time")
    parser.add_argument("--last", type=_count, metavar="N", help="only the last N changes")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per change, with all records"
    )
    parser.add_argument(
        "--all-records", dest="max_records", action="store_const", const=sys.maxsize, default=MAX_RECORDS,
        help=f"print all records of a change (the first {MAX_RECORDS})",
    )  # fmt: skip
    parser.add_argument(
        "--follow", "-f", action="store_true", help="go on with each new change; with --bootstrap-controller"
    )
    parser.set_defaults(run=lambda args: metadata_log.metadata_log(args))  # noqa: PLW0108 - imported only now


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return value
