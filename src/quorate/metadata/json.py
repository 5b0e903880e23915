"""Records as Kafka's JSON: what its dump tool prints and its message generator reads.

Field names in lower camel case and schema order; uuids as 22 characters, bytes as base64; a tagged field at its default
is left out; a field that the version lacks is left out. Text comes out as Kafka's JSON writer (Jackson) forms it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from math import isnan
from typing import Any

from quorate.metadata.errors import MetadataError
from quorate.protocol.schema import Data, FieldSpec, Message, Struct
from quorate.protocol.uuids import parse_uuid, uuid_text


def type_name(cls: type[Message]) -> str:
    """`TopicRecord` -> `TOPIC_RECORD`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).upper()


def record_json(record: Data, version: int) -> dict[str, Any]:
    """A metadata record as the dump tool's payload: its type, version and data."""
    return {"type": type_name(type(record)), "version": version, "data": to_json(record, version)}


def to_json(message: Message, version: int) -> dict[str, Any]:
    """The message's fields of that version as JSON values (floats stay floats, everything else is exact)."""
    return _struct_out(type(message), message, version)


def from_json(cls: type[Message], value: Mapping[str, Any], version: int) -> Any:
    """The message of a JSON object. MetadataError names the field that is unknown, missing or of the wrong kind."""
    return _struct_in(cls, cls, value, version, cls.__name__)


def _struct_out(message: type[Message], value: Struct, version: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for spec in value.fields():
        if not spec.in_version(version):
            continue
        item = getattr(value, spec.name)
        if spec.tagged_in(version) and item == _default(spec):
            continue
        out[spec.json_name] = _out(message, spec, item, version)
    return out


def _out(message: type[Message], spec: FieldSpec, value: Any, version: int) -> Any:
    if value is None:
        return None
    if spec.array:
        return [_scalar_out(message, spec.kind, element, version) for element in value]
    return _scalar_out(message, spec.kind, value, version)


def _scalar_out(message: type[Message], kind: str, value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return _struct_out(message, value, version)
    if kind == "uuid":
        return uuid_text(value)
    if kind == "bytes":
        return base64.b64encode(value).decode("ascii")
    return value


def _default(spec: FieldSpec) -> Any:
    return spec.factory() if spec.factory is not None else spec.default


def _struct_in(message: type[Message], cls: type[Struct], value: object, version: int, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise MetadataError(f"{where} must be an object")
    left = dict(value)
    fields: dict[str, Any] = {}
    for spec in _specs(cls):
        if not spec.in_version(version):
            continue
        if spec.json_name not in left:
            if spec.tagged_in(version):
                continue
            raise MetadataError(f"{where} lacks the field {spec.json_name}, which is mandatory in version {version}")
        fields[spec.name] = _in(message, spec, left.pop(spec.json_name), version, f"{where}.{spec.json_name}")
    if left:
        raise MetadataError(f"{where} has no field {next(iter(left))} in version {version}")
    return cls(**fields)


def _specs(cls: type[Struct]) -> tuple[FieldSpec, ...]:
    return cls.fields()


def _in(message: type[Message], spec: FieldSpec, value: object, version: int, where: str) -> Any:
    if value is None:
        if not spec.nullable_in(version):
            raise MetadataError(f"{where} must not be null")
        return None
    if not spec.array:
        return _scalar_in(message, spec.kind, value, version, where)
    if not isinstance(value, list):
        raise MetadataError(f"{where} must be an array")
    return [_scalar_in(message, spec.kind, element, version, f"{where}[{at}]") for at, element in enumerate(value)]


_INTEGERS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}


def _scalar_in(message: type[Message], kind: str, value: object, version: int, where: str) -> Any:
    if kind in _INTEGERS:
        low, high = _INTEGERS[kind]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise MetadataError(f"{where} must be an integer from {low} to {high}")
        return value
    match kind:
        case "bool":
            if not isinstance(value, bool):
                raise MetadataError(f"{where} must be true or false")
            return value
        case "float64":
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise MetadataError(f"{where} must be a number")
            return float(value)
        case "str":
            if not isinstance(value, str):
                raise MetadataError(f"{where} must be a string")
            return value
        case "uuid" | "bytes" | "Records":
            if not isinstance(value, str):
                raise MetadataError(f"{where} must be a string in base64")
            try:
                return parse_uuid(value) if kind == "uuid" else base64.b64decode(value, validate=True)
            except (ValueError, binascii.Error) as error:
                raise MetadataError(f"{where}: {error}") from None
        case _:
            return _struct_in(message, getattr(message, kind), value, version, where)


def dump_json(value: Any) -> str:
    """Compact text, formed as Jackson forms it: no spaces, non-ASCII as it is, doubles as Java prints them."""
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
    """A JSON string."""
    return '"' + _UNSAFE.sub(lambda hit: _SHORT.get(hit[0]) or f"\\u{ord(hit[0]):04X}", text) + '"'


def java_double(value: float) -> str:
    """A double as Java's Double.toString prints it (Jackson quotes what is not a number)."""
    if isnan(value):
        return '"NaN"'
    if value in (float("inf"), float("-inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0:
        return "-0.0" if str(value).startswith("-") else "0.0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))  # 0.digits * 10 ** point
    digits = digits.rstrip("0") or "0"
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
