"""kafka-leader-election: elects preferred leaders, or unclean leaders of partitions without in-sync
replicas.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, KafkaError, NetError, error_text, java_text
from quorate.admin.types import TopicPartition
from quorate.tools.client.admin_client import add_connection, with_admin
from quorate.tools.client.options import tool_parser
from quorate.tools.command_line import ToolError, run

ELECTIONS = {"PREFERRED": 0, "UNCLEAN": 1}


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    parser = tool_parser(
        "kafka-leader-election",
        "This tool attempts to elect a new leader for a set of topic partitions. The type of elections "
        "supported are preferred replicas and unclean replicas.",
    )
    add_connection(parser)
    add = parser.add_argument
    add("--admin.config", dest="command_config", metavar="<String: config file>", help=argparse.SUPPRESS)
    add(
        "--election-type",
        required=True,
        type=str.upper,
        choices=sorted(ELECTIONS),
        help="The type of election to attempt.",
    )
    add("--topic", metavar="<String: topic name>", help="The topic of the partition, with --partition.")
    add("--partition", type=int, metavar="<Integer: partition id>", help="The partition, with --topic.")
    add("--all-topic-partitions", action="store_true", help="Every partition that needs an election.")
    add(
        "--path-to-json-file", metavar="<String: Path to JSON file>",
        help='Partitions: {"partitions": [{"topic": "foo", "partition": 1}]}',
    )  # fmt: skip
    args = parser.parse_args(argv)
    scopes = (args.topic is not None, args.all_topic_partitions, args.path_to_json_file is not None)
    if sum(scopes) != 1:
        parser.error(
            "One and only one of the following options is required: topic, all-topic-partitions, "
            "path-to-json-file"
        )
    if (args.topic is None) != (args.partition is None):
        parser.error("topic and partition belong together")
    partitions = _partitions(args)
    try:
        return with_admin(args, lambda admin: _elect(admin, args, partitions))
    except (KafkaError, NetError) as error:
        raise ToolError(error_text(error)) from error


def _partitions(args: argparse.Namespace) -> list[TopicPartition] | None:
    if args.all_topic_partitions:
        return None
    if args.topic is not None:
        return [TopicPartition(args.topic, args.partition)]
    try:
        document = json.loads(Path(args.path_to_json_file).read_text("utf-8"))
        found = [
            TopicPartition(str(entry["topic"]), int(entry["partition"])) for entry in document["partitions"]
        ]
    except OSError as error:
        raise ToolError(f"Cannot read {args.path_to_json_file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError):
        raise ToolError(
            'Replica election data must be {"partitions": [{"topic": "foo", "partition": 1}]}'
        ) from None
    if len(set(found)) != len(found):
        raise ToolError("Replica election data contains duplicate partitions")
    return found


async def _elect(
    admin: AdminClient, args: argparse.Namespace, partitions: list[TopicPartition] | None
) -> int:
    results = await admin.elect_leaders(ELECTIONS[args.election_type], partitions)
    done = [str(tp) for tp, error in results.items() if error is None]
    needless = [
        str(tp)
        for tp, error in results.items()
        if error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED
    ]
    failed = {
        tp: e for tp, e in results.items() if e is not None and e.code is not ErrorCode.ELECTION_NOT_NEEDED
    }
    if done:
        print(
            f"Successfully completed leader election ({args.election_type}) for partitions {', '.join(done)}"
        )
    if needless:
        print(f"Valid replica already elected for partitions {', '.join(needless)}")
    for tp, error in failed.items():
        print(
            f"Error completing leader election ({args.election_type}) for partition: {tp}: {java_text(error)}"
        )
    if failed:
        raise ToolError(f"{len(failed)} replica(s) could not be elected")
    return 0
