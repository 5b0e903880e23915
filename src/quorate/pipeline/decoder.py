"""Decodes the records of a segment or snapshot into columns. Each record is a row, and so is a control
record.

The rows of a snapshot have its end offset in `snapshot` and its last contained offset in `offset`.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import decode_record
from quorate.metadata.json import type_name
from quorate.pipeline.layout import Slice
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.errors import DecodeError, KafkaError
from quorate.protocol.json import to_json
from quorate.protocol.uuids import uuid_text
from quorate.records.batch import BatchHeader, control_records, iter_batches, metadata_values, verify_crc
from quorate.records.control import CONTROL_RECORDS, ControlRecordType

COLUMNS: Final[tuple[tuple[str, str], ...]] = (
    ("offset", "bigint"),
    ("epoch", "int"),
    ("timestamp", "timestamp"),
    ("snapshot", "bigint"),
    ("position", "bigint"),
    ("control", "boolean"),
    ("type", "string"),
    ("version", "int"),
    ("topic_id", "string"),
    ("topic_name", "string"),
    ("partition", "int"),
    ("broker_id", "int"),
    ("resource_type", "string"),
    ("resource_name", "string"),
    ("key", "string"),
    ("value", "string"),
    ("json", "string"),
)
"""The name and the Spark type of each column.

