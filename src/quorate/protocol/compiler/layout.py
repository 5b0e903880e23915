"""The layout of the fields of a struct in one version, and the functions that read and write them.

Decoder and encoder share this module, so that both see the same fields in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from struct import Struct as Packing
from typing import Any

from quorate.dataclass import dataclass
from quorate.protocol import primitives as pr
from quorate.protocol.errors import EncodeError
from quorate.protocol.fields import PRIMITIVES, FieldSpec, MessageClass, StructClass

FIXED: dict[str, tuple[str, int]] = {
    "int8": ("b", 1), "int16": ("h", 2), "uint16": ("H", 2), "int32": ("i", 4), "uint32": ("I", 4),
    "int64": ("q", 8), "float64": ("d", 8), "bool": ("?", 1), "uuid": ("16s", 16),
}  # fmt: skip
"""The format character of `struct` and the size in bytes of each kind whose size is fixed."""

Codec = tuple[Callable[..., Any], Callable[..., Any]]
"""A reader and the writer that is its counterpart."""

VALUE_CODECS: dict[tuple[str, bool, bool], Codec] = {
    ("str", False, False): (pr.read_string, pr.write_string),
    ("str", False, True): (pr.read_nullable_string, pr.write_nullable_string),
    ("str", True, False): (pr.read_compact_string, pr.write_compact_string),
    ("str", True, True): (pr.read_nullable_compact_string, pr.write_nullable_compact_string),
    ("bytes", False, False): (pr.read_bytes, pr.write_bytes),
    ("bytes", False, True): (pr.read_nullable_bytes, pr.write_nullable_bytes),
    ("bytes", True, False): (pr.read_compact_bytes, pr.write_compact_bytes),
    ("bytes", True, True): (pr.read_nullable_compact_bytes, pr.write_nullable_compact_bytes),
}
"""The codec of a single value by its kind, whether its length is compact and whether it may be null."""

_ARRAY_CODECS: dict[str, Codec] = {"uuid": (pr.read_uuids, pr.write_uuids)}


def array_codec(kind: str) -> Codec:
    """The codec of the elements of an array of a fixed-size kind."""
    if kind not in _ARRAY_CODECS:
        _ARRAY_CODECS[kind] = pr.int_array_codec(*FIXED[kind])
    return _ARRAY_CODECS[kind]


def length_codec(compact: bool) -> Codec:
    """The codec of the length of an array or of record batches."""
    if compact:
        return pr.read_compact_length, pr.write_compact_length
    return pr.read_length, pr.write_length


@dataclass(slots=True)
class StructLayout:
    """The fields of a struct, divided by how one version writes them."""

    absent: list[FieldSpec] = field(default_factory=list)
    """The fields that the version lacks."""
    body: list[FieldSpec | list[FieldSpec]] = field(default_factory=list)
    """The untagged fields in wire order. Neighbouring fields of fixed size are one list."""
    tagged: list[FieldSpec] = field(default_factory=list)
    """The tagged fields in the order of their tags."""


def struct_layout(cls: StructClass, version: int) -> StructLayout:
    """Returns the layout of a struct in a version."""
    layout = StructLayout()
    for spec in cls.fields():
        if not spec.in_version(version):
            layout.absent.append(spec)
        elif spec.tagged_in(version):
            layout.tagged.append(spec)
        elif not is_fixed(spec):
            layout.body.append(spec)
        elif layout.body and isinstance(layout.body[-1], list):
            layout.body[-1].append(spec)
        else:
            layout.body.append([spec])
    layout.tagged.sort(key=lambda spec: spec.tag or 0)
    return layout


def is_fixed(spec: FieldSpec) -> bool:
    """Whether the field is a single value of fixed size."""
    return spec.kind in FIXED and not spec.array


def packing(run: list[FieldSpec]) -> Packing:
    """The `struct.Struct` of neighbouring fields of fixed size."""
    return Packing(">" + "".join([FIXED[spec.kind][0] for spec in run]))


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
