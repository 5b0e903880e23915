"""The fields of messages: their types, their declaration with `field()`, and the specification read
from both.

`schema` describes the notation. This module also defines the two protocols by which the compilers see
struct and message classes, so that `schema` can import the compilers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, overload

from quorate.dataclass import dataclass
from quorate.protocol.file_region import FileRegion
from quorate.protocol.primitives import Buffer, Records

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
"""16 raw bytes. `quorate.protocol.uuids` converts them to text."""
records: TypeAlias = Records
"""Record batches. They are decoded as a memoryview of the buffer and encoded without a copy.
Declarations write `Records`."""

T = TypeVar("T")

Range: TypeAlias = tuple[int, int]
NEVER: Final[Range] = (1, 0)
ALWAYS: Final[Range] = (0, 0x7FFF)


def parse_range(text: str) -> Range:
    """The first and last version of a range: "3+", "1-4", "2" or "none"."""
    if text == "none":
        return NEVER
    if text.endswith("+"):
        return int(text[:-1]), 0x7FFF
    first, _, last = text.partition("-")
    return int(first), int(last or first)


@dataclass(slots=True)
class FieldDeclaration:
    """The arguments of `field()`. `read_field` combines them with the annotation of the field."""

    default: Any = None
    factory: Callable[[], Any] | None = None
    versions: str = "0+"
    tag: int | None = None
    tagged: str | None = None
    nullable: str | None = None
    ignorable: bool = False
    flexible: bool = True
    json_name: str | None = None


class FieldOptions(TypedDict, total=False):
    """The arguments of `field()` besides the default. `schema` describes them."""

    versions: str
    tag: int | None
    tagged: str | None
    nullable: str | None
    ignorable: bool
    flexible: bool
    """False if the field keeps the non-compact length in flexible versions: the client id of request headers.
    """
    json_name: str | None
    """Kafka's name of the field in JSON, if it is not the camel case of the Python name."""


@overload
def field(*, default: T, **options: Unpack[FieldOptions]) -> T: ...
@overload
def field(*, default_factory: Callable[[], T], **options: Unpack[FieldOptions]) -> T: ...
def field(
    *, default: Any = None, default_factory: Callable[[], Any] | None = None, **options: Unpack[FieldOptions]
) -> Any:
    """Declares a field that needs more than an annotation and a default."""
    return FieldDeclaration(default, default_factory, **options)


PRIMITIVES: Final = frozenset(
    {
        "int8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "float64",
        "bool",
        "str",
        "bytes",
        "uuid",
        "Records",
    }
)
_ALIASES: Final = {"boolean": "bool", "string": "str", "records": "Records", "float": "float64"}


@dataclass(slots=True, frozen=True)
class FieldSpec:
    """A declared field of a struct: its type, the versions that have it, and how each of them writes it."""

    name: str
    kind: str
    """One of PRIMITIVES or the name of a struct of the message. For an array it is the type of the
    elements."""
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
        """Whether the field is one struct, not an array of structs."""
        return not self.array and self.kind not in PRIMITIVES

    def in_version(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def tagged_in(self, version: int) -> bool:
        return self.in_version(version) and self.tagged[0] <= version <= self.tagged[1]

    def nullable_in(self, version: int) -> bool:
        return self.nullable[0] <= version <= self.nullable[1]


def read_field(name: str, annotation: str, value: Any) -> FieldSpec:
    """The specification of a field from its annotation and its default or `field()` declaration."""
    info = value if isinstance(value, FieldDeclaration) else FieldDeclaration(value)
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


class StructClass(Protocol):
    """A class declared in the notation, as the compilers see it."""

    def class_name(self) -> str:
        """The name of the class."""
        ...

    def fields(self) -> tuple[FieldSpec, ...]:
        """The declared fields in wire order."""
        ...


class MessageClass(StructClass, Protocol):
    """A struct class that has versions of its own."""

    MIN_VERSION: int
    MAX_VERSION: int

    def struct_class(self, name: str) -> StructClass:
        """The nested struct class of that name."""
        ...

    def is_flexible(self, version: int) -> bool:
        """Whether this version uses compact lengths and tagged sections (KIP-482)."""
        ...


Decoder: TypeAlias = Callable[[Buffer, int, int], tuple[Any, int]]
"""(buffer, position, end) -> (message, position after it)."""

Encoder: TypeAlias = Callable[[Any, bytearray, list[Buffer | FileRegion]], None]
"""(message, part under construction, finished parts). The encoder appends the part to the finished ones."""
