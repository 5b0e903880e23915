"""Metadata records as JSON, in the form of Kafka's dump tool and of its JSON writer, Jackson."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isinf, isnan
from typing import Any

from quorate.metadata.errors import MetadataError
from quorate.metadata.records import RECORD_TYPES
from quorate.protocol.errors import DecodeError
from quorate.protocol.json import from_json, to_json
from quorate.protocol.schema import Data, Message


def type_name(cls: type[Message]) -> str:
    """The name of a record type: `TopicRecord` -> `TOPIC_RECORD`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).upper()


def record_json(record: Data, version: int) -> dict[str, Any]:
    """A metadata record as the payload that the dump tool prints: its type, version and data."""
    return {"type": type_name(type(record)), "version": version, "data": to_json(record, version)}


def record_from_json(value: Mapping[str, Any]) -> tuple[Data, int]:
    """The record of such a payload, and its version. Raises MetadataError with the missing or invalid
    field."""
    cls = _BY_NAME.get(value.get("type", ""))
    version = value.get("version")
    if cls is None:
        raise MetadataError(f"record type {value.get('type')!r} is unknown")
    if type(version) is not int or not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise MetadataError(f"version {version!r} of {value['type']} is unknown")
    try:
        return from_json(cls, value.get("data"), version), version
    except DecodeError as error:
        raise MetadataError(str(error)) from error


_BY_NAME: dict[str, type[Data]] = {type_name(cls): cls for cls in RECORD_TYPES.values()}


def dump_json(value: Any) -> str:
    """Compact JSON in Jackson's form: without spaces, with non-ASCII characters unescaped, and with
    doubles as Java prints them."""
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float):
        return java_double(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, Mapping):
        return "{" + ",".join([f"{quoted(key)}:{dump_json(item)}" for key, item in value.items()]) + "}"
    return "[" + ",".join([dump_json(item) for item in value]) + "]"


_UNSAFE = re.compile(r'[\x00-\x1f"\\]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(text: str) -> str:
    """A string as JSON."""
    return '"' + _UNSAFE.sub(lambda hit: _SHORT.get(hit[0]) or f"\\u{ord(hit[0]):04X}", text) + '"'


def java_double(value: float) -> str:
    """A double as Java's Double.toString prints it. Jackson quotes infinity and NaN."""
    if isnan(value):
        return '"NaN"'
    if isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0:
        return str(value)
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # value = 0.digits * 10 ** point
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0") or "0"
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
