"""kafka-log-dirs: describes the log directories of brokers, their replicas and the moves to them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, KafkaError, NetError, error_text, exception_name
from quorate.admin.types import LogDirDescription
from quorate.tools.client.admin_client import add_connection, with_admin
from quorate.tools.client.options import tool_parser
from quorate.tools.command_line import ToolError, run


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    parser = tool_parser(
        "kafka-log-dirs", "This tool helps to query log directory usage on the specified brokers."
    )
    add_connection(parser)
    add = parser.add_argument
    add(
        "--describe",
        action="store_true",
        help="Describe the specified log directories on the specified brokers.",
    )
    add(
        "--topic-list",
        default="",
        metavar="<String: Topic list>",
        help="Topics, comma-separated; all without it.",
    )
    add(
        "--broker-list",
        default="",
        metavar="<String: Broker list>",
        help="Brokers, comma-separated; all without it.",
    )
    args = parser.parse_args(argv)
    if not args.describe:
        parser.error('Missing required argument "[describe]"')
    try:
        return with_admin(args, lambda admin: _describe(admin, args))
    except (KafkaError, NetError) as error:
        raise ToolError(error_text(error)) from error


async def _describe(admin: AdminClient, args: argparse.Namespace) -> int:
    try:
        wanted = {int(part) for part in args.broker_list.split(",") if part.strip()}
    except ValueError:
        raise ToolError(f"--broker-list expects numbers, but received: {args.broker_list}") from None
    topics = {part.strip() for part in args.topic_list.split(",") if part.strip()}
    cluster = {node.id for node in (await admin.describe_cluster()).nodes}
    if wanted - cluster:
        missing, there = (",".join(map(str, sorted(ids))) for ids in (wanted - cluster, cluster))
        raise ToolError(
            f"ERROR: The given brokers do not exist from --broker-list: {missing}. Current existent brokers: "
            f"{there}"
        )
    brokers = sorted(wanted or cluster)
    print("Querying brokers for log directories information")
    found = await admin.describe_log_dirs(brokers, topics or None)
    print(f"Received log directory information from brokers {','.join(map(str, brokers))}")
    shown = [{"broker": broker, "logDirs": [_directory(d) for d in found[broker]]} for broker in brokers]
    print(json.dumps({"brokers": shown, "version": 1}, separators=(",", ":")))
    return 0


def _directory(directory: LogDirDescription) -> dict[str, object]:
    error = None
    if directory.error is not None:
        error = f"org.apache.kafka.common.errors.{exception_name(ErrorCode[directory.error])}"
    return {
        "partitions": [
            {"partition": str(tp), "size": replica.size, "offsetLag": replica.lag, "isFuture": replica.future}
            for tp, replica in sorted(
                [*directory.replicas.items(), *directory.future_replicas.items()], key=lambda item: item[0]
            )
        ],
        "error": error,
        "logDir": directory.path,
    }
