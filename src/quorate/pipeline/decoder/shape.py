"""The shape of a record: the positions of its fields in the bytes of its value.

Records of one type, version and size that have the same bytes at `Shape.equal_at` (lengths, counts and tags)
have the same shape. So the fields of thousands of them are found by one walk over the first, and read as
columns of bytes.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from quorate.dataclass import dataclass
from quorate.protocol.errors import DecodeError
from quorate.protocol.json import default_of
from quorate.protocol.primitives import MAX_STRING_BYTES, read_uvarint
from quorate.protocol.schema import Data, FieldSpec, Struct

SIZES: Final = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8,
    "uuid": 16,
}  # fmt: skip
"""The size in bytes of each kind of fixed size."""

_MAX_ELEMENTS: Final = 4_096
"""Larger arrays are left to the object decoder, because a shape has a part for each of their elements."""

_FRAME_BYTES: Final = 3


@dataclass(frozen=True, slots=True)
class Fixed:
    """A number or uuid; with a `count`, an array of them."""

    kind: str
    at: int
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Sized:
    """A string or bytes, of this size in every record of the shape."""

    kind: str
    at: int
    size: int


@dataclass(frozen=True, slots=True)
class Items:
    """An array of strings or structs."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a struct by their names."""

    parts: dict[str, Part]


@dataclass(frozen=True, slots=True)
class Constant:
    """A null or a default, which takes no bytes."""

    value: object
    kind: str


Part: TypeAlias = Fixed | Sized | Items | Fields | Constant


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields of a record, and the positions that decide where they are."""

    fields: dict[str, Part]
    equal_at: tuple[int, ...]


class UnusualRecordError(Exception):
    """The record is malformed, or has a form that only the object decoder reads."""


def shape_of(value: bytes, cls: type[Data], version: int) -> Shape | None:
    """The shape of a record with this type and version in its frame, or None if the object decoder is to
    decode it or to raise its error."""
    walk = _Walk(value, cls, version)
    try:
        fields = walk.struct(cls)
    except (UnusualRecordError, DecodeError, IndexError):
        return None
    if walk.position != len(value):
        return None
    return Shape(fields, tuple(walk.equal_at))


class _Walk:
    """One pass over the bytes of a record, in the order of its declaration."""

    def __init__(self, value: bytes, root: type[Data], version: int) -> None:
        self._value = value
        self._root = root
        self._version = version
        self.position = _FRAME_BYTES
        self.equal_at: list[int] = []

    def struct(self, cls: type[Struct]) -> dict[str, Part]:
        version = self._version
        if not self._root.is_flexible(version):
            raise UnusualRecordError
        parts: dict[str, Part] = {}
        tagged: dict[int | None, FieldSpec] = {}
        for spec in cls.fields():
            if not spec.in_version(version):
                parts[spec.name] = Constant(default_of(spec), spec.kind)
            elif spec.tagged_in(version):
                parts[spec.name] = Constant(default_of(spec), spec.kind)
                tagged[spec.tag] = spec
            else:
                parts[spec.name] = self._field(spec)
        for _ in range(self._length()):
            tag, size = self._length(), self._length()
            stop = self.position + size
            spec_or_none = tagged.get(tag)
            if spec_or_none is not None:
                parts[spec_or_none.name] = self._field(spec_or_none)
                if self.position != stop:
                    raise UnusualRecordError
            self._skip(stop - self.position)
        return parts

    def _field(self, spec: FieldSpec) -> Part:
        if spec.array:
            return self._array(spec)
        if spec.kind in SIZES:
            return Fixed(spec.kind, self._skip(SIZES[spec.kind]))
        if spec.kind in ("str", "bytes"):
            return self._sized(spec.kind, nullable=spec.nullable_in(self._version))
        if spec.nullable_in(self._version):
            raise UnusualRecordError
        return Fields(self.struct(self._root.struct_class(spec.kind)))

    def _array(self, spec: FieldSpec) -> Part:
        count = self._length() - 1
        if count < 0:
            if not spec.nullable_in(self._version):
                raise UnusualRecordError
            return Constant(None, spec.kind)
        if spec.kind in SIZES:
            return Fixed(spec.kind, self._skip(count * SIZES[spec.kind]), count)
        if count > min(_MAX_ELEMENTS, len(self._value)):
            raise UnusualRecordError
        if spec.kind in ("str", "bytes"):
            return Items(tuple([self._sized(spec.kind, nullable=False) for _ in range(count)]))
        cls = self._root.struct_class(spec.kind)
        return Items(tuple([Fields(self.struct(cls)) for _ in range(count)]))

    def _sized(self, kind: str, *, nullable: bool) -> Part:
        size = self._length() - 1
        if size < 0:
            if not nullable:
                raise UnusualRecordError
            return Constant(None, kind)
        if kind == "str" and size > MAX_STRING_BYTES:
            raise UnusualRecordError
        return Sized(kind, self._skip(size), size)

    def _length(self) -> int:
        """An unsigned varint. All records of the shape have its bytes."""
        begin = self.position
        value, self.position = read_uvarint(self._value, begin)
        self.equal_at += range(begin, self.position)
        return value

    def _skip(self, size: int) -> int:
        """Moves over bytes and returns where they begin."""
        begin = self.position
        self.position += size
        if self.position > len(self._value):
            raise UnusualRecordError
        return begin
