"""The options of `quorate doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_module

if TYPE_CHECKING:
    from quorate.tools.doctor import command
else:
    command = lazy_module("quorate.tools.doctor.command")

_DESCRIPTION = """Checks a properties file and its log directories, or one log directory, of Quorate or of
Apache Kafka, without a running node. It says what is wrong, how to mend it, and what Apache Kafka would say.
It changes nothing without --fix. Ends with 0 if nothing is wrong, with 1 if there are warnings, with 2 if
there are errors."""


def add_doctor(commands: Any) -> None:
    """Adds the command to the subparsers of `quorate`."""
    check = commands.add_parser(
        "doctor", help="check a properties file or a log directory offline", description=_DESCRIPTION
    )
    check.add_argument("path", type=Path, metavar="PATH", help="a node's properties file, or a log directory")
    check.add_argument(
        "--deep", action="store_true", help="verify the checksums of all batches of all partitions"
    )
    check.add_argument(
        "--only-file",
        action="store_true",
        help="do not check the log directories that a properties file names",
    )
    check.add_argument(
        "--fix",
        action="store_true",
        help="make the changes that are safe, after a backup of what they replace",
    )
    check.add_argument("--json", action="store_true", help="print one JSON object instead of the text")
    check.set_defaults(run=lambda args: command.doctor(args))  # noqa: PLW0108 - imported only now
