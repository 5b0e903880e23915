"""Formats records for the console consumer, as the formatters of Kafka's tools do."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from quorate.lazy import lazy_module, lazy_modules
from quorate.tools.command_line import ToolError

if TYPE_CHECKING:
    from confluent_kafka import Message

    from quorate.broker.coordinators import records
    from quorate.protocol import errors
    from quorate.protocol import json as json_format
else:
    records = lazy_module("quorate.broker.coordinators.records")
    errors, json_format = lazy_modules("quorate.protocol", "errors", "json")


Decode = Callable[[bytes], bytes]

LOG_APPEND_TIME = 2
"""confluent_kafka.TIMESTAMP_LOG_APPEND_TIME"""


class Formatter(Protocol):
    """Writes records to an output."""

    def write(self, record: Message, output: BinaryIO) -> None:
        """Writes one record. Raises ValueError if it cannot be decoded."""
        ...


def _number(packing: struct.Struct) -> Decode:
    def decode(data: bytes) -> bytes:
        if len(data) != packing.size:
            raise ValueError(f"Size of data received is not {packing.size}")
        return str(packing.unpack(data)[0]).encode()

    return decode


def _uuid(data: bytes) -> bytes:
    return data  # Java's UUIDDeserializer reads its text form, which prints as it is


DESERIALIZERS: Mapping[str, Decode] = {
    "StringDeserializer": bytes,
    "ByteArrayDeserializer": bytes,
    "BytesDeserializer": bytes,
    "UUIDDeserializer": _uuid,
    "LongDeserializer": _number(struct.Struct(">q")),
    "IntegerDeserializer": _number(struct.Struct(">i")),
    "ShortDeserializer": _number(struct.Struct(">h")),
    "DoubleDeserializer": _number(struct.Struct(">d")),
    "FloatDeserializer": _number(struct.Struct(">f")),
}
"""The deserializers by the simple names of Kafka's classes."""


class DefaultFormatter:
    """Kafka's DefaultMessageFormatter. Properties select the fields and set the separators."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        def flag(name: str, default: bool = False) -> bool:
            return properties[name].strip().lower() == "true" if name in properties else default

        def text(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        self.timestamp = flag("print.timestamp")
        self.partition = flag("print.partition")
        self.offset = flag("print.offset")
        self.delivery = flag("print.delivery")
        self.epoch = flag("print.epoch")
        self.headers = flag("print.headers")
        self.key = flag("print.key")
        self.value = flag("print.value", True)
        self.key_separator = text("key.separator", "\t")
        self.line_separator = text("line.separator", "\n")
        self.headers_separator = text("headers.separator", ",")
        self.null_literal = text("null.literal", "null")
        self.decode_key = self._deserializer(properties.get("key.deserializer"))
        self.decode_value = self._deserializer(properties.get("value.deserializer"))
        self.decode_header = self._deserializer(properties.get("headers.deserializer"))
        self._plain = not (
            self.timestamp
            or self.partition
            or self.offset
            or self.delivery
            or self.epoch
            or self.headers
            or self.key
        )

    @staticmethod
    def _deserializer(name: str | None) -> Decode | None:
        if name is None:
            return None
        found = DESERIALIZERS.get(name.rpartition(".")[2])
        if found is None:
            raise ToolError(
                f"Deserializer {name} is not available; there are {', '.join(sorted(DESERIALIZERS))}"
            )
        return found

    def _field(self, data: bytes | None, decode: Decode | None) -> bytes:
        if data is None:
            return self.null_literal
        return data if decode is None else decode(data)

    def write(self, record: Message, output: BinaryIO) -> None:
        if self._plain and self.value:
            output.write(self._field(record.value(), self.decode_value) + self.line_separator)
            return
        fields: list[bytes] = []
        if self.timestamp:
            kind, timestamp = record.timestamp()
            name = "LogAppendTime" if kind == LOG_APPEND_TIME else "CreateTime"
            fields.append(b"NO_TIMESTAMP" if timestamp < 0 else f"{name}:{timestamp}".encode())
        if self.partition:
            fields.append(f"Partition:{record.partition()}".encode())
        if self.offset:
            fields.append(f"Offset:{record.offset()}".encode())
        if self.delivery:
            fields.append(b"Delivery:NOT_PRESENT")
        if self.epoch:
            epoch = record.leader_epoch()
            fields.append(b"Epoch:NOT_PRESENT" if epoch is None or epoch < 0 else f"Epoch:{epoch}".encode())
        if self.headers:
            headers = cast("list[tuple[str, bytes | None]]", record.headers() or [])
            pairs = [name.encode() + b":" + self._field(value, self.decode_header) for name, value in headers]
            fields.append(self.headers_separator.join(pairs) or b"NO_HEADERS")
        if self.key:
            fields.append(self._field(record.key(), self.decode_key))
        if self.value:
            fields.append(self._field(record.value(), self.decode_value))
        if fields:
            output.write(self.key_separator.join(fields) + self.line_separator)


class NoOpFormatter:
    """Kafka's NoOpMessageFormatter, which prints nothing. It serves to measure the consumer."""

    def write(self, record: Message, output: BinaryIO) -> None:
        return


class CoordinatorFormatter:
    """Formats records of `__consumer_offsets` or `__transaction_state` as JSON, without separators, as
    Kafka's formatters do.
    """

    def __init__(self, types: frozenset[int] | None) -> None:
        """`types` are the record types of `__consumer_offsets` to print. None means `__transaction_state`."""
        self._types = types

    def write(self, record: Message, output: BinaryIO) -> None:
        key_data, value_data = record.key(), record.value()
        if key_data is None or len(key_data) < 2:
            return
        kind = struct.unpack_from(">h", key_data)[0]
        if self._types is not None and kind not in self._types:
            return
        types = records.TRANSACTION_RECORDS if self._types is None else records.GROUP_RECORDS
        try:
            key = records.decode_key(key_data, types)
            if key is None:
                return
            shown: dict[str, object] = {
                "key": {"type": kind, "data": json_format.to_json(key, 0)},
                "value": None,
            }
            if value_data is not None:
                value = records.decode_value(value_data, key, types)
                version = struct.unpack_from(">h", value_data)[0]
                shown["value"] = {"version": version, "data": json_format.to_json(value, version)}
        except errors.DecodeError as error:
            raise ValueError(f"Could not read record at offset {record.offset()} due to: {error}") from error
        output.write(json.dumps(shown, separators=(",", ":"), ensure_ascii=False).encode())


def make_formatter(name: str, properties: Mapping[str, str]) -> Formatter:
    """Returns the formatter with the name of a Java class. Raises ToolError for an unknown one."""
    match name.rpartition(".")[2].rpartition("$")[2]:
        case "DefaultMessageFormatter" | "LoggingMessageFormatter":
            return DefaultFormatter(properties)
        case "NoOpMessageFormatter":
            return NoOpFormatter()
        case "OffsetsMessageFormatter":
            return CoordinatorFormatter(frozenset({0, 1}))
        case "GroupMetadataMessageFormatter":
            return CoordinatorFormatter(frozenset({2}))
        case "TransactionLogMessageFormatter":
            return CoordinatorFormatter(None)
    raise ToolError(f"Formatter {name} is not available")
