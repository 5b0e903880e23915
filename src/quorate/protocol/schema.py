"""The notation in which every message is declared, and the base classes of messages.

    class VoteRequest(Request, key=52, versions="0-2", flexible="0+", listeners={"controller"}):
        class TopicData(Struct):
            topic_name: str = ""
            partitions: list[VoteRequest.PartitionData] = field(default_factory=list)

        cluster_id: str | None = None
        voter_id: int32 = field(default=-1, versions="1+", ignorable=True)
        topics: list[TopicData] = field(default_factory=list)

- A field has a real annotation, so that a type checker knows it. Structs are nested classes of their
  message, all one level deep. Inside a struct, another one is named through the message.
- A version range is "3+", "1-4", "2" or "none". A field without a range is in all versions.
- `X | None` is nullable in all versions, unless `nullable=` gives a range.
- `tag=` makes a field tagged, in the versions of `tagged=` (by default in all versions that have the field).
- Defaults are Kafka's. A field that a version lacks is read as its default. Writing another value in
  such a version is an EncodeError, unless the field is `ignorable`. A tagged field equal to its default
  is not written.
- Unknown tagged fields are kept in `unknown_tags` and written back.

The metaclass only stores the declaration. The constructor is compiled on the first call, an encoder or
decoder on the first use of its version (`quorate.protocol.compiler`), because a process uses few of the
messages that it declares.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Any, ClassVar, Self, dataclass_transform

from quorate.protocol.compiler import compile_constructor, compile_decoder, compile_encoder
from quorate.protocol.errors import DecodeError, EncodeError
from quorate.protocol.fields import (
    NEVER,
    PRIMITIVES,
    Decoder,
    Encoder,
    FieldSpec,
    Range,
    boolean,
    field,
    float64,
    int8,
    int16,
    int32,
    int64,
    parse_range,
    read_field,
    records,
    string,
    uint16,
    uint32,
    uuid,
)
from quorate.protocol.file_region import FileRegion
from quorate.protocol.primitives import Buffer, Records, parse_tags
from quorate.protocol.uuids import ZERO_UUID, uuid_text

__all__ = [
    "NEVER", "PRIMITIVES", "ZERO_UUID", "Data", "FieldSpec", "Message", "Records", "Request", "Response",
    "Struct",
    "boolean", "field", "float64", "int8", "int16", "int32", "int64", "records", "string", "uint16",
    "uint32", "uuid",
]  # fmt: skip


def _get_tags(instance: Struct) -> dict[int, bytes] | None:
    if type(instance._tags) is bytes:
        instance._tags = parse_tags(instance._tags)  # type: ignore[misc]
    return instance._tags  # type: ignore[return-value]


def _set_tags(instance: Struct, tags: dict[int, bytes] | None) -> None:
    instance._tags = tags  # type: ignore[misc]


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructMeta(type):
    """Makes slots of the annotated fields of a class body and keeps their declarations."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **keywords: Any
    ) -> StructMeta:
        declared: dict[str, tuple[str, Any]] = {}
        if not bases:  # Struct itself: `unknown_tags` is a field for type checkers and a property at run time
            namespace.pop("unknown_tags")
            namespace |= {
                "__slots__": ("_tags",),
                "unknown_tags": property(_get_tags, _set_tags),
                "_declared": {},
            }
            return super().__new__(mcs, name, bases, namespace)
        for field_name, annotation in namespace.get("__annotations__", {}).items():
            if annotation.startswith("ClassVar"):
                continue
            declared[field_name] = annotation, namespace.pop(field_name)
        namespace["__slots__"] = tuple(declared)
        namespace["_declared"] = declared
        return super().__new__(mcs, name, bases, namespace, **keywords)


