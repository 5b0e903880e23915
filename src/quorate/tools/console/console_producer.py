"""kafka-console-producer: sends the lines of standard input as records, through librdkafka."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module
from quorate.tools.client.options import key_values, read_properties, tool_parser
from quorate.tools.command_line import Parser, ToolError, run
from quorate.tools.console.librdkafka_properties import for_producer, number

if TYPE_CHECKING:
    from quorate.tools.console import sender
else:
    sender = lazy_module("quorate.tools.console.sender")

Headers = tuple[tuple[str, bytes | None], ...]


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
        help="How often metadata is asked anew (default 10000).",
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
        help="How lines are read: parse.key=false, parse.headers=false, ignore.error=false, key.separator=\\t, "
        "headers.delimiter=\\t, headers.separator=\",\", headers.key.separator=:, null.marker= (equal fields "
        "become null). "
        "With both, a line is \"h1:v1,h2:v2\\tkey\\tvalue\".",
    )  # fmt: skip
    add(
        "--reader-config",
        metavar="<String: config file>",
        help="Property file for reading lines; --property wins.",
    )
    add(
        "--producer-property", "--command-property", action="append", default=[], metavar="<String: producer_prop>",
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
"""Options, the properties that they stand for, and the tool's own defaults. Later ones win."""


def producer_properties(args: argparse.Namespace, given: Mapping[str, str]) -> dict[str, str]:
    """The producer's properties: an option wins over a property, a property over the tool's default."""
    properties = {"client.id": "console-producer", **given, "bootstrap.servers": args.bootstrap_server}
    for option, (name, default) in _OPTIONS.items():
        value = getattr(args, option)
        if value is not None:
            properties[name] = str(value)
        elif default is not None:
            properties.setdefault(name, default)
    return properties


@dataclass(slots=True)
class LineReader:
    """What a line means. All separators are bytes: lines need not be UTF-8."""

    parse_key: bool = False
    key_separator: bytes = b"\t"
    parse_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    ignore_error: bool = False
    null_marker: bytes | None = None
    line_number: int = 0

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LineReader:
        """Raises ToolError when separators cannot be told apart."""

        def flag(name: str) -> bool:
            return properties.get(name, "").strip().lower() == "true"

        def text(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        reader = cls(
            flag("parse.key"),
            text("key.separator", "\t"),
            flag("parse.headers"),
            text("headers.delimiter", "\t"),
            text("headers.separator", ","),
            text("headers.key.separator", ":"),
            flag("ignore.error"),
            text("null.marker", "") if "null.marker" in properties else None,
        )
        pairs = [
            ("headers.delimiter", reader.headers_delimiter, "headers.separator", reader.headers_separator),
            (
                "headers.delimiter",
                reader.headers_delimiter,
                "headers.key.separator",
                reader.headers_key_separator,
            ),
            (
                "headers.separator",
                reader.headers_separator,
                "headers.key.separator",
                reader.headers_key_separator,
            ),
            ("null.marker", reader.null_marker, "key.separator", reader.key_separator),
            ("null.marker", reader.null_marker, "headers.separator", reader.headers_separator),
            ("null.marker", reader.null_marker, "headers.delimiter", reader.headers_delimiter),
            ("null.marker", reader.null_marker, "headers.key.separator", reader.headers_key_separator),
        ]
        for one, a, other, b in pairs:
            if a == b:
                raise ToolError(f"{one} and {other} may not be equal")
        return reader

    def parse(self, line: bytes) -> tuple[bytes | None, bytes | None, Headers]:
        """Key, value and headers of a line. Raises ToolError naming the line."""
        self.line_number += 1
        headers: Headers = ()
        if self.parse_headers:
            text, line = self._cut(line, self.headers_delimiter, "headers delimiter")
            if text is not None and text != self.null_marker:
                headers = tuple(self._header(pair) for pair in text.split(self.headers_separator))
        key = None
        if self.parse_key:
            key, line = self._cut(line, self.key_separator, "key separator")
        return self._null(key), self._null(line), headers

    def _null(self, field: bytes | None) -> bytes | None:
        return None if field == self.null_marker else field

    def _cut(self, line: bytes, separator: bytes, what: str) -> tuple[bytes | None, bytes]:
        head, found, rest = line.partition(separator)
        if found:
            return head, rest
        if self.ignore_error:
            return None, line
        raise ToolError(
            f"No {what} found on line number {self.line_number}: '{line.decode(errors='replace')}'"
        )

    def _header(self, pair: bytes) -> tuple[str, bytes | None]:
        name, found, value = pair.partition(self.headers_key_separator)
        text = name.decode(errors="replace")
        if not found:
            if self.ignore_error:
                return text, None
            raise ToolError(
                f"No header key separator found in pair '{text}' on line number {self.line_number}"
            )
        if name == self.null_marker:
            raise ToolError(
                f"Header keys should not be equal to the null marker '{text}' as they can't be null"
            )
        return text, self._null(value)


def _produce(args: argparse.Namespace, reader: LineReader, properties: Mapping[str, str]) -> int:
    max_block_ms = number(properties, "max.block.ms", 60_000)
    settings = for_producer({name: value for name, value in properties.items() if name != "max.block.ms"})
    return sender.produce(settings, reader.parse, args.topic, sync=args.sync, max_block_s=max_block_ms / 1000)
