"""The options of `quorate plan`."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_module

if TYPE_CHECKING:
    from quorate.tools.plan import command
else:
    command = lazy_module("quorate.tools.plan.command")

_DESCRIPTION = """Plans which replicas move to which brokers, and which of them leads. Nothing is changed
without
--execute. The purposes --balance, --drain, --drain-rack, --add and --replication-factor can be combined;
--balance is assumed if none is given. Works with clusters of Apache Kafka too."""

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def add_plan(commands: Any) -> None:
    """Adds the command to the subparsers of `quorate`."""
    parser = commands.add_parser(
        "plan", help="plan which replicas move to which brokers", description=_DESCRIPTION
    )
    add = parser.add_argument
    add("--bootstrap-server", "-b", help="brokers to connect to, host:port,host:port")
    add("--command-config", "-c", help="properties of the admin client")
    tables = parser.add_argument_group("a plan from the tables of a lake, instead of a running cluster")
    add = tables.add_argument
    add("--lake", metavar="DIRECTORY", help="the directory of the tables (quorate-pipeline run writes them)")
    add("--cluster", metavar="NAME", help="the cluster's name in the lake (default: the only one)")
    add("--at", metavar="OFFSET|TIME", help="plan for then, instead of for the end of the lake")
    add(
        "--log-dirs", metavar="FILE",
        help="the bytes of replicas: what kafka-log-dirs --describe has printed. With --bootstrap-server, "
        "the brokers tell them",
    )  # fmt: skip
    purposes = parser.add_argument_group("purposes")
    add = purposes.add_argument
    add("--balance", action="store_true", help="even out the load of all brokers")
    add("--drain", type=_ids, metavar="BROKERS", help="brokers that are to have no replicas: 3 or 3,4")
    add("--drain-rack", action="append", default=[], metavar="RACK", help="drain all brokers of a rack")
    add(
        "--add", type=_ids, nargs="?", const=frozenset(), metavar="BROKERS",
        help="give brokers their share, by default those without replicas",
    )  # fmt: skip
    add("--replication-factor", type=_positive, metavar="N", help="change it for the topics of --topic")
    add("--topic", metavar="PATTERN", help="a regular expression for names of topics")
    add("--exclude", metavar="PATTERN", help="leave the topics with such names as they are")
    limits = parser.add_argument_group("limits")
    add = limits.add_argument
    add(
        "--tolerance", type=percent, default=0.05, metavar="PERCENT",
        help="how far a broker may be from its fair share (5)",
    )  # fmt: skip
    add(
        "--disk-limit", type=percent, default=0.8, metavar="PERCENT",
        help="how full a plan may make the disks of a broker (80)",
    )  # fmt: skip
    add(
        "--wave-bytes", type=size, default=50 << 30, metavar="BYTES",
        help="what a broker sends and receives in a wave, 500M or 50G (50G)",
    )  # fmt: skip
    add(
        "--wave-moves", type=_positive, default=100, metavar="N",
        help="how many replicas a broker sends and receives in a wave (100)",
    )  # fmt: skip
    output = parser.add_argument_group("output")
    add = output.add_argument
    add("--out", metavar="DIRECTORY", help="write the plan: a file for each wave, and rollback.json")
    add("--json", action="store_true", help="print one JSON object instead of the tables")
    execution = parser.add_argument_group("execution of a plan that --out has written")
    actions = execution.add_mutually_exclusive_group()
    add = actions.add_argument
    add("--execute", metavar="DIRECTORY", help="carry out a plan, or continue it after an interruption")
    add("--pause", metavar="DIRECTORY", help="let --execute stop after the wave that it is at")
    add("--cancel", metavar="DIRECTORY", help="cancel the moves of a plan that are under way")
    add = execution.add_argument
    add(
        "--throttle", type=_positive, metavar="BYTES/SEC",
        help="the rate to which each broker limits the moves",
    )  # fmt: skip
    add("--preserve-throttles", action="store_true", help="do not remove throttles at the end")
    add(
        "--interval", type=_interval, default=5.0, metavar="SECONDS",
        help="how often --execute prints its progress (5)",
    )  # fmt: skip
    parser.set_defaults(run=lambda args: command.run(args))  # noqa: PLW0108 - imported only now


def _ids(text: str) -> frozenset[int]:
    try:
        return frozenset(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expects broker ids separated by commas, not {text}") from None


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return value


def percent(text: str) -> float:
    """Parses a percentage as a fraction. Raises ArgumentTypeError, ValueError."""
    value = float(text.removesuffix("%"))
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text}: 0 to 100")
    return value / 100


def _interval(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} s: 0.1 to 3600 s")
    return value


def size(text: str) -> int:
    """Parses a number of bytes, with K, M, G or T for powers of 1024."""
    found = re.fullmatch(r"(\d+)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"expects a number of bytes, such as 500M or 50G, not {text}")
    return int(found[1]) * UNITS[found[2].upper()]