class Struct(metaclass=StructMeta):
    """A group of fields: a message or a part of one. Structs compare by value and are not hashable."""

    unknown_tags: dict[int, bytes] | None = None
    """Tagged fields that the declaration lacks, by tag."""

    # The bytes of the tagged section until `unknown_tags` is read: a dictionary takes sixty times as
    # much memory.
    _tags: ClassVar[bytes | dict[int, bytes] | None]
    _declared: ClassVar[dict[str, tuple[str, Any]]]
    _fields: ClassVar[tuple[FieldSpec, ...] | None] = None

    def __init__(self, **values: Any) -> None:
        # The first call compiles the constructor and replaces this method of the class by it.
        cls = type(self)
        constructor = compile_constructor(cls)
        cls.__init__ = constructor  # type: ignore[method-assign]
        constructor(self, **values)

    @classmethod
    def class_name(cls) -> str:
        """The name of the class."""
        return cls.__name__

    @classmethod
    def fields(cls) -> tuple[FieldSpec, ...]:
        """The declared fields in wire order, without `unknown_tags`."""
        if (specs := cls.__dict__.get("_fields")) is None:
            specs = tuple([read_field(name, *declared) for name, declared in cls._declared.items()])
            cls._fields = specs
        return specs

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return (self.unknown_tags or None) == (other.unknown_tags or None) and all(
            getattr(self, name) == getattr(other, name) for name in self._declared
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = [f"{spec.name}={_value_text(spec.kind, getattr(self, spec.name))}" for spec in self.fields()]
        if self.unknown_tags:
            fields.append(f"unknown_tags={self.unknown_tags}")
        return f"{type(self).__name__}({', '.join(fields)})"


def _value_text(kind: str, value: Any) -> str:
    """The value as text. Bytes are given by their length, because they may be large or a password."""
    if isinstance(value, list) and kind != "Records":
        return f"[{', '.join([_value_text(kind, element) for element in value])}]"
    if value is None or kind not in ("bytes", "Records", "uuid"):
        return repr(value)
    if kind == "uuid" and len(value) == 16:
        return uuid_text(value)
    return f"<{sum(map(len, value)) if isinstance(value, list) else len(value)} bytes>"


# Compiled decoders raise these besides DecodeError for malformed bytes.
_MALFORMED_ERRORS = (IndexError, struct.error)
# Compiled encoders raise these besides EncodeError for values that the schema does not allow.
_INVALID_VALUE_ERRORS = (struct.error, AttributeError, TypeError, OverflowError, UnicodeEncodeError)


class Message(Struct):
    """A struct with versions of its own, which encodes and decodes itself."""

    KEY: ClassVar[int] = -1
    """API key of a request or response, type of a record; -1 where there is none."""
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = -1
    FLEXIBLE: ClassVar[Range] = NEVER
    UNSTABLE_LAST: ClassVar[bool] = False
    """Whether the last version may still change. It is advertised only if the operator enables it."""
    LISTENERS: ClassVar[frozenset[str]] = frozenset()

    _decoders: ClassVar[dict[int, Decoder]]
    _encoders: ClassVar[dict[int, Encoder]]

    def __init_subclass__(
        cls,
        *,
        key: int = -1,
        versions: str | None = None,
        flexible: str = "none",
        listeners: Collection[str] = (),
        unstable_last: bool = False,
    ) -> None:
        super().__init_subclass__()
        cls._decoders = {}
        cls._encoders = {}
        if versions is None:  # Request, Response, Data, or a message that is kept in another form
            return
        cls.KEY = key
        cls.MIN_VERSION, cls.MAX_VERSION = parse_range(versions)
        cls.FLEXIBLE = parse_range(flexible)
        cls.LISTENERS = frozenset(listeners)
        cls.UNSTABLE_LAST = unstable_last

    @classmethod
    def struct_class(cls, name: str) -> type[Struct]:
        """The nested struct class of that name."""
        found: type[Struct] = getattr(cls, name)
        return found

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether this version uses compact lengths and tagged sections (KIP-482)."""
        return cls.FLEXIBLE[0] <= version <= cls.FLEXIBLE[1]

    @classmethod
    def decoder(cls, version: int) -> Decoder:
        """The compiled decoder of a version, for loops over many messages. Other callers use `read` or
        `decode`.

        The decoder raises IndexError or struct.error for input that is truncated, and DecodeError for
        other malformed input.
        """
        try:
            return cls._decoders[version]
        except KeyError:
            return cls._decoders.setdefault(version, compile_decoder(cls, version))

    @classmethod
    def encoder(cls, version: int) -> Encoder:
        """The compiled encoder of a version. Other callers use `encode` or `encode_parts`, which
        convert its errors."""
        try:
            return cls._encoders[version]
        except KeyError:
            return cls._encoders.setdefault(version, compile_encoder(cls, version))

    @classmethod
    def decode(cls, buf: Buffer, version: int) -> Self:
        """The message in `buf`. Raises DecodeError for malformed bytes and for bytes left after the
        message."""
        message, end = cls.read(buf, 0, version)
        if end != len(buf):
            raise DecodeError(f"{len(buf) - end} bytes are left behind {cls.__name__} v{version}")
        return message

    @classmethod
    def read(cls, buf: Buffer, pos: int, version: int) -> tuple[Self, int]:
        """The message at `pos` and the position after it. Raises DecodeError for malformed bytes."""
        decode = cls.decoder(version)
        try:
            return decode(buf, pos, len(buf))
        except DecodeError as e:
            raise DecodeError(f"{cls.__name__} v{version}: {e.message}") from None
        except _MALFORMED_ERRORS as e:
            raise DecodeError(f"{cls.__name__} v{version} is cut or malformed: {e}") from None

    def encode_parts(
        self, version: int, prefix: Buffer = b""
    ) -> list[bytes | bytearray | memoryview | FileRegion]:
        """The encoded message in parts, to be written in order. Record batches are not copied. Raises
        EncodeError."""
        encode = self.encoder(version)
        parts: list[bytes | bytearray | memoryview | FileRegion] = []
        try:
            encode(self, bytearray(prefix), parts)
        except EncodeError as e:
            raise EncodeError(f"{type(self).__name__} v{version}: {e.message}", e.code) from None
        except _INVALID_VALUE_ERRORS as e:
            raise EncodeError(f"{type(self).__name__} v{version} cannot be written: {e}") from e
        return parts

    def encode(self, version: int) -> bytes:
        """The encoded message as one bytes object. Raises EncodeError."""
        parts = self.encode_parts(version)
        if len(parts) == 1 and not isinstance(parts[0], FileRegion):
            return bytes(parts[0])
        return b"".join([part.read() if isinstance(part, FileRegion) else part for part in parts])


class Request(Message):
    """The body of a request."""


class Response(Message):
    """The body of a response. It has the version of its request."""


class Data(Message):
    """A message that is neither request nor response: the key or value of a record, a header, the
    content of a file."""
