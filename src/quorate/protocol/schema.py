"""The notation in which every message is declared, once, and what is asked of a declared message.

    class VoteRequest(Request, key=52, versions="0-2", flexible="0+", listeners={"controller"}):
        class TopicData(Struct):
            topic_name: str = ""
            partitions: list[VoteRequest.PartitionData] = field(default_factory=list)

        cluster_id: str | None = None
        voter_id: int32 = field(default=-1, versions="1+", ignorable=True)
        topics: list[TopicData] = field(default_factory=list)

- Annotations are real: a type checker knows every field. Structs are nested classes of their message, all one level
  deep; inside one of them another is named through the message.
- A version range is "3+", "1-4", "2" or "none". A field without one is in all versions.
- `X | None` is nullable in all versions unless `nullable=` says in which.
- `tag=` makes a field tagged, in the versions of `tagged=` (by default in all that have it).
- Defaults are Kafka's: what a version lacks is read as its default, and writing something else in such a version is
  an EncodeError unless the field is `ignorable`. A tagged field equal to its default is not written.
- Unknown tagged fields are kept in `unknown_tags` and written back.

The metaclass only notes the declaration; constructor, encoders and decoders are compiled for a class and a version when
first used (`compiler`), so that declaring hundreds of messages costs a start next to nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias, TypeVar, dataclass_transform, overload

from quorate.protocol.errors import DecodeError, EncodeError
from quorate.protocol.primitives import Buffer, Records, parse_tags
from quorate.protocol.regions import FileRegion
from quorate.protocol.uuids import ZERO_UUID

__all__ = [
    "ZERO_UUID", "Data", "Message", "Records", "Request", "Response", "Struct", "boolean", "field", "float64", "int8",
    "int16", "int32", "int64", "records", "string", "uint16", "uint32", "uuid",
]  # fmt: skip

int8 = Annotated[int, "int8"]
int16 = Annotated[int, "int16"]
uint16 = Annotated[int, "uint16"]
int32 = Annotated[int, "int32"]
uint32 = Annotated[int, "uint32"]
int64 = Annotated[int, "int64"]
float64 = Annotated[float, "float64"]
boolean: TypeAlias = bool
string: TypeAlias = str
uuid = Annotated[bytes, "uuid"]
"""16 raw bytes; `quorate.protocol.uuids` has their text."""
records: TypeAlias = Records
"""Record batches: decoded as a memoryview into the buffer, encoded without a copy. Written `Records` in declarations."""

T = TypeVar("T")

Range: TypeAlias = tuple[int, int]
NEVER: Final[Range] = (1, 0)
ALWAYS: Final[Range] = (0, 0x7FFF)


def parse_range(text: str) -> Range:
    """First and last version of "3+", "1-4", "2" or "none"."""
    if text == "none":
        return NEVER
    if text.endswith("+"):
        return int(text[:-1]), 0x7FFF
    first, _, last = text.partition("-")
    return int(first), int(last or first)


class FieldInfo:
    """What `field()` was told, before it is read together with the annotation."""

    __slots__ = ("default", "factory", "flexible", "ignorable", "json_name", "nullable", "tag", "tagged", "versions")

    def __init__(
        self,
        default: Any = None,
        factory: Callable[[], Any] | None = None,
        versions: str = "0+",
        tag: int | None = None,
        tagged: str | None = None,
        nullable: str | None = None,
        ignorable: bool = False,
        flexible: bool = True,
        json_name: str | None = None,
    ) -> None:
        self.default = default
        self.factory = factory
        self.versions = versions
        self.tag = tag
        self.tagged = tagged
        self.nullable = nullable
        self.ignorable = ignorable
        self.flexible = flexible
        self.json_name = json_name


@overload
def field(
    *, default: T, versions: str = "0+", tag: int | None = None, tagged: str | None = None,
    nullable: str | None = None, ignorable: bool = False, flexible: bool = True, json_name: str | None = None,
) -> T: ...  # fmt: skip
@overload
def field(
    *, default_factory: Callable[[], T], versions: str = "0+", tag: int | None = None, tagged: str | None = None,
    nullable: str | None = None, ignorable: bool = False, flexible: bool = True, json_name: str | None = None,
) -> T: ...  # fmt: skip
def field(
    default: Any = None,
    *,
    default_factory: Callable[[], Any] | None = None,
    versions: str = "0+",
    tag: int | None = None,
    tagged: str | None = None,
    nullable: str | None = None,
    ignorable: bool = False,
    flexible: bool = True,
    json_name: str | None = None,
) -> Any:
    """Declares a field that needs more than its annotation and default.

    flexible=False: keeps the old length form in flexible versions too (the client id of request headers).
    json_name: Kafka's name in JSON where it is not the camel case of ours.
    """
    return FieldInfo(default, default_factory, versions, tag, tagged, nullable, ignorable, flexible, json_name)


PRIMITIVES: Final = frozenset(
    {"int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "bool", "str", "bytes", "uuid", "Records"}
)
_ALIASES: Final = {"boolean": "bool", "string": "str", "records": "Records", "float": "float64"}


@dataclass(slots=True, frozen=True)
class FieldSpec:
    """A declared field, its annotation read."""

    name: str
    kind: str
    """One of PRIMITIVES, or the name of a struct of the message; for an array, of its elements."""
    array: bool
    versions: Range
    tag: int | None
    tagged: Range
    nullable: Range
    default: Any
    factory: Callable[[], Any] | None
    ignorable: bool
    flexible: bool
    json_name: str

    @property
    def is_struct(self) -> bool:
        """A single struct, not an array of them."""
        return not self.array and self.kind not in PRIMITIVES

    def in_version(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def tagged_in(self, version: int) -> bool:
        return self.in_version(version) and self.tagged[0] <= version <= self.tagged[1]

    def nullable_in(self, version: int) -> bool:
        return self.nullable[0] <= version <= self.nullable[1]


def _read_field(name: str, annotation: str, value: Any) -> FieldSpec:
    info = value if isinstance(value, FieldInfo) else FieldInfo(value)
    text = annotation.replace(" ", "")
    optional = text.endswith("|None")
    if optional:
        text = text[: -len("|None")]
    array = text.startswith("list[")
    if array:
        text = text[len("list[") : -1]
    kind = _ALIASES.get(text, text).rpartition(".")[2]
    if info.nullable is not None:
        nullable = parse_range(info.nullable)
    else:
        nullable = ALWAYS if optional else NEVER
    versions = parse_range(info.versions)
    head, *rest = name.split("_")
    return FieldSpec(
        name=name,
        kind=kind,
        array=array,
        versions=versions,
        tag=info.tag,
        tagged=NEVER if info.tag is None else versions if info.tagged is None else parse_range(info.tagged),
        nullable=nullable,
        default=info.default,
        factory=info.factory,
        ignorable=info.ignorable,
        flexible=info.flexible,
        json_name=info.json_name or head + "".join(part.capitalize() for part in rest),
    )


def _get_tags(instance: Struct) -> dict[int, bytes] | None:
    if type(instance._tags) is bytes:
        instance._tags = parse_tags(instance._tags)  # type: ignore[misc]
    return instance._tags  # type: ignore[return-value]


def _set_tags(instance: Struct, tags: dict[int, bytes] | None) -> None:
    instance._tags = tags  # type: ignore[misc]


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructMeta(type):
    """Turns the annotated fields of a class body into slots and keeps what they were declared with."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **keywords: Any) -> StructMeta:
        declared: dict[str, tuple[str, Any]] = {}
        if not bases:  # Struct itself: `unknown_tags` is a field for type checkers and a property at run time
            namespace.pop("unknown_tags")
            namespace |= {"__slots__": ("_tags",), "unknown_tags": property(_get_tags, _set_tags), "_declared": {}}
            return super().__new__(mcs, name, bases, namespace)
        for field_name, annotation in namespace.get("__annotations__", {}).items():
            if annotation.startswith("ClassVar"):
                continue
            declared[field_name] = annotation, namespace.pop(field_name)
        namespace["__slots__"] = tuple(declared)
        namespace["_declared"] = declared
        return super().__new__(mcs, name, bases, namespace, **keywords)


