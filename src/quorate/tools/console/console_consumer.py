"""kafka-console-consumer: prints the records of topics."""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module
from quorate.tools.client.options import key_values, read_properties, tool_parser
from quorate.tools.command_line import Parser, ToolError, run
from quorate.tools.console.librdkafka_properties import flag, for_consumer, number
from quorate.tools.console.message_format import Formatter, make_formatter

if TYPE_CHECKING:
    from quorate.tools.console import receiver
else:
    receiver = lazy_module("quorate.tools.console.receiver")


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _parser() -> Parser:
    parser = tool_parser(
        "kafka-console-consumer",
        "This tool helps to read data from Kafka topics and outputs it to standard output.",
    )
    add = parser.add_argument
    add(
        "--bootstrap-server",
        required=True,
        metavar="<String: server to connect to>",
        help="REQUIRED: The servers to connect to.",
    )
    add("--topic", metavar="<String: topic>", help="The topic to consume on.")
    add("--include", metavar="<String: regex>", help="Regular expression of the topics to consume.")
    add(
        "--partition",
        type=int,
        metavar="<Integer: partition>",
        help="The partition to consume, from --offset on.",
    )
    add(
        "--offset",
        metavar="<String: consume offset>",
        help="A number, earliest or latest (default).",
    )
    add(
        "--from-beginning",
        action="store_true",
        help="Begin with the earliest record where the group has no offset yet.",
    )
    add(
        "--max-messages",
        type=int,
        metavar="<Integer: num_messages>",
        help="End after this many records.",
    )
    add("--timeout-ms", type=int, metavar="<Long: timeout_ms>", help="End when no record came for this long.")
    add("--group", metavar="<String: consumer group id>", help="The consumer group id of the consumer.")
    add(
        "--isolation-level", metavar="<String>", choices=["read_committed", "read_uncommitted"],
        help="read_committed leaves out records of aborted transactions (default read_uncommitted).",
    )  # fmt: skip
    add(
        "--skip-message-on-error",
        action="store_true",
        help="Skip a record that cannot be printed instead of ending.",
    )
    add(
        "--formatter", default="DefaultMessageFormatter", metavar="<String: class>",
        help="How records are printed: DefaultMessageFormatter, LoggingMessageFormatter, "
        "NoOpMessageFormatter, OffsetsMessageFormatter, GroupMetadataMessageFormatter or "
        "TransactionLogMessageFormatter (Java's full names are accepted too).",
    )  # fmt: skip
    add(
        "--property", "--formatter-property", action="append", default=[], metavar="<String: prop>",
        help="How records are printed: print.timestamp, print.key, print.offset, print.epoch, "
        "print.partition, print.headers, print.value =true|false, key.separator, line.separator, "
        "headers.separator, null.literal, key.deserializer, value.deserializer, headers.deserializer.",
    )  # fmt: skip
    add(
        "--formatter-config",
        metavar="<String: config file>",
        help="Property file for printing; --property wins.",
    )
    add("--key-deserializer", metavar="<String>", help="Deserializer of keys.")
    add("--value-deserializer", metavar="<String>", help="Deserializer of values.")
    add(
        "--consumer-property", "--command-property", action="append", default=[],
        metavar="<String: consumer_prop>",
        help="key=value for the consumer: Kafka's consumer properties and librdkafka's.",
    )  # fmt: skip
    add(
        "--consumer.config", "--command-config", dest="consumer_config", metavar="<String: config file>",
        help="Property file for the consumer; --consumer-property wins.",
    )  # fmt: skip
    add("--enable-systest-events", action="store_true", help=argparse.SUPPRESS)
    return parser


