"""The options of `quorate status`."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_module

if TYPE_CHECKING:
    from quorate.tools.quorum import status
else:
    status = lazy_module("quorate.tools.quorum.status")


def add_status(commands: Any) -> None:
    """Adds the command to the subparsers of `quorate`."""
    show = commands.add_parser("status", help="show all nodes of a cluster in one table")
    where = show.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-server", "-b", help="brokers to connect to, host:port,host:port")
    where.add_argument("--bootstrap-controller", "-C", help="controllers to connect to, host:port,host:port")
    show.add_argument("--command-config", "-c", help="properties of the admin client")
    show.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    show.add_argument("--watch", type=seconds, metavar="SECONDS", help="repeat it after so many seconds")
    show.set_defaults(run=lambda args: status.status(args))  # noqa: PLW0108 - imported only now


def seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} s: at least 0.1 s")
    return value
