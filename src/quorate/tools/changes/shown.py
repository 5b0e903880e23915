"""Changes as lines of text and as JSON objects. Passwords and keys are not shown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quorate.config.dynamic_configs import is_sensitive
from quorate.metadata.changes import Change, Value
from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import decode_record
from quorate.metadata.json import record_json, type_name
from quorate.metadata.records import ConfigRecord, NoOpRecord, UserScramCredentialRecord
from quorate.protocol.api import ApiKey
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.schema import Data
from quorate.protocol.uuids import parse_uuid
from quorate.tools.command_line import printable
from quorate.tools.times import time_text

HIDDEN = "(hidden)"

Topics = Mapping[bytes, str]


def api_name(key: int) -> str | None:
    """The name of an API, its key if it is unknown, or None if there is none."""
    if key < 0:
        return None
    try:
        return ApiKey(key).name
    except ValueError:
        return str(key)


def json_line(change: Change, values: Sequence[Value], topics: Topics) -> str:
    """A change and these records of it as JSON. `topics` are the names of the topics in the records."""
    cause = change.cause or NoOpRecord()
    records = [_json(value, change) for value in values]
    named = dict.fromkeys([name for record in records if (name := _topic(record, topics)) is not None])
    return json.dumps(
        {
            "offset": change.base_offset,
            "epoch": change.epoch,
            "timestamp": time_text(change.timestamp_ms),
            "principal": cause.principal,
            "clientId": cause.client_id,
            "address": cause.address,
            "api": api_name(cause.api),
            "reason": cause.reason,
            "topics": list(named),
            "records": records,
        },
        ensure_ascii=False,
    )


def text_lines(change: Change, values: Sequence[Value], topics: Topics, most: int) -> Iterator[str]:
    """A line about who made the change, and one for each record, up to `most`."""
    yield f"{time_text(change.timestamp_ms)}  offset {change.base_offset}  {cause_text(change.cause)}"
    for value in values[:most]:
        shown = _json(value, change)
        topic = _topic(shown, topics)
        fields = []
        if topic is not None and "name" not in shown["data"]:
            fields = [f"topic={printable(topic)}"]
        hidden = "topicId" if fields else ""
        fields += [
            f"{name}={_text(item)}"
            for name, item in shown["data"].items()
            if name != hidden and item is not None and item not in ("", [])
        ]
        yield f"    {shown['type']}  {' '.join(fields)}".rstrip()
    if len(values) > most:
        yield f"    and {len(values) - most} more records"


def cause_text(cause: NoOpRecord | None) -> str:
    """Who or what caused a change."""
    if cause is None:
        return "unknown"
    if cause.principal is None and cause.api < 0:
        return f"controller: {printable(cause.reason or 'no reason')}"
    client = ", ".join([printable(text) for text in (cause.client_id, cause.address) if text])
    parts = [
        printable(cause.principal or "unknown"),
        f"({client})" if client else "",
        api_name(cause.api) or "",
    ]
    if cause.reason:
        parts.append(f"({printable(cause.reason)})")
    return " ".join([part for part in parts if part])


def _json(value: Value, change: Change) -> dict[str, Any]:
    """A record in the form of the dump tool, without secrets."""
    try:
        record, version = decode_record(value)
    except MetadataError as error:
        return {"type": "UNKNOWN", "version": -1, "data": {"error": str(error.at(change.base_offset))}}
    return record_json(_without_secrets(record), version)


def _without_secrets(record: Data) -> Data:
    if isinstance(record, UserScramCredentialRecord):
        record.salt = record.stored_key = record.server_key = b""
    elif isinstance(record, ConfigRecord) and record.value is not None and _is_secret(record.name):
        record.value = HIDDEN
    return record


def _is_secret(name: str) -> bool:
    """Whether the value of a key is hidden. Keys of plugins are not known here, only their names."""
    return is_sensitive(name) or "password" in name.lower()


def _topic(record: Mapping[str, Any], topics: Topics) -> str | None:
    """The name of the topic that a record is about, if it is known."""
    data = record["data"]
    if record["type"] == type_name(ConfigRecord):
        return data["resourceName"] if data["resourceType"] == ConfigResourceType.TOPIC else None
    topic_id = data.get("topicId")
    return data.get("topicName") if topic_id is None else topics.get(parse_uuid(topic_id))


def _text(item: Any) -> str:
    if isinstance(item, str):
        return printable(item)
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"))
