"""Decodes records one by one, as objects: control records, types and forms that are rare, and the column
`json`. Tests compare the decoder by columns with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import decode_record
from quorate.metadata.json import type_name
from quorate.pipeline.datasource.columns import ENTITY_COLUMNS, JSON, TYPED_COLUMNS, Selection
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.errors import DecodeError, KafkaError
from quorate.protocol.json import to_json
from quorate.protocol.schema import FieldSpec, Message, Struct
from quorate.protocol.uuids import uuid_text
from quorate.records.control import CONTROL_RECORDS, ControlRecordType

_dump: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def decode_value(value: bytes | memoryview, selection: Selection) -> dict[str, Any]:
    """The chosen columns of a record that have a value. Raises MetadataError."""
    record, version = decode_record(value)
    kind = _type(type(record))
    columns: dict[str, Any] = {"type": kind, "version": version}
    if selection.has_any(ENTITY_COLUMNS):
        columns |= _entity(record)
    return columns | _content(record, version, kind, selection)


def decode_control(kind: int, value: memoryview, selection: Selection) -> dict[str, Any]:
    """The chosen columns of a control record that have a value. Raises MetadataError."""
    try:
        known = ControlRecordType(kind)
        cls = CONTROL_RECORDS[known]
    except (KeyError, ValueError):
        return {"control": True, "type": control_name(kind)}
    try:
        message, _ = cls.read(value, 0, 0)
    except (KafkaError, DecodeError) as error:
        raise MetadataError(f"{known.name} does not decode: {error}") from error
    return {"control": True, "type": known.name, "version": 0} | _content(message, 0, known.name, selection)


def control_name(kind: int) -> str:
    """The name of a type of control records."""
    try:
        return ControlRecordType(kind).name
    except ValueError:
        return f"UNKNOWN({kind})"


def _content(message: Message, version: int, kind: str, selection: Selection) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if JSON in selection.columns:
        columns[JSON] = _dump(to_json(message, version))
    typed = selection.fields.get(kind.lower())
    if typed is not None:
        every = _struct(message, TYPED_COLUMNS[kind.lower()])
        columns[kind.lower()] = {name: every[name] for name in typed}
    return columns


def _struct(value: Struct, root: type[Message]) -> dict[str, Any]:
    return {spec.name: _field(spec, getattr(value, spec.name), root) for spec in type(value).fields()}


def _field(spec: FieldSpec, value: Any, root: type[Message]) -> Any:
    if value is None:
        return None
    if spec.array:
        return [_element(spec, element, root) for element in value]
    return _element(spec, value, root)


def _element(spec: FieldSpec, value: Any, root: type[Message]) -> Any:
    if spec.kind == "uuid":
        return uuid_text(value)
    return _struct(value, root) if isinstance(value, Struct) else value


@cache
def _type(cls: type[Message]) -> str:
    return type_name(cls)


def _entity(record: Any) -> dict[str, Any]:
    """The columns that identify the entity of a record."""
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
            elif found["resource_type"] == "BROKER":
                found["broker_id"] = broker_id(record.resource_name)
        case "FeatureLevelRecord":
            found["key"] = record.name
            found["value"] = str(record.feature_level)
        case "ClientQuotaRecord":
            found["resource_type"] = "CLIENT_QUOTA"
            found["resource_name"] = ",".join(_quota_entities(record.entity))
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
        case "RegisterControllerRecord" | "UnregisterControllerRecord":
            found["broker_id"] = record.controller_id
    return found


def broker_id(name: str) -> int | None:
    """The broker of a config's resource name, which is empty for the default of all brokers."""
    if name.isascii() and name.isdigit() and int(name) < 1 << 31:
        return int(name)
    return None


def _quota_entities(entities: Sequence[Any]) -> list[str]:
    return [f"{entity.entity_type}={entity.entity_name or '<default>'}" for entity in entities]
