"""kafka-console-producer: sends the lines of standard input as records."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module
from quorate.tools.client.options import key_values, read_properties, tool_parser
from quorate.tools.command_line import Parser, ToolError, run
from quorate.tools.console.librdkafka_properties import for_producer, number
from quorate.tools.console.line_reader import LineReader

if TYPE_CHECKING:
    from quorate.tools.console import sender
else:
    sender = lazy_module("quorate.tools.console.sender")


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _parser() -> Parser:
    parser = tool_parser(
        "kafka-console-producer", "This tool helps to read data from standard input and publish it to Kafka."
    )
    add = parser.add_argument
    add("--topic", required=True, metavar="<String: topic>", help="REQUIRED: The topic to produce to.")
    add(
        "--bootstrap-server",
        required=True,
        metavar="<String: server to connect to>",
        help="REQUIRED: HOST1:PORT1,HOST2:PORT2.",
    )
    add(
        "--sync",
        action="store_true",
        help="Send records one at a time, each when the one before is acknowledged.",
    )
    add(
        "--compression-codec", nargs="?", const="gzip", metavar="compression-codec",
        help="none, gzip, snappy, lz4 or zstd; gzip when given without a value.",
    )  # fmt: skip
    add("--batch-size", type=int, metavar="<Integer: size>", help="Bytes of a batch (default 16384).")
    add(
        "--max-partition-memory-bytes",
        type=int,
        metavar="<Integer>",
        help="The same; wins over --batch-size.",
    )
    add(
        "--message-send-max-retries", type=int, metavar="<Integer>",
        help="Retries of a send (default: until delivery.timeout.ms, 2 minutes).",
    )  # fmt: skip
    add("--retry-backoff-ms", type=int, metavar="<Long>", help="Wait before a retry (default 100).")
    add(
        "--timeout",
        type=int,
        metavar="<Long: timeout_ms>",
        help="How long a record waits for company in its batch (default 5).",
    )
    add(
        "--request-required-acks",
        metavar="<String>",
        help="acks of the produce requests: 0, 1, all or -1 (default -1).",
    )
    add(
        "--request-timeout-ms",
        type=int,
        metavar="<Integer>",
        help="Timeout of a produce request (default 1500).",
    )
    add(
        "--max-block-ms",
        type=int,
        metavar="<Long>",
        help="How long the topic's metadata is waited for (default 60000).",
    )
    add(
        "--metadata-expiry-ms",
        type=int,
        metavar="<Long>",
        help="How often metadata is refreshed (default 10000).",
    )
    add(
        "--max-memory-bytes",
        type=int,
        metavar="<Long>",
        help="Memory for records on their way (default 33554432).",
    )
    add(
        "--socket-buffer-size",
        type=int,
        metavar="<Integer: size>",
        help="Bytes of the socket's send buffer (default 102400).",
    )
    add("--line-reader", help=argparse.SUPPRESS)
    add(
        "--property", "--reader-property", action="append", default=[], metavar="<String: prop>",
        help="How lines are read: parse.key=false, parse.headers=false, ignore.error=false, "
        "key.separator=\\t, headers.delimiter=\\t, headers.separator=\",\", "
        "headers.key.separator=:, null.marker= (equal fields become null). With both, a line is "
        "\"h1:v1,h2:v2\\tkey\\tvalue\".",
    )  # fmt: skip
    add(
        "--reader-config",
        metavar="<String: config file>",
        help="Property file for reading lines; --property wins.",
    )
    add(
        "--producer-property", "--command-property", action="append", default=[],
        metavar="<String: producer_prop>",
        help="key=value for the producer: Kafka's producer properties and librdkafka's.",
    )  # fmt: skip
    add(
        "--producer.config", "--command-config", dest="producer_config", metavar="<String: config file>",
        help="Property file for the producer; --producer-property wins.",
    )  # fmt: skip
    return parser


def _main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    if args.line_reader and not args.line_reader.endswith("LineMessageReader"):
        raise ToolError(f"Line reader {args.line_reader} is not available; LineMessageReader is.")
    reader = LineReader.from_properties(
        read_properties(args.reader_config) | key_values(args.property, "property")
    )
    given = read_properties(args.producer_config) | key_values(args.producer_property, "producer property")
    return _produce(args, reader, producer_properties(args, given))


_OPTIONS = {
    "message_send_max_retries": ("retries", None),
    "retry_backoff_ms": ("retry.backoff.ms", None),
    "timeout": ("linger.ms", None),
    "request_required_acks": ("acks", None),
    "request_timeout_ms": ("request.timeout.ms", "1500"),
    "max_block_ms": ("max.block.ms", "60000"),
    "metadata_expiry_ms": ("metadata.max.age.ms", None),
    "max_memory_bytes": ("buffer.memory", None),
    "socket_buffer_size": ("send.buffer.bytes", "102400"),
    "batch_size": ("batch.size", None),
    "max_partition_memory_bytes": ("batch.size", None),
    "compression_codec": ("compression.type", None),
}
"""The property of each option, and the default of the tool if it has one. A later option wins."""


def producer_properties(args: argparse.Namespace, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of the producer. An option wins over a property, and a property over a default
    of the tool.
    """
    properties = {"client.id": "console-producer", **given, "bootstrap.servers": args.bootstrap_server}
    for option, (name, default) in _OPTIONS.items():
        value = getattr(args, option)
        if value is not None:
            properties[name] = str(value)
        elif default is not None:
            properties.setdefault(name, default)
    return properties


def _produce(args: argparse.Namespace, reader: LineReader, properties: Mapping[str, str]) -> int:
    max_block_ms = number(properties, "max.block.ms", 60_000)
    settings = for_producer({name: value for name, value in properties.items() if name != "max.block.ms"})
    return sender.produce(settings, reader.parse, args.topic, sync=args.sync, max_block_s=max_block_ms / 1000)
