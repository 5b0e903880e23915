"""kafka-console-consumer: prints the records of topics."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from quorate.admin.client import AdminClient
from quorate.admin.consumer import ConsumedRecord, Consumer, ConsumerConfig
from quorate.admin.errors import KafkaError, NetError, error_text
from quorate.admin.topics import EARLIEST, LATEST
from quorate.admin.types import TopicPartition
from quorate.tools.client_common import key_values, read_properties, tool_parser
from quorate.tools.common import Parser, ToolError, run
from quorate.tools.message_format import Formatter, make_formatter


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _parser() -> Parser:
    parser = tool_parser(
        "kafka-console-consumer", "This tool helps to read data from Kafka topics and outputs it to standard output."
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
    add("--from-beginning", action="store_true", help="Begin with the earliest record where the group has no offset yet.")
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
    add("--skip-message-on-error", action="store_true", help="Skip a record that cannot be printed instead of ending.")
    add("--formatter", default="DefaultMessageFormatter", metavar="<String: class>", help="How records are printed: "
        "DefaultMessageFormatter, LoggingMessageFormatter, NoOpMessageFormatter, OffsetsMessageFormatter or "
        "GroupMetadataMessageFormatter (Java's full names are taken too).")  # fmt: skip
    add(
        "--property", action="append", default=[], metavar="<String: prop>",
        help="How records are printed: print.timestamp, print.key, print.offset, print.epoch, print.partition, print.headers, "
        "print.value =true|false, key.separator, line.separator, headers.separator, null.literal, key.deserializer, "
        "value.deserializer, headers.deserializer.",
    )  # fmt: skip
    add("--formatter-config", metavar="<String: config file>", help="Property file for printing; --property wins.")
    add("--key-deserializer", metavar="<String>", help="Deserializer of keys.")
    add("--value-deserializer", metavar="<String>", help="Deserializer of values.")
    add("--consumer-property", action="append", default=[], metavar="<String: consumer_prop>", help="key=value for the consumer.")
    add(
        "--consumer.config", "--command-config", dest="consumer_config", metavar="<String: config file>",
        help="Property file for the consumer; --consumer-property wins.",
    )  # fmt: skip
    add("--enable-systest-events", action="store_true", help=argparse.SUPPRESS)
    return parser


def _main(argv: Sequence[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if (args.topic is None) == (args.include is None):
        parser.error("Exactly one of --include/--topic is required. ")
    if args.partition is not None:
        if args.topic is None:
            parser.error("The topic is required when partition is specified.")
        if args.from_beginning and args.offset is not None:
            parser.error("Options from-beginning and offset cannot be specified together.")
    elif args.offset is not None:
        parser.error("The partition is required when offset is specified.")
    file_properties = read_properties(args.consumer_config)
    extra = key_values(args.consumer_property, "consumer property")
    groups = {g for g in (args.group, file_properties.get("group.id"), extra.get("group.id")) if g}
    if len(groups) > 1:
        shown = ", ".join(f"'{group}'" for group in sorted(groups))
        parser.error(f"The group ids provided in different places do not match. Detected group ids: {shown}")
    if groups and args.partition is not None:
        parser.error("Options group and partition cannot be specified together.")
    properties = file_properties | extra
    start = _start(parser, args)
    config = _config(args, properties, groups.pop() if groups else None)
    format_properties = read_properties(args.formatter_config)
    if args.key_deserializer:
        format_properties["key.deserializer"] = args.key_deserializer
    if args.value_deserializer:
        format_properties["value.deserializer"] = args.value_deserializer
    formatter = make_formatter(args.formatter, format_properties | key_values(args.property, "property"))
    properties.setdefault("client.id", "console-consumer")
    return asyncio.run(_consume(args, config, start, formatter, properties))


def _start(parser: Parser, args: argparse.Namespace) -> int:
    if args.offset is None:
        return EARLIEST if args.from_beginning else LATEST
    named = {"earliest": EARLIEST, "latest": LATEST}.get(args.offset.lower())
    if named is not None:
        return named
    if not args.offset.isdigit():
        parser.error(
            f"The provided offset value '{args.offset}' is incorrect. "
            "Valid values are 'earliest', 'latest', or a non-negative long."
        )
    return int(args.offset)


def _config(args: argparse.Namespace, properties: Mapping[str, str], group: str | None) -> ConsumerConfig:
    def seconds(name: str, default_ms: int) -> float:
        text = properties.get(name, str(default_ms))
        try:
            return int(text) / 1000
        except ValueError:
            raise ToolError(f"Invalid value {text} for configuration {name}: Not a number") from None

    reset = properties.get("auto.offset.reset")
    if reset is None:
        reset = "earliest" if args.from_beginning else "latest"
    elif args.from_beginning and reset != "earliest":
        raise ToolError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    if reset not in ("earliest", "latest", "none"):
        raise ToolError(f"Invalid value {reset} for configuration auto.offset.reset: it is earliest, latest or none")
    isolation = args.isolation_level or properties.get("isolation.level", "read_uncommitted")
    commit = properties.get("enable.auto.commit", "true" if group is not None else "false")
    return ConsumerConfig(
        group_id=group,
        group_instance_id=properties.get("group.instance.id"),
        auto_offset_reset=reset,
        auto_commit=commit.strip().lower() == "true",
        auto_commit_interval_s=seconds("auto.commit.interval.ms", 5_000),
        read_committed=isolation == "read_committed",
        session_timeout_s=seconds("session.timeout.ms", 45_000),
        rebalance_timeout_s=seconds("max.poll.interval.ms", 300_000),
        heartbeat_interval_s=seconds("heartbeat.interval.ms", 3_000),
        request_timeout_s=seconds("request.timeout.ms", 30_000),
        metadata_max_age_s=seconds("metadata.max.age.ms", 300_000),
    )


async def _consume(
    args: argparse.Namespace, config: ConsumerConfig, start: int, formatter: Formatter, properties: Mapping[str, str]
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with AdminClient.from_properties(properties, bootstrap_servers=args.bootstrap_server) as client:
        consumer = Consumer(client, config)
        printer = Printer(formatter, sys.stdout.buffer, args.max_messages, args.skip_message_on_error)
        work = asyncio.ensure_future(_read(args, consumer, start, printer))
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        work.cancel()
        await asyncio.wait({work})
        used = {tp: min(offset, printer.unused.get(tp, offset)) for tp, offset in consumer.positions.items()}
        await consumer.close(used)
        sys.stdout.flush()
        print(f"Processed a total of {printer.count} messages", file=sys.stderr)
        error = None if work.cancelled() else work.exception()
    match error:
        case None:
            return 0
        case _NothingCame():
            # What Kafka's tool reports as an exception and status 0.
            return 0
        case KafkaError() | NetError():
            raise ToolError(f"Error processing message, terminating consumer process: {error_text(error)}") from error
    raise error


class _NothingCame(Exception):  # noqa: N818 - an end, not an error
    """--timeout-ms is over."""


class Printer:
    """Prints up to `limit` records; `unused` are the first offsets that were read but not printed."""

    def __init__(self, formatter: Formatter, output: BinaryIO, limit: int | None, skip_errors: bool) -> None:
        self.count = 0
        self.unused: dict[TopicPartition, int] = {}
        self._formatter = formatter
        self._output = output
        self._limit = limit if limit is not None and limit >= 0 else None
        self._skip_errors = skip_errors

    @property
    def full(self) -> bool:
        return self._limit is not None and self.count >= self._limit

    def print(self, records: Sequence[ConsumedRecord]) -> None:
        for index, record in enumerate(records):
            if self.full:
                for rest in records[index:]:
                    self.unused.setdefault(TopicPartition(rest.topic, rest.partition), rest.offset)
                break
            self.count += 1
            try:
                self._formatter.write(record, self._output)
            except ValueError as error:
                if not self._skip_errors:
                    raise
                print(f"Error processing message, skipping this message: {error}", file=sys.stderr)
        self._output.flush()


async def _read(args: argparse.Namespace, consumer: Consumer, start: int, printer: Printer) -> None:
    if args.partition is not None:
        topic = await consumer.metadata.topic(args.topic)
        if not 0 <= args.partition < len(topic.leaders):
            raise ToolError(f"There is no partition {args.partition} of topic {args.topic}, which has {len(topic.leaders)}.")
        consumer.assign({TopicPartition(args.topic, args.partition): start})
    elif args.topic is not None:
        await consumer.subscribe([args.topic])
    else:
        await consumer.subscribe(pattern=args.include)
    patience_s = args.timeout_ms / 1000 if args.timeout_ms is not None and args.timeout_ms >= 0 else None
    while not printer.full:
        records = await consumer.poll(patience_s if patience_s is not None else 3600.0)
        if not records and patience_s is not None:
            raise _NothingCame
        printer.print(records)