class Struct(metaclass=StructMeta):
    """A group of fields: a message, or a part of one. Compares by value; is not hashable."""

    unknown_tags: dict[int, bytes] | None = None
    """Tagged fields that this project does not know, by tag."""

    # As they were read, until somebody asks: a dictionary takes sixty times the bytes that it is made from.
    _tags: ClassVar[bytes | dict[int, bytes] | None]
    _declared: ClassVar[dict[str, tuple[str, Any]]]
    _fields: ClassVar[tuple[FieldSpec, ...] | None] = None

    def __init__(self, **values: Any) -> None:
        # Replaced in the class by its compiled constructor on the first call.
        from quorate.protocol.compiler import compile_constructor

        cls = type(self)
        constructor = compile_constructor(cls)
        cls.__init__ = constructor  # type: ignore[method-assign]
        constructor(self, **values)

    @classmethod
    def fields(cls) -> tuple[FieldSpec, ...]:
        """The declared fields in wire order, without `unknown_tags`."""
        if (specs := cls.__dict__.get("_fields")) is None:
            specs = tuple([_read_field(name, *declared) for name, declared in cls._declared.items()])
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
        shown = [f"{spec.name}={_show(spec.kind, getattr(self, spec.name))}" for spec in self.fields()]
        if self.unknown_tags:
            shown.append(f"unknown_tags={self.unknown_tags}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _show(kind: str, value: Any) -> str:
    """Bytes by their length alone: they may be megabytes, or a password."""
    if isinstance(value, list) and kind != "Records":
        return f"[{', '.join([_show(kind, element) for element in value])}]"
    if value is None or kind not in ("bytes", "Records", "uuid"):
        return repr(value)
    if kind == "uuid" and len(value) == 16:
        from quorate.protocol.uuids import uuid_text

        return uuid_text(value)
    return f"<{sum(map(len, value)) if isinstance(value, list) else len(value)} bytes>"


Decoder: TypeAlias = Callable[[Buffer, int, int], tuple[Any, int]]
Encoder: TypeAlias = Callable[[Any, bytearray, list[Buffer | FileRegion]], None]

# What malformed bytes make the compiled decoders raise besides DecodeError, and what values that no schema allows make
# the compiled encoders raise besides EncodeError.
_CUT = (IndexError, struct.error)
_UNFIT = (struct.error, AttributeError, TypeError, OverflowError, UnicodeEncodeError)


class Message(Struct):
    """A struct that stands alone: it knows its versions and encodes and decodes itself."""

    KEY: ClassVar[int] = -1
    """API key of a request or response, type of a record; -1 where there is none."""
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = -1
    FLEXIBLE: ClassVar[Range] = NEVER
    UNSTABLE_LAST: ClassVar[bool] = False
    """The last version may still change and is advertised only when the operator asks for it."""
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
        if versions is None:  # Request, Response, Data
            return
        cls.KEY = key
        cls.MIN_VERSION, cls.MAX_VERSION = parse_range(versions)
        cls.FLEXIBLE = parse_range(flexible)
        cls.LISTENERS = frozenset(listeners)
        cls.UNSTABLE_LAST = unstable_last
        cls._decoders = {}
        cls._encoders = {}

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether this version uses compact lengths and tagged sections (KIP-482)."""
        return cls.FLEXIBLE[0] <= version <= cls.FLEXIBLE[1]

    @classmethod
    def decoder(cls, version: int) -> Decoder:
        """The compiled decoder: (buffer, position, end) to (message, position behind it). It may raise what `_CUT`
        lists besides DecodeError; for loops over many records, which catch it once."""
        try:
            return cls._decoders[version]
        except KeyError:
            from quorate.protocol.compiler import compile_decoder

            return cls._decoders.setdefault(version, compile_decoder(cls, version))

    @classmethod
    def encoder(cls, version: int) -> Encoder:
        """The compiled encoder: (message, part under construction, finished parts), the first going into the second."""
        try:
            return cls._encoders[version]
        except KeyError:
            from quorate.protocol.compiler import compile_encoder

            return cls._encoders.setdefault(version, compile_encoder(cls, version))

    @classmethod
    def decode(cls, buf: Buffer, version: int) -> Self:
        """The message that fills `buf`. Raises DecodeError when it does not, or names what it does not hold."""
        message, end = cls.read(buf, 0, version)
        if end != len(buf):
            raise DecodeError(f"{len(buf) - end} bytes are left behind {cls.__name__} v{version}")
        return message

    @classmethod
    def read(cls, buf: Buffer, pos: int, version: int) -> tuple[Self, int]:
        """The message at `pos` and the position behind it. Raises DecodeError."""
        decode = cls.decoder(version)
        try:
            return decode(buf, pos, len(buf))
        except DecodeError as e:
            raise DecodeError(f"{cls.__name__} v{version}: {e.message}") from None
        except _CUT as e:
            raise DecodeError(f"{cls.__name__} v{version} is cut or malformed: {e}") from None

    def encode_parts(self, version: int, prefix: Buffer = b"") -> list[bytes | bytearray | memoryview | FileRegion]:
        """The parts to be written one after the other, `records` as they were given. Raises EncodeError."""
        encode = self.encoder(version)
        parts: list[bytes | bytearray | memoryview | FileRegion] = []
        try:
            encode(self, bytearray(prefix), parts)
        except EncodeError as e:
            raise EncodeError(f"{type(self).__name__} v{version}: {e.message}", e.code) from None
        except _UNFIT as e:
            raise EncodeError(f"{type(self).__name__} v{version} cannot be written: {e}") from e
        return parts

    def encode(self, version: int) -> bytes:
        """The message in one piece. Raises EncodeError."""
        parts = self.encode_parts(version)
        if len(parts) == 1 and not isinstance(parts[0], FileRegion):
            return bytes(parts[0])
        return b"".join([part.read() if isinstance(part, FileRegion) else part for part in parts])


class Request(Message):
    """The body of a request."""


class Response(Message):
    """The body of a response, in the version of its request."""


class Data(Message):
    """A message outside of requests and responses: a record's key or value, a header, a file's content."""
