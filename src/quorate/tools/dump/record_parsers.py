"""The parsers of records for kafka-dump-log: one for each kind of topic, and one for control records."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from quorate.lazy import lazy_module
from quorate.metadata.errors import MetadataError
from quorate.metadata.json import dump_json, record_json
from quorate.protocol.errors import DecodeError
from quorate.protocol.json import to_json
from quorate.protocol.schema import Data
from quorate.records.batch import Record
from quorate.records.control import (
    ControlRecordType,
    EndTxnMarker,
    decode_control,
    decode_control_key,
)
from quorate.tools.command_line import ToolError

if TYPE_CHECKING:
    from quorate.broker.coordinators import records
    from quorate.metadata import framing
    from quorate.protocol.messages import consumer_protocol
    from quorate.tools.dump import legacy_records
else:
    records = lazy_module("quorate.broker.coordinators.records")
    framing = lazy_module("quorate.metadata.framing")
    consumer_protocol = lazy_module("quorate.protocol.messages.consumer_protocol")
    legacy_records = lazy_module("quorate.tools.dump.legacy_records")

Parsed = tuple[str | None, str | None]
"""Key and payload as text. None is not printed."""


class RecordParser(Protocol):
    """Converts key and payload of a data record to text."""

    def parse(self, record: Record) -> Parsed: ...


class PlainParser:
    """Converts keys and values by one decoder each."""

    def __init__(self, key: Callable[[bytes], str], value: Callable[[bytes], str]) -> None:
        self._key = key
        self._value = value

    def parse(self, record: Record) -> Parsed:
        return (
            None if record.key is None else self._key(record.key),
            None if record.value is None else self._value(record.value),
        )


def _number(size: int) -> Callable[[bytes], str]:
    def decode(data: bytes) -> str:
        if len(data) < size:
            raise ToolError(
                f"{len(data)} bytes are too few for the {size * 8}-bit number that the decoder class reads"
            )
        return str(int.from_bytes(data[:size], "big", signed=True))

    return decode


DECODERS: dict[str, Callable[[bytes], str]] = {
    "StringDecoder": lambda data: data.decode("utf-8", "replace"),
    "IntegerDecoder": _number(4),
    "LongDecoder": _number(8),
    "DefaultDecoder": bytes.hex,
}


def decoder(class_name: str) -> Callable[[bytes], str]:
    """Returns the decoder with the name of a Java class. Raises ToolError for a class that is not Kafka's."""
    found = DECODERS.get(class_name.removeprefix("org.apache.kafka.tools.api."))
    if found is None:
        raise ToolError(f"{class_name} is not a decoder that is known here: {', '.join(DECODERS)}")
    return found


class MetadataParser:
    """Records of `__cluster_metadata` and of snapshots, including old formats that a node rejects."""

    def parse(self, record: Record) -> Parsed:
        value = record.value or b""
        try:
            try:
                shown = dump_json(record_json(*framing.decode_record(value)))
            except MetadataError:
                old = legacy_records.legacy_text(value)
                if old is None:
                    raise
                shown = old
        except (MetadataError, DecodeError) as error:
            reason = error.reason if isinstance(error, MetadataError) else str(error)
            shown = f"Error at {record.offset}, skipping. {reason}"
        return None, shown


class CoordinatorParser:
    """Records of `__consumer_offsets`, `__transaction_state` and `__share_group_state`."""

    def __init__(self, registry: dict[int, tuple[type[Data], type[Data]]]) -> None:
        self._registry = registry

    def parse(self, record: Record) -> Parsed:
        if record.key is None:
            raise ToolError(
                f"Failed to decode message at offset {record.offset} using the specified decoder (message "
                "had a missing key)"
            )
        try:
            key = records.decode_key(record.key, self._registry)
            if key is None:
                kind = int.from_bytes(record.key[:2], "big", signed=True)
                return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
            shown = dump_json({"type": str(key.KEY), "data": to_json(key, 0)})
            if record.value is None:
                return shown, "<DELETE>"
            value = records.decode_value(record.value, key, self._registry)
            version = int.from_bytes(record.value[:2], "big", signed=True)
            return shown, dump_json({"version": str(version), "data": _value_json(value, version)})
        except DecodeError as error:
            return f"Error at offset {record.offset}, skipping. {error}", None


def _value_json(value: Data, version: int) -> dict[str, Any]:
    """Returns a value as JSON. Subscriptions and assignments of classic consumer groups are decoded."""
    shown = to_json(value, version)
    if isinstance(value, records.GroupMetadataValue) and value.protocol_type == "consumer":
        for member in shown["members"]:
            _decode_in_place(member, "subscription", consumer_protocol.ConsumerProtocolSubscription)
            _decode_in_place(member, "assignment", consumer_protocol.ConsumerProtocolAssignment)
    return shown


def _decode_in_place(member: dict[str, Any], name: str, cls: type[Data]) -> None:
    """Replaces encoded bytes by the JSON of the message, if they decode."""
    data = base64.b64decode(member[name] or "")
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        return
    try:
        message, _ = cls.read(data, 2, version)
    except DecodeError:
        return
    member[name] = to_json(message, version)


_CONTROL_LABELS = {
    ControlRecordType.LEADER_CHANGE: "LeaderChange:",
    ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlRecordType.KRAFT_VERSION: "KRaftVersion",
    ControlRecordType.KRAFT_VOTERS: "KRaftVoters",
}


def control_text(record: Record) -> str:
    """Returns the text of a control record. Raises DecodeError if it is malformed."""
    key = record.key or b""
    kind = decode_control_key(key)
    message = decode_control(key, record.value or b"")
    if isinstance(message, EndTxnMarker):
        return f"endTxnMarker: {kind.name} coordinatorEpoch: {message.coordinator_epoch}"
    if message is None:
        return f"controlType: {kind.name}({int.from_bytes(key[2:4], 'big', signed=True)})"
    return f"{_CONTROL_LABELS[kind]} {dump_json(to_json(message, 0))}"
