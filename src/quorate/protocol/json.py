"""Converts messages to and from Kafka's JSON, which `quorum-state` contains and kafka-dump-log prints.

Field names are Kafka's, in camel case. Fields that the version lacks are left out, and so are tagged fields
with their default. Uuids are text of 22 characters, and bytes are base64. Unknown tagged fields are left out,
as in Kafka. The values are dicts, lists, strings and numbers for `json.dumps`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, TypeVar

from quorate.protocol.errors import DecodeError, EncodeError
from quorate.protocol.file_region import FileRegion
from quorate.protocol.schema import PRIMITIVES, FieldSpec, Message, Struct
from quorate.protocol.uuids import parse_uuid, uuid_text

M = TypeVar("M", bound=Message)

_LIMITS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}


def default_of(spec: FieldSpec) -> Any:
    """Returns a new default value of a field."""
    return spec.default if spec.factory is None else spec.factory()


def to_json(message: Message, version: int, *, record_bytes: bool = False) -> dict[str, Any]:
    """Returns the JSON of a message. `record_bytes` includes record batches as base64 instead of their size.

    Raises EncodeError if a field is set that the version lacks and that is not ignorable.
    """
    return _struct_to_json(type(message), message, version, record_bytes)


def _struct_to_json(root: type[Message], value: Struct, version: int, record_bytes: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for spec in type(value).fields():
        content = getattr(value, spec.name)
        if not spec.in_version(version):
            if not spec.ignorable and content != default_of(spec):
                raise EncodeError(
                    f"{root.__name__} v{version}: {spec.name} is set, but not part of this version"
                )
        elif spec.tagged_in(version) and content == default_of(spec):
            continue
        elif spec.kind == "Records" and not record_bytes and content is not None:
            pieces = content if isinstance(content, list) else [content]
            shown[spec.json_name + "SizeInBytes"] = sum([len(piece) for piece in pieces])
        elif content is None or not spec.array:
            shown[spec.json_name] = _value_to_json(root, spec, content, version, record_bytes)
        else:
            shown[spec.json_name] = [
                _value_to_json(root, spec, item, version, record_bytes) for item in content
            ]
    return shown


def _value_to_json(root: type[Message], spec: FieldSpec, value: Any, version: int, record_bytes: bool) -> Any:
    if value is None:
        return None
    if spec.kind not in PRIMITIVES:
        return _struct_to_json(root, value, version, record_bytes)
    if spec.kind == "uuid":
        return uuid_text(value)
    if spec.kind in ("bytes", "Records"):
        pieces = value if isinstance(value, list) else [value]
        data = b"".join([piece.read() if isinstance(piece, FileRegion) else piece for piece in pieces])
        return base64.b64encode(data).decode("ascii")
    return value


def from_json(cls: type[M], value: object, version: int) -> M:
    """Returns the message of a JSON value, as the counterpart of `to_json(..., record_bytes=True)`.

    Unknown fields are skipped, as in Kafka. Raises DecodeError, which names the field, if one is missing or
    invalid.
    """
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise DecodeError(
            f"{cls.__name__} has versions {cls.MIN_VERSION} to {cls.MAX_VERSION}, not {version}"
        )
    return _struct_from_json(cls, cls, value, version, cls.__name__)


S = TypeVar("S", bound=Struct)


def _struct_from_json(root: type[Message], cls: type[S], value: object, version: int, where: str) -> S:
    if not isinstance(value, Mapping):
        raise DecodeError(f"{where} is no JSON object")
    found: dict[str, Any] = {}
    for spec in cls.fields():
        if not spec.in_version(version):
            continue
        name = f"{where}.{spec.json_name}"
        if spec.json_name not in value:
            if spec.tagged_in(version):
                continue
            raise DecodeError(f"{name} is missing, but version {version} has it")
        content = value[spec.json_name]
        if content is None:
            if not spec.nullable_in(version):
                raise DecodeError(f"{name} is null")
            found[spec.name] = None
        elif spec.array:
            if not isinstance(content, list):
                raise DecodeError(f"{name} is no JSON array")
            found[spec.name] = [
                _value_from_json(root, spec, item, version, f"{name}[{i}]") for i, item in enumerate(content)
            ]
        else:
            found[spec.name] = _value_from_json(root, spec, content, version, name)
    return cls(**found)


def _value_from_json(root: type[Message], spec: FieldSpec, value: Any, version: int, name: str) -> Any:
    kind = spec.kind
    if kind not in PRIMITIVES:
        return _struct_from_json(root, root.struct_class(kind), value, version, name)
    if kind in _LIMITS:
        low, high = _LIMITS[kind]
        if type(value) is not int or not low <= value <= high:
            raise DecodeError(f"{name}: {value!r} is no {kind}")
        return value
    if kind == "bool" or kind == "str":
        if not isinstance(value, bool if kind == "bool" else str):
            raise DecodeError(f"{name}: {value!r} is no {'boolean' if kind == 'bool' else 'string'}")
        return value
    if kind == "float64":
        if type(value) not in (int, float):
            raise DecodeError(f"{name}: {value!r} is no number")
        return float(value)
    if not isinstance(value, str):
        raise DecodeError(f"{name}: {value!r} is no string")
    try:
        return parse_uuid(value) if kind == "uuid" else base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error) as e:
        raise DecodeError(f"{name}: {e}") from None