`position` is the record's offset in its file, which orders the rows of a snapshot. `key` and `value` are name
and value of a config or quota, or name and level of a feature. `json` has all fields, as Kafka writes them.
"""

_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

ROWS_PER_BATCH = 16_384

_NAMES = tuple([name for name, _ in COLUMNS])


class Columns:
    """Collects rows, column by column."""

    __slots__ = ("_lists", "_payload")

    def __init__(self, *, payload: bool = True) -> None:
        self._lists: dict[str, list[Any]] = {name: [] for name in _NAMES}
        self._payload = payload

    def __len__(self) -> int:
        return len(self._lists["offset"])

    def take(self) -> dict[str, list[Any]]:
        """Returns the columns and starts new ones."""
        taken = self._lists
        self._lists = {name: [] for name in _NAMES}
        return taken

    def add(
        self, header: BatchHeader, offset: int, position: int, snapshot: int | None, **values: Any
    ) -> None:
        lists = self._lists
        lists["offset"].append(offset)
        lists["epoch"].append(header.leader_epoch)
        lists["timestamp"].append(header.max_timestamp * 1000)
        lists["snapshot"].append(snapshot)
        lists["position"].append(position)
        for name in _NAMES[5:]:
            lists[name].append(values.get(name))

    def add_record(
        self, header: BatchHeader, offset: int, position: int, snapshot: int | None, value: memoryview
    ) -> None:
        record, version = decode_record(value)
        kind = type(record)
        columns = _keys(record)
        if self._payload:
            columns["json"] = _dump(to_json(record, version))
        self.add(
            header, offset, position, snapshot, control=False, type=_type(kind), version=version, **columns
        )

    def add_control(
        self,
        header: BatchHeader,
        offset: int,
        position: int,
        snapshot: int | None,
        kind: int,
        value: memoryview,
    ) -> None:
        try:
            name = ControlRecordType(kind).name
        except ValueError:
            name = f"UNKNOWN({kind})"
        columns: dict[str, Any] = {"control": True, "type": name}
        cls = CONTROL_RECORDS.get(ControlRecordType(kind)) if not name.startswith("UNKNOWN") else None
        if cls is not None:
            message, _ = cls.read(value, 0, 0)
            columns["version"] = 0
            if self._payload:
                columns["json"] = _dump(to_json(message, 0))
        self.add(header, offset, position, snapshot, **columns)


_TYPE_NAMES: dict[type, str] = {}


def _type(cls: Any) -> str:
    name = _TYPE_NAMES.get(cls)
    if name is None:
        name = _TYPE_NAMES[cls] = type_name(cls)
    return name


def _keys(record: Any) -> dict[str, Any]:
    """Returns the columns that identify the entity of a record."""
    found: dict[str, Any] = {}
    topic_id = getattr(record, "topic_id", None)
    if topic_id is not None:
        found["topic_id"] = uuid_text(topic_id)
        found["partition"] = getattr(record, "partition_id", None)
    match type(record).__name__:
        case "TopicRecord":
            found["topic_name"] = record.name
        case "ClearElrRecord":
            found["topic_name"] = record.topic_name
        case "ConfigRecord":
            found["resource_type"] = ConfigResourceType.name_of(record.resource_type)
            found["resource_name"] = record.resource_name
            found["key"] = record.name
            found["value"] = record.value
            if found["resource_type"] == "TOPIC":
                found["topic_name"] = record.resource_name
            elif found["resource_type"] == "BROKER" and record.resource_name.isdigit():
                found["broker_id"] = int(record.resource_name)
        case "FeatureLevelRecord":
            found["key"] = record.name
            found["value"] = str(record.feature_level)
        case "ClientQuotaRecord":
            found["resource_type"] = "CLIENT_QUOTA"
            found["resource_name"] = ",".join(
                [f"{e.entity_type}={e.entity_name or '<default>'}" for e in record.entity]
            )
            found["key"] = record.key
            found["value"] = None if record.remove else repr(record.value)
        case "UserScramCredentialRecord" | "RemoveUserScramCredentialRecord":
            found["resource_type"] = "USER"
            found["resource_name"] = record.name
        case "DelegationTokenRecord" | "RemoveDelegationTokenRecord":
            found["resource_type"] = "DELEGATION_TOKEN"
            found["resource_name"] = record.token_id
        case "AccessControlEntryRecord" | "RemoveAccessControlEntryRecord":
            found["resource_type"] = "ACL"
            found["resource_name"] = uuid_text(record.id)
        case "FenceBrokerRecord" | "UnfenceBrokerRecord":
            found["broker_id"] = record.id
        case (
            "RegisterBrokerRecord"
            | "UnregisterBrokerRecord"
            | "BrokerRegistrationChangeRecord"
            | "ProducerIdsRecord"
        ):
            found["broker_id"] = record.broker_id
        case "RegisterControllerRecord":
            found["broker_id"] = record.controller_id
    return found


def read_slice(
    part: Slice,
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    payload: bool = True,
    rows: int = ROWS_PER_BATCH,
) -> Iterator[dict[str, list[Any]]]:
    """Yields the columns of a slice's records, about `rows` rows at a time.

    Raises MetadataError with file and offset of a record that does not decode. A file that is renamed for
    its deletion is still read.
    """
    path = Path(part.path)
    if not path.exists():
        path = path.with_name(path.name + ".deleted")
    columns = Columns(payload=payload)
    with path.open("rb") as file:
        size = file.seek(0, 2)
        end = size if part.end < 0 else min(part.end, size)
        if end <= part.start:
            return
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # unmapped with its last view
    for header, batch in _whole_batches(part, memoryview(mapped)[part.start : end]):
        if part.snapshot_end_offset is None and (
            header.last_offset < start_offset or (end_offset is not None and header.base_offset >= end_offset)
        ):
            continue
        _add_batch(columns, part, header, batch, start_offset, end_offset)
        if len(columns) >= rows:
            yield columns.take()
    if len(columns):
        yield columns.take()


def _whole_batches(part: Slice, data: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields batches and verifies their checksums. Raises MetadataError for a corrupt batch, except at the
    end of the newest segment, where it stops.
    """
    position = part.start
    try:
        for header, batch in iter_batches(data):
            if not verify_crc(batch):
                if part.may_be_cut and position + header.size_bytes == part.start + len(data):
                    return
                wrong = f"{part.path}: the batch at byte {position} has a wrong checksum"
                raise MetadataError(wrong, offset=header.base_offset)
            position += header.size_bytes
            yield header, batch
    except KafkaError as error:
        if part.may_be_cut:
            return
        raise MetadataError(f"{part.path}: no batch at byte {position}: {error}") from error
    if position != part.start + len(data) and not part.may_be_cut:
        raise MetadataError(f"{part.path}: the batch at byte {position} is cut")


def _add_batch(
    columns: Columns,
    part: Slice,
    header: BatchHeader,
    batch: memoryview,
    start_offset: int,
    end_offset: int | None,
) -> None:
    snapshot = part.snapshot_end_offset
    position = header.base_offset
    try:
        pairs: Iterator[tuple[int | None, memoryview]]
        if header.is_control:
            pairs = control_records(batch)
        else:
            pairs = ((None, value) for value in metadata_values(batch))
        for kind, value in pairs:
            offset = position if snapshot is None else snapshot - 1
            if snapshot is not None or (
                offset >= start_offset and (end_offset is None or offset < end_offset)
            ):
                if kind is None:
                    columns.add_record(header, offset, position, snapshot, value)
                else:
                    columns.add_control(header, offset, position, snapshot, kind, value)
            position += 1
    except MetadataError as error:
        raise MetadataError(f"{part.path}: {error.reason}", offset=position) from error
    except (KafkaError, DecodeError) as error:
        raise MetadataError(f"{part.path}: {error}", offset=position) from error
