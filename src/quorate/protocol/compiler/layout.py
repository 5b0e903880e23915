"""How a version of a message lays out its fields: sizes of fixed-size kinds, least sizes of structs,
array codecs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quorate.protocol import primitives as pr
from quorate.protocol.errors import EncodeError
from quorate.protocol.fields import PRIMITIVES, FieldSpec, MessageClass, StructClass

FIXED: dict[str, tuple[str, int]] = {
    "int8": ("b", 1), "int16": ("h", 2), "uint16": ("H", 2), "int32": ("i", 4), "uint32": ("I", 4),
    "int64": ("q", 8), "float64": ("d", 8), "bool": ("?", 1), "uuid": ("16s", 16),
}  # fmt: skip
"""The format character of `struct` and the size in bytes of each kind whose size is fixed."""

_ARRAY_CODECS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "uuid": (pr.read_uuids, pr.write_uuids)
}


def array_codec(kind: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Reader and writer of the elements of an array of a fixed-size kind."""
    if kind not in _ARRAY_CODECS:
        _ARRAY_CODECS[kind] = pr.int_array_codec(*FIXED[kind])
    return _ARRAY_CODECS[kind]


def check_version(cls: MessageClass, version: int) -> None:
    """Raises EncodeError if the message lacks the version."""
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise EncodeError(
            f"{cls.class_name()} has versions {cls.MIN_VERSION} to {cls.MAX_VERSION}, not {version}"
        )


def minimum_size(root: MessageClass, cls: StructClass, version: int) -> int:
    """The least number of bytes that a struct takes in a version. It bounds the count of an array
    before allocation."""
    compact = root.is_flexible(version)
    total = 1 if compact else 0
    for spec in cls.fields():
        if not spec.in_version(version) or spec.tagged_in(version):
            continue
        if spec.array or spec.kind in ("bytes", "Records"):
            total += 1 if compact else 4
        elif spec.kind == "str":
            total += 1 if compact and spec.flexible else 2
        elif spec.kind in FIXED:
            total += FIXED[spec.kind][1]
        elif spec.nullable_in(version):
            total += 1
        else:
            total += minimum_size(root, root.struct_class(spec.kind), version)
    return total


def minimum_element_size(root: MessageClass, spec: FieldSpec, version: int) -> int:
    """The least number of bytes that an element of an array field takes."""
    if spec.kind in FIXED:
        return FIXED[spec.kind][1]
    compact = root.is_flexible(version)
    if spec.kind in PRIMITIVES:
        return 1 if compact else 2 if spec.kind == "str" else 4
    return max(1, minimum_size(root, root.struct_class(spec.kind), version))
