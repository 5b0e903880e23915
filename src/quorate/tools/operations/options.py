"""The options of the operations. They are parsed without importing the operations."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_modules
from quorate.tools.plan.options import percent
from quorate.tools.times import epoch_ms, parse_datetime

if TYPE_CHECKING:
    from quorate.tools.operations import commands
else:
    (commands,) = lazy_modules("quorate.tools.operations", "commands")

DEFAULT_TIMEOUT_S = 300.0
DEFAULT_MOVES = 50
_LARGEST_ID = 2**31 - 1

_RESTART = """Restarts each node by a command of yours, one after the other: brokers first, then controllers,
the active controller last. Before each node it waits until the one before is unfenced and in each ISR, and
the controllers follow their leader. A node that has started since --since is not restarted again: so a
restart that was interrupted is continued."""
_DECOMMISSION = """Moves all replicas of a broker to the other brokers, removes it from the voters if it is
one, has it stopped, and removes its registration."""
_REPLACE = """Replaces the disk of a broker or controller: has the node stopped, waits until it has registered
with a new directory, and until all replicas are in sync again. A controller's voter is replaced too."""
_DYNAMIC = """Moves a quorum with static voters (controller.quorum.voters) to kraft.version 1 (KIP-853), and
shows which nodes still have the static voters in their properties."""
_UPGRADE = """Finalizes the feature levels of a release, after all nodes run its software. What blocks is
shown completely."""


def add_operations(commands_of_quorate: Any) -> None:
    """Adds the commands to the subparsers of `quorate`."""
    add = commands_of_quorate.add_parser
    restart = add("rolling-restart", help="restart all nodes, one after the other", description=_RESTART)
    restart.add_argument(
        "--restart-command", metavar="COMMAND", required=True,
        help="restarts one node and then ends, like 'ssh {host} systemctl restart kafka'; placeholders: "
        "{id} {host} {port} {rack} {roles} {cluster_id}",
    )  # fmt: skip
    restart.add_argument(
        "--since", type=time_ms, metavar="TIME",
        help="nodes that started since then are not restarted, like 2026-11-23T08:30:00Z (now)",
    )  # fmt: skip
    which = restart.add_mutually_exclusive_group()
    which.add_argument("--nodes", type=node_ids, metavar="ID,ID,...", help="only these nodes (all)")
    which.add_argument("--brokers", action="store_true", help="only brokers")
    which.add_argument("--controllers", action="store_true", help="only controllers")
    _allow_unavailable(restart)
    _common(restart, "rolling_restart")
    decommission = add("decommission", help="take a broker out of the cluster", description=_DECOMMISSION)
    decommission.add_argument("broker", type=node_id, metavar="BROKER", help="the id of the broker")
    decommission.add_argument(
        "--stop-command", metavar="COMMAND",
        help="stops the broker and then ends, like 'ssh {host} systemctl stop kafka' (placeholders as of "
        "rolling-restart); without it, the command waits until the broker has been stopped",
    )  # fmt: skip
    decommission.add_argument(
        "--throttle",
        type=positive,
        metavar="BYTES",
        help="limit of the moves in bytes/s on each broker (none)",
    )
    decommission.add_argument(
        "--max-moves", type=positive, default=DEFAULT_MOVES, metavar="NUMBER",
        help=f"how many partitions move at once ({DEFAULT_MOVES})",
    )  # fmt: skip
    decommission.add_argument(
        "--disk-limit", type=percent, default=0.8, metavar="PERCENT",
        help="how full the moves may make the disks of a broker, each for itself (80)",
    )  # fmt: skip
    decommission.add_argument(
        "--disable-rack-aware", action="store_true", help="ignore the racks of the brokers"
    )
    _common(decommission, "decommission")
    replace = add("replace-disk", help="replace a disk of a broker or controller", description=_REPLACE)
    replace.add_argument("node", type=node_id, metavar="NODE", help="the id of the node")
    replace.add_argument(
        "--directory-id", metavar="ID",
        help="the directory id on the disk to replace, from its meta.properties; may be omitted without "
        "--yes if the node has one directory",
    )  # fmt: skip
    for name, what in (
        ("stop", "stops the node"),
        ("replace", "replaces the disk, formats it and starts the node (it may be run again)"),
    ):
        replace.add_argument(
            f"--{name}-command", metavar="COMMAND",
            help=f"{what}, and then ends (placeholders as of rolling-restart); without it, the command "
            "waits for you to do it",
        )  # fmt: skip
    _allow_unavailable(replace)
    _common(replace, "replace_disk")
    dynamic = add(
        "move-to-dynamic-quorum", help="from static voters to kraft.version 1", description=_DYNAMIC
    )
    _common(dynamic, "dynamic_quorum")
    upgrade = add("upgrade", help="finalize the features of a release", description=_UPGRADE)
    upgrade.add_argument(
        "--release-version", metavar="RELEASE",
        help="the release, like 4.4 or 4.4-IV1 (the latest that all nodes support)",
    )  # fmt: skip
    _common(upgrade, "upgrade")


def _allow_unavailable(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-unavailable", action="store_true",
        help="accept that partitions, or the metadata quorum, are unavailable while a node is stopped",
    )  # fmt: skip


def _common(parser: argparse.ArgumentParser, name: str) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-server", "-b", help="brokers to connect to, host:port,host:port")
    where.add_argument("--bootstrap-controller", "-C", help="controllers to connect to, host:port,host:port")
    parser.add_argument("--command-config", "-c", help="properties of the admin client")
    parser.add_argument("--dry-run", action="store_true", help="show the plan, and do nothing")
    parser.add_argument("--yes", "-y", action="store_true", help="perform the plan without asking")
    parser.add_argument("--json", action="store_true", help="print one JSON object in each line")
    parser.add_argument(
        "--timeout", type=seconds, default=DEFAULT_TIMEOUT_S, metavar="SECONDS",
        help=f"give up if nothing changes for so long ({DEFAULT_TIMEOUT_S:g})",
    )  # fmt: skip
    parser.set_defaults(run=lambda args: commands.run(name, args))


def seconds(text: str) -> float:
    value = float(text)
    if not 1 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} s: at least 1 s")
    return value


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return value


def node_id(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text[:11]) <= _LARGEST_ID:
        raise argparse.ArgumentTypeError(f"{text}: a node id, 0 to {_LARGEST_ID}")
    return int(text)


def node_ids(text: str) -> list[int]:
    try:
        return [node_id(part.strip()) for part in text.split(",")]
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text}: node ids, separated by commas") from None


def time_ms(text: str) -> int:
    """Parses a time in ISO 8601, in UTC unless it has a zone."""
    try:
        return epoch_ms(parse_datetime(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: a time like 2026-11-23T08:30:00Z") from None
