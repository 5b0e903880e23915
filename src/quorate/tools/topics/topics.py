"""kafka-topics: creates, deletes, lists, describes topics, and adds partitions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, KafkaError, NetError, error_text
from quorate.admin.types import (
    ConfigEntry,
    NewTopic,
    PartitionDescription,
    Reassignment,
    TopicDescription,
    TopicPartition,
)
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.uuids import ZERO_UUID, parse_uuid, uuid_text
from quorate.tools.client.admin_client import add_connection, with_admin
from quorate.tools.client.options import INTERNAL_TOPICS, key_values, name_filter, tool_parser
from quorate.tools.command_line import Parser, ToolError, run

REPORTS = (
    "under_replicated_partitions",
    "unavailable_partitions",
    "under_min_isr_partitions",
    "at_min_isr_partitions",
)
ACTIONS = ("list", "describe", "create", "alter", "delete")

_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "config": ("create",),
    "partitions": ("alter", "create"),
    "replication_factor": ("create",),
    "replica_assignment": ("alter", "create"),
    "if_exists": ("alter", "delete", "describe"),
    "if_not_exists": ("create",),
    "exclude_internal": ("list", "describe"),
    "topics_with_overrides": ("describe",),
} | dict.fromkeys(REPORTS, ("describe",))
"""The actions that accept an option."""


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _parser() -> Parser:
    parser = tool_parser("kafka-topics", "This tool helps to create, delete, describe, or change a topic.")
    add_connection(parser)
    add = parser.add_argument
    add("--list", action="store_true", help="List all available topics.")
    add("--describe", action="store_true", help="List details for the given topics.")
    add("--create", action="store_true", help="Create a new topic.")
    add(
        "--alter",
        action="store_true",
        help="Alter the number of partitions (kafka-configs alters configurations).",
    )
    add("--delete", action="store_true", help="Delete a topic.")
    add(
        "--topic",
        metavar="<String: topic>",
        help="The topic; except with --create a regular expression is taken too.",
    )
    add("--topic-id", metavar="<String: topic-id>", help="The id of the topic to describe.")
    add(
        "--config", action="append", metavar="<String: name=value>",
        help="A configuration of the topic being created; may be repeated.",
    )  # fmt: skip
    add(
        "--partitions",
        type=int,
        metavar="<Integer: # of partitions>",
        help="How many partitions the topic is to have.",
    )
    add(
        "--replication-factor",
        type=int,
        metavar="<Integer: replication factor>",
        help="Replicas of each partition.",
    )
    add(
        "--replica-assignment", metavar="<String: broker_id_for_part1_replica1:..., ...>",
        help="Brokers of each partition, replicas separated by colons and partitions by commas.",
    )  # fmt: skip
    add("--under-replicated-partitions", action="store_true", help="Show only under-replicated partitions.")
    add(
        "--unavailable-partitions",
        action="store_true",
        help="Show only partitions whose leader is not available.",
    )
    add(
        "--under-min-isr-partitions",
        action="store_true",
        help="Show only partitions below min.insync.replicas.",
    )
    add(
        "--at-min-isr-partitions",
        action="store_true",
        help="Show only partitions at min.insync.replicas.",
    )
    add(
        "--topics-with-overrides",
        action="store_true",
        help="Show only topics with configurations of their own.",
    )
    add("--if-exists", action="store_true", help="Do nothing when the topic does not exist.")
    add("--if-not-exists", action="store_true", help="Do nothing when the topic exists already.")
    add("--exclude-internal", action="store_true", help="Leave internal topics out.")
    add(
        "--partition-size-limit-per-response", type=int, default=2000, metavar="<Integer>",
        help="How many partitions one response may describe.",
    )  # fmt: skip
    return parser


def _main(argv: Sequence[str]) -> int:
    parser = _parser()
    if not argv:
        parser.error("Create, delete, describe, or change a topic.")
    args = parser.parse_args(argv)
    action = _check(parser, args)
    try:
        return with_admin(args, lambda admin: _ACTIONS[action](admin, args))
    except (KafkaError, NetError, _Rejected) as error:
        raise ToolError(f"Error while executing topic command : {error_text(error)}") from error


class _Rejected(Exception):  # noqa: N818 - a message for the user
    """The command cannot be executed in the current state of the cluster."""


def _check(parser: Parser, args: argparse.Namespace) -> str:
    actions = [action for action in ACTIONS if getattr(args, action)]
    if len(actions) != 1:
        parser.error(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
        )
    action = actions[0]
    if not args.bootstrap_server:
        raise ToolError("--bootstrap-server must be specified")
    if action not in ("list", "describe") and args.topic is None:
        parser.error('Missing required argument "[topic]"')
    if action == "describe" and args.if_exists and args.topic is None and args.topic_id is None:
        parser.error("--topic or --topic-id is required to describe a topic")
    if action == "alter" and args.config:
        parser.error(
            'Option "[config]" can\'t be used with option "[alter]" '
            "(the kafka-configs tool alters configurations)"
        )
    if action == "alter" and args.partitions is None:
        parser.error('Missing required argument "[partitions]"')
    for name, allowed in _ALLOWED.items():
        if getattr(args, name) and action not in allowed:
            parser.error(f'Option "[{name.replace("_", "-")}]" can\'t be used with option "[{action}]"')
    if action == "create" and args.replica_assignment and (args.partitions or args.replication_factor):
        parser.error(
            'Option "[replica-assignment]" can\'t be used with option "[partitions]" '
            'or "[replication-factor]"'
        )
    if args.topics_with_overrides and any(getattr(args, report) for report in REPORTS):
        parser.error(
            'Option "[topics-with-overrides]" can\'t be used with the options that report partitions'
        )
    return action


def parse_assignment(text: str) -> dict[int, list[int]]:
    """Parses "1:2,2:3" into the brokers of each partition. Raises _Rejected."""
    found: dict[int, list[int]] = {}
    for index, part in enumerate(text.split(",")):
        try:
            brokers = [int(broker) for broker in part.split(":")]
        except ValueError:
            raise _Rejected(f'For input string: "{part}": broker ids are numbers') from None
        repeated = sorted({b for b in brokers if brokers.count(b) > 1})
        if repeated:
            raise _Rejected(
                f"Partition replica lists may not contain duplicate entries: {','.join(map(str, repeated))}"
            )
        found[index] = brokers
        if len(brokers) != len(found[0]):
            raise _Rejected(f"Partition {index} has different replication factor: {brokers}")
    return found


def _raise_first(results: Mapping[str, KafkaError | None]) -> None:
    for error in results.values():
        if error is not None:
            raise error


async def _topics(admin: AdminClient, args: argparse.Namespace) -> list[str]:
    """Returns the names that --topic selects.

    Raises _Rejected if there are none, unless --if-exists is set.
    """
    wanted = name_filter(args.topic)
    listed = [t.name for t in await admin.list_topics()]
    internal = INTERNAL_TOPICS if args.exclude_internal else frozenset()
    names = [name for name in listed if wanted(name) and name not in internal]
    if args.topic and not names and not args.if_exists and not args.list:
        raise _Rejected(f"Topic '{args.topic}' does not exist as expected")
    return names


async def _create(admin: AdminClient, args: argparse.Namespace) -> int:
    if "." in args.topic or "_" in args.topic:
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') "
            "could collide. To avoid issues it is best to use either, but not both."
        )
    if args.replication_factor is not None and not 1 <= args.replication_factor <= 32767:
        raise _Rejected("The replication factor must be between 1 and 32767 inclusive")
    if args.partitions is not None and args.partitions < 1:
        raise _Rejected("The partitions must be greater than 0")
    if any("=" not in text for text in args.config or ()):
        raise _Rejected('Invalid topic config: all configs to be added must be in the format "key=val".')
    topic = NewTopic(
        args.topic,
        -1 if args.partitions is None else args.partitions,
        -1 if args.replication_factor is None else args.replication_factor,
        parse_assignment(args.replica_assignment) if args.replica_assignment else {},
        key_values(args.config or (), "topic config"),
    )
    error = (await admin.create_topics([topic]))[args.topic]
    if error is None:
        print(f"Created topic {args.topic}.")
    elif not (args.if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
        raise error
    return 0


async def _list(admin: AdminClient, args: argparse.Namespace) -> int:
    print("\n".join(await _topics(admin, args)))
    return 0


async def _alter(admin: AdminClient, args: argparse.Namespace) -> int:
    names = await _topics(admin, args)
    if not names:
        return 0
    assignments = None
    if args.replica_assignment:
        given = parse_assignment(args.replica_assignment)
        described = await admin.describe_topics(names)
        assignments = {n: [b for p, b in given.items() if p >= len(described[n].partitions)] for n in names}
    _raise_first(await admin.create_partitions(dict.fromkeys(names, args.partitions), assignments))
    return 0


async def _delete(admin: AdminClient, args: argparse.Namespace) -> int:
    names = await _topics(admin, args)
    if names:
        _raise_first(await admin.delete_topics(names))
    return 0


async def _describe(admin: AdminClient, args: argparse.Namespace) -> int:
    names = await _described_names(admin, args)
    if not names:
        return 0
    described = await admin.describe_topics(names, partition_limit=args.partition_size_limit_per_response)
    configs = await admin.describe_configs([(ConfigResourceType.TOPIC, name) for name in described])
    live = {node.id for node in (await admin.describe_cluster()).nodes}
    try:
        moving = await admin.list_partition_reassignments()
    except (KafkaError, NetError):
        moving = {}
    for name, topic in described.items():
        entries = configs[ConfigResourceType.TOPIC, name]
        if isinstance(entries, KafkaError):
            raise entries
        _print_topic(args, topic, entries, moving)
        if not args.topics_with_overrides:
            min_isr = next((int(e.value or 1) for e in entries if e.name == "min.insync.replicas"), 1)
            for partition in topic.partitions:
                reassignment = moving.get(TopicPartition(name, partition.partition))
                if _is_reported(args, partition, reassignment, min_isr, live):
                    print(partition_line(name, partition, reassignment))
    return 0


async def _described_names(admin: AdminClient, args: argparse.Namespace) -> list[str]:
    if args.topic_id is None:
        return await _topics(admin, args)
    topic_id = parse_uuid(args.topic_id)
    if topic_id == ZERO_UUID:
        return await _topics(admin, args)
    names = [
        t.name for t in await admin.list_topics(internal=not args.exclude_internal) if t.topic_id == topic_id
    ]
    if not names and not args.if_exists:
        raise _Rejected(f"TopicId '{args.topic_id}' does not exist as expected")
    return names


def _print_topic(
    args: argparse.Namespace,
    topic: TopicDescription,
    entries: Sequence[ConfigEntry],
    moving: Mapping[TopicPartition, Reassignment],
) -> None:
    if any(getattr(args, report) for report in REPORTS):
        return
    own = [entry for entry in entries if not entry.is_default]
    if args.topics_with_overrides and not own:
        return
    first = topic.partitions[0]
    factor = _replication_factor(first, moving.get(TopicPartition(topic.name, first.partition)))
    topic_id = f"\tTopicId: {uuid_text(topic.topic_id)}" if topic.topic_id != ZERO_UUID else ""
    configs = ",".join(f"{entry.name}={'null' if entry.value is None else entry.value}" for entry in own)
    print(
        f"Topic: {topic.name}{topic_id}\tPartitionCount: {len(topic.partitions)}\tReplicationFactor: "
        f"{factor}\tConfigs: {configs}"
    )


def _replication_factor(partition: PartitionDescription, moving: Reassignment | None) -> int:
    if moving is not None and set(partition.replicas) & {*moving.adding, *moving.removing}:
        return len(moving.replicas) - len(moving.adding)
    return len(partition.replicas)


def _is_reported(
    args: argparse.Namespace,
    partition: PartitionDescription,
    moving: Reassignment | None,
    min_isr: int,
    live: set[int],
) -> bool:
    if not any(getattr(args, report) for report in REPORTS):
        return True
    return bool(
        (args.under_replicated_partitions and _replication_factor(partition, moving) > len(partition.isr))
        or (args.unavailable_partitions and partition.leader not in live)
        or (args.under_min_isr_partitions and (partition.leader < 0 or len(partition.isr) < min_isr))
        or (args.at_min_isr_partitions and len(partition.isr) == min_isr)
    )


def partition_line(topic: str, partition: PartitionDescription, moving: Reassignment | None = None) -> str:
    """Returns the line of a partition in `--describe`."""

    def ids(brokers: Sequence[int] | None) -> str:
        return "N/A" if brokers is None else ",".join(map(str, brokers))

    leader = partition.leader if partition.leader >= 0 else "none"
    line = f"\tTopic: {topic}\tPartition: {partition.partition}\tLeader: {leader}"
    line += f"\tReplicas: {ids(partition.replicas)}\tIsr: {ids(partition.isr)}"
    if moving is not None:
        line += f"\tAdding Replicas: {ids(moving.adding)}\tRemoving Replicas: {ids(moving.removing)}"
    return line + f"\tElr: {ids(partition.elr)}\tLastKnownElr: {ids(partition.last_known_elr)}"


_ACTIONS = {"list": _list, "describe": _describe, "create": _create, "alter": _alter, "delete": _delete}
