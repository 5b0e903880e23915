"""kafka-console-producer: sends the lines of standard input as records."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from quorate.admin.client import AdminClient
from quorate.admin.errors import KafkaError, NetError, NotKafkaError, error_text
from quorate.admin.producer import Headers, Producer, ProducerConfig
from quorate.records.compression import Compression
from quorate.tools.client_common import key_values, read_properties, tool_parser
from quorate.tools.common import Parser, ToolError, run

CHUNK_BYTES = 64 * 1024
MAX_QUEUED = 10_000
"""Records on their way before reading pauses: bounds memory when the input is faster than the cluster."""


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _parser() -> Parser:
    parser = tool_parser("kafka-console-producer", "This tool helps to read data from standard input and publish it to Kafka.")
    add = parser.add_argument
    add("--topic", required=True, metavar="<String: topic>", help="REQUIRED: The topic to produce to.")
    add("--bootstrap-server", required=True, metavar="<String: server to connect to>", help="REQUIRED: HOST1:PORT1,HOST2:PORT2.")
    add("--sync", action="store_true", help="Send records one at a time, each when the one before is acknowledged.")
    add(
        "--compression-codec", nargs="?", const="gzip", metavar="compression-codec",
        help="none, gzip, snappy, lz4 or zstd; gzip when given without a value.",
    )  # fmt: skip
    add("--batch-size", type=int, metavar="<Integer: size>", help="Bytes of a batch (default 16384).")
    add("--max-partition-memory-bytes", type=int, metavar="<Integer>", help="The same; wins over --batch-size.")
    add("--message-send-max-retries", type=int, default=3, metavar="<Integer>", help="Retries of a send (default 3).")
    add("--retry-backoff-ms", type=int, default=100, metavar="<Long>", help="Wait before a retry (default 100).")
    add("--timeout", type=int, metavar="<Long: timeout_ms>", help="How long a record waits for company in its batch (default 5).")
    add("--request-required-acks", metavar="<String>", help="acks of the produce requests: 0, 1, all or -1 (default -1).")
    add("--request-timeout-ms", type=int, default=1500, metavar="<Integer>", help="Timeout of a produce request (default 1500).")
    add(
        "--max-block-ms",
        type=int,
        default=60_000,
        metavar="<Long>",
        help="How long a send may wait (default 60000).",
    )
    for name in ("--metadata-expiry-ms", "--max-memory-bytes", "--socket-buffer-size"):
        add(name, type=int, help=argparse.SUPPRESS)
    add("--line-reader", help=argparse.SUPPRESS)
    add(
        "--property", action="append", default=[], metavar="<String: prop>",
        help="How lines are read: parse.key=false, parse.headers=false, ignore.error=false, key.separator=\\t, "
        "headers.delimiter=\\t, headers.separator=\",\", headers.key.separator=:, null.marker= (equal fields become null). "
        "With both, a line is \"h1:v1,h2:v2\\tkey\\tvalue\".",
    )  # fmt: skip
    add("--reader-config", metavar="<String: config file>", help="Property file for reading lines; --property wins.")
    add("--producer-property", action="append", default=[], metavar="<String: producer_prop>", help="key=value for the producer.")
    add(
        "--producer.config", "--command-config", dest="producer_config", metavar="<String: config file>",
        help="Property file for the producer; --producer-property wins.",
    )  # fmt: skip
    return parser


def _main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    if args.line_reader and not args.line_reader.endswith("LineMessageReader"):
        raise ToolError(f"Line reader {args.line_reader} is not available; LineMessageReader is.")
    reader = LineReader.from_properties(read_properties(args.reader_config) | key_values(args.property, "property"))
    properties = read_properties(args.producer_config) | key_values(args.producer_property, "producer property")
    config = producer_config(args, properties)
    properties.setdefault("client.id", "console-producer")
    properties.setdefault("default.api.timeout.ms", str(args.max_block_ms))
    try:
        return asyncio.run(_produce(args, reader, config, properties))
    except (KafkaError, NetError) as error:
        raise ToolError(f"Error when sending message to topic {args.topic}: {error_text(error)}") from error


def producer_config(args: argparse.Namespace, properties: Mapping[str, str]) -> ProducerConfig:
    """The producer's settings: options, then properties, then defaults. Raises ToolError."""

    def number(name: str, given: int | None, default: int) -> int:
        text = properties.get(name)
        if given is not None and given != default:
            return given
        if text is None:
            return default if given is None else given
        try:
            return int(text)
        except ValueError:
            raise ToolError(f"Invalid value {text} for configuration {name}: Not a number") from None

    acks_text = args.request_required_acks or properties.get("acks", "-1")
    acks = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(acks_text.strip().lower())
    if acks is None:
        raise ToolError(f"Invalid value {acks_text} for configuration acks: String must be one of: all, -1, 0, 1")
    codec_text = args.compression_codec or properties.get("compression.type", "none")
    codec = codec_text.strip().upper()
    if codec not in Compression.__members__:
        raise ToolError(f"Unknown compression name: {codec_text}")
    idempotent = properties.get("enable.idempotence", "true").strip().lower() == "true"
    if idempotent and acks != -1 and "enable.idempotence" in properties:
        raise ToolError("Must set acks to all in order to use the idempotent producer.")
    return ProducerConfig(
        acks=acks,
        compression=Compression[codec],
        linger_s=number("linger.ms", args.timeout, 5) / 1000,
        batch_bytes=max(1, number("batch.size", args.max_partition_memory_bytes or args.batch_size, 16 * 1024)),
        request_timeout_s=number("request.timeout.ms", args.request_timeout_ms, 1500) / 1000,
        delivery_timeout_s=number("delivery.timeout.ms", None, 120_000) / 1000,
        idempotent=idempotent,
        retries=number("retries", args.message_send_max_retries, 3),
        retry_backoff_s=number("retry.backoff.ms", args.retry_backoff_ms, 100) / 1000,
        max_request_bytes=number("max.request.size", None, 1024 * 1024),
    )


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
            ("headers.delimiter", reader.headers_delimiter, "headers.key.separator", reader.headers_key_separator),
            ("headers.separator", reader.headers_separator, "headers.key.separator", reader.headers_key_separator),
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
        raise ToolError(f"No {what} found on line number {self.line_number}: '{line.decode(errors='replace')}'")

    def _header(self, pair: bytes) -> tuple[str, bytes | None]:
        name, found, value = pair.partition(self.headers_key_separator)
        text = name.decode(errors="replace")
        if not found:
            if self.ignore_error:
                return text, None
            raise ToolError(f"No header key separator found in pair '{text}' on line number {self.line_number}")
        if name == self.null_marker:
            raise ToolError(f"Header keys should not be equal to the null marker '{text}' as they can't be null")
        return text, self._null(value)


