"""kafka-get-offsets: prints the offsets of partitions at a time."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence

from quorate.admin.client import AdminClient
from quorate.admin.errors import KafkaError, NetError, error_text
from quorate.admin.operations.topics import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from quorate.admin.types import TopicPartition
from quorate.tools.client.admin_client import add_connection, with_admin
from quorate.tools.client.options import INTERNAL_TOPICS, name_filter, tool_parser
from quorate.tools.command_line import Parser, ToolError, run

TIMES = {
    "latest": LATEST, "earliest": EARLIEST, "max-timestamp": MAX_TIMESTAMP, "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
}  # fmt: skip

Filter = Callable[[TopicPartition], bool]


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _parser() -> Parser:
    parser = tool_parser("kafka-get-offsets", "An interactive shell for getting topic-partition offsets.")
    add_connection(parser)
    add = parser.add_argument
    add("--broker-list", dest="bootstrap_server", help=argparse.SUPPRESS)
    add(
        "--topic-partitions", metavar="<String: topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3>",
        help="Topics and partitions: TOPIC_PATTERN:PARTITION_PATTERN. A partition pattern is N, LOWER-UPPER "
        "(without UPPER), LOWER- or -UPPER.",
    )  # fmt: skip
    add(
        "--topic",
        metavar="<String: topic>",
        help="The topic, or a regular expression; all topics without it.",
    )
    add("--partitions", metavar="<String: partition ids>", help="Comma-separated partitions; all without it.")
    add(
        "--time", default="latest", metavar="<String: time>",
        help="A timestamp (first offset at or after it), or -1 or latest, -2 or earliest, -3 or "
        "max-timestamp, -4 or earliest-local, -5 or latest-tiered (default latest).",
    )  # fmt: skip
    add("--exclude-internal-topics", action="store_true", help="Leave internal topics out.")
    return parser


def _main(argv: Sequence[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if args.topic_partitions is not None and (args.topic is not None or args.partitions is not None):
        raise ToolError("--topic-partitions cannot be used with --topic or --partitions")
    chosen = _filter(args)
    try:
        at = TIMES[args.time] if args.time in TIMES else int(args.time)
    except ValueError:
        raise ToolError(
            f"Malformed time argument {args.time}. Please use -1 or latest / -2 or earliest / -3 or "
            "max-timestamp / "
            "-4 or earliest-local / -5 or latest-tiered, or a specified long format timestamp"
        ) from None
    try:
        return with_admin(args, lambda admin: _offsets(admin, args, chosen, at))
    except (KafkaError, NetError) as error:
        raise ToolError(f"Error occurred: {error_text(error)}") from error


def _filter(args: argparse.Namespace) -> Filter:
    if args.topic_partitions is not None:
        filters = [_pair_filter(part.strip()) for part in args.topic_partitions.split(",")]
        return lambda tp: any(wanted(tp) for wanted in filters)
    topic = name_filter(args.topic)
    if args.partitions is None:
        return lambda tp: topic(tp.topic)
    try:
        numbers = {int(part) for part in args.partitions.split(",")}
    except ValueError:
        raise ToolError(
            "--partitions expects a comma separated list of numeric partition ids, but received: "
            f"{args.partitions}"
        ) from None
    return lambda tp: topic(tp.topic) and tp.partition in numbers


def _pair_filter(text: str) -> Filter:
    """Returns the filter of one element of --topic-partitions. Raises ToolError."""
    match = re.fullmatch(r"([^:]*)(?::(?:(?P<one>\d+)|(?P<low>\d*)-(?P<high>\d*)))?", text)
    if match is None:
        raise ToolError(f"Invalid rule specification: {text}")
    topic = name_filter(match[1] or None)
    if match["one"] is not None:
        return lambda tp: topic(tp.topic) and tp.partition == int(match["one"])
    low = int(match["low"] or 0)
    high = int(match["high"]) if match["high"] else sys.maxsize
    return lambda tp: topic(tp.topic) and low <= tp.partition < high


async def _offsets(admin: AdminClient, args: argparse.Namespace, chosen: Filter, at: int) -> int:
    names = [
        t.name
        for t in await admin.list_topics()
        if not (args.exclude_internal_topics and t.name in INTERNAL_TOPICS)
    ]
    leaders = await admin.leaders(names) if names else {}
    partitions = sorted(tp for tp in leaders if chosen(tp))
    if not partitions:
        raise ToolError("Could not match any topic-partitions with the specified filters")
    status = 0
    for tp, found in (await admin.list_offsets(dict.fromkeys(partitions, at))).items():
        if isinstance(found, KafkaError):
            print(
                f"Skip getting offsets for topic-partition {tp} due to error: {error_text(found)}",
                file=sys.stderr,
            )
            status = 1
        elif found.offset >= 0:
            print(f"{tp.topic}:{tp.partition}:{found.offset}")
    return status