def _main(argv: Sequence[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    _check(parser, args)
    file_properties = read_properties(args.consumer_config)
    extra = key_values(args.consumer_property, "consumer property")
    groups = {g for g in (args.group, file_properties.get("group.id"), extra.get("group.id")) if g}
    if len(groups) > 1:
        shown = ", ".join(f"'{group}'" for group in sorted(groups))
        parser.error(f"The group ids provided in different places do not match. Detected group ids: {shown}")
    if groups and args.partition is not None:
        parser.error("Options group and partition cannot be specified together.")
    offset = _offset(parser, args.offset)
    group = groups.pop() if groups else None
    properties = consumer_properties(args, file_properties | extra, group)
    format_properties = read_properties(args.formatter_config)
    if args.key_deserializer:
        format_properties["key.deserializer"] = args.key_deserializer
    if args.value_deserializer:
        format_properties["value.deserializer"] = args.value_deserializer
    formatter = make_formatter(args.formatter, format_properties | key_values(args.property, "property"))
    return _consume(args, properties, offset, formatter, group is not None)


def _check(parser: Parser, args: argparse.Namespace) -> None:
    if (args.topic is None) == (args.include is None):
        parser.error("Exactly one of --include/--topic is required. ")
    if args.partition is not None:
        if args.topic is None:
            parser.error("The topic is required when partition is specified.")
        if args.from_beginning and args.offset is not None:
            parser.error("Options from-beginning and offset cannot be specified together.")
    elif args.offset is not None:
        parser.error("The partition is required when offset is specified.")


def _offset(parser: Parser, text: str | None) -> int | str | None:
    """Returns the value of --offset: a number, `earliest` or `latest`."""
    if text is None or text.lower() in ("earliest", "latest"):
        return None if text is None else text.lower()
    if not (text.isascii() and text.isdigit()):
        parser.error(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a "
            "non-negative long."
        )
    return int(text)


def consumer_properties(
    args: argparse.Namespace, given: Mapping[str, str], group: str | None
) -> dict[str, str]:
    """Returns the properties of the consumer. An option wins over a property, and a property over a default
    of the tool. Raises ToolError.
    """
    properties = {"client.id": "console-consumer", **given, "bootstrap.servers": args.bootstrap_server}
    reset = properties.get("auto.offset.reset")
    if reset is None:
        properties["auto.offset.reset"] = "earliest" if args.from_beginning else "latest"
    elif args.from_beginning and reset != "earliest":
        raise ToolError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove "
            "one option"
        )
    if args.isolation_level is not None:
        properties["isolation.level"] = args.isolation_level
    if group is None:
        # librdkafka requires a group id. Without a group the consumer does not join it and commits nothing.
        properties["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        properties["enable.auto.commit"] = "false"
    else:
        properties["group.id"] = group
    return properties


_TOOL_PROPERTIES = (
    "default.api.timeout.ms",
    "max.poll.records",
    "exclude.internal.topics",
    "enable.auto.offset.store",
)


def _consume(
    args: argparse.Namespace,
    properties: Mapping[str, str],
    offset: int | str | None,
    formatter: Formatter,
    group: bool,
) -> int:
    api_timeout_ms = number(properties, "default.api.timeout.ms", 60_000)
    max_poll_records = max(1, number(properties, "max.poll.records", 500))
    internal_topics = not flag(properties, "exclude.internal.topics", True)
    commit = flag(properties, "enable.auto.commit", True)
    settings = for_consumer(
        {name: value for name, value in properties.items() if name not in _TOOL_PROPERTIES}
    )
    settings.settings["enable.auto.offset.store"] = "false"
    selection = receiver.Selection(
        topic=args.topic,
        pattern=args.include,
        partition=args.partition,
        start=properties["auto.offset.reset"] if offset is None else offset,
        group=group,
        commit=commit,
        internal_topics=internal_topics,
        max_messages=args.max_messages if args.max_messages is not None and args.max_messages >= 0 else None,
        timeout_ms=args.timeout_ms if args.timeout_ms is not None and args.timeout_ms >= 0 else None,
        max_poll_records=max_poll_records,
        api_timeout_ms=api_timeout_ms,
    )
    return receiver.consume(settings, selection, formatter, skip_errors=args.skip_message_on_error)