async def lines(source: BinaryIO, prompt: bool) -> AsyncIterator[bytes]:
    """Lines as soon as they are there, without their ends; a last one without an end counts."""
    rest = b""
    while True:
        if prompt:
            print(">", end="", flush=True)
        chunk = await _available(source)
        if not chunk:
            break
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest.removesuffix(b"\r")


async def _available(source: Any) -> bytes:
    """What can be read now, at least a byte; nothing at the end. Read in a thread that ends with the process, past the
    stream's buffer, whose lock the interpreter would want at its end: Ctrl-C waits for no input."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()
    raw = getattr(source, "raw", None)
    read_some = source.read1 if raw is None else raw.read

    def settle(data: bytes, error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(data)
        else:
            answer.set_exception(error)

    def read() -> None:
        data, error = b"", None
        try:
            data = read_some(CHUNK_BYTES) or b""
        except (OSError, ValueError) as e:
            error = e
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, data, error)

    threading.Thread(target=read, name="standard-input", daemon=True).start()
    return await answer


async def _produce(args: argparse.Namespace, reader: LineReader, config: ProducerConfig, properties: Mapping[str, str]) -> int:
    failed = 0

    def report(key: bytes | None, value: bytes | None, error: BaseException) -> None:
        nonlocal failed
        failed += 1
        sizes = (
            f"key: {'null' if key is None else f'{len(key)} bytes'}, value: {'null' if value is None else f'{len(value)} bytes'}"
        )
        print(f"Error when sending message to topic {args.topic} with {sizes} with error: {error_text(error)}", file=sys.stderr)

    async with AdminClient.from_properties(properties, bootstrap_servers=args.bootstrap_server) as client:
        producer = Producer(client.transport, config)
        async for line in lines(sys.stdin.buffer, sys.stdin.isatty()):
            key, value, headers = reader.parse(line)
            try:
                future = await producer.send(args.topic, value, key=key, headers=headers)
                if args.sync:
                    await future
                    continue
            except NotKafkaError as error:  # so it would be with every line
                raise ToolError(str(error)) from error
            except (KafkaError, NetError) as error:
                report(key, value, error)
                continue

            def answered(done: asyncio.Future[Any], key: bytes | None = key, value: bytes | None = value) -> None:
                error = done.exception()
                if error is not None:
                    report(key, value, error)

            future.add_done_callback(answered)
            if producer.queued >= MAX_QUEUED:
                await producer.flush()
        await producer.close()
    return 1 if failed else 0
