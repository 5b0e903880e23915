"""The columns of the data source: their names, their types, and the choice of a reader among them.

There are two forms. The untyped form has the same columns for every record, and its fields as JSON. The
typed form has for each record type a struct column, named as the type in lower case: `partition_record`
has the fields of PartitionRecord as its declaration in `quorate.metadata.records` lists them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from functools import cache
from typing import Final, TypeAlias

from quorate.dataclass import dataclass
from quorate.metadata.json import type_name
from quorate.metadata.records import RECORD_TYPES
from quorate.protocol.schema import Data, FieldSpec, Struct
from quorate.records.control import CONTROL_RECORDS

LOG_COLUMNS: Final = {
    "offset": "bigint",
    "epoch": "int",
    "timestamp": "timestamp",
    "snapshot": "bigint",
    "position": "bigint",
    "control": "boolean",
    "type": "string",
    "version": "int",
}
"""Where a record is. `snapshot` is the end offset of the record's snapshot, `position` the record's offset in
its file, which orders the rows of a snapshot."""

ENTITY_COLUMNS: Final = {
    "topic_id": "string",
    "topic_name": "string",
    "partition": "int",
    "broker_id": "int",
    "resource_type": "string",
    "resource_name": "string",
    "key": "string",
    "value": "string",
}
"""What a record is about. `key` and `value` are name and value of a config or quota, or name and level of a
feature."""

ATTRIBUTION_COLUMNS: Final = {
    "principal": "string",
    "client_id": "string",
    "address": "string",
    "api": "int",
    "reason": "string",
}
"""Who caused the records of a batch, from the tagged fields of the NoOpRecord at its end."""

JSON: Final = "json"
"""The column of all fields of a record, named as Kafka's dump tool names them."""

COMMITTED: Final = "committed"
"""The column that is true if the record is known to be committed."""

CORRUPT: Final = "corrupt"
"""The column that describes what could not be read. It is null in the row of a record."""

UNTYPED_COLUMNS: Final = {
    **LOG_COLUMNS,
    COMMITTED: "boolean",
    **ENTITY_COLUMNS,
    **ATTRIBUTION_COLUMNS,
    JSON: "string",
    CORRUPT: "string",
}

_RECORDS: Final[dict[str, type[Data]]] = {
    **{type_name(cls): cls for cls in RECORD_TYPES.values()},
    **{kind.name: cls for kind, cls in CONTROL_RECORDS.items()},
}

RECORD_NAMES: Final = frozenset(_RECORDS)
"""The values of the column `type`."""

TYPED_COLUMNS: Final[dict[str, type[Data]]] = {
    name.lower(): cls for name, cls in _RECORDS.items() if cls.fields()
}
"""The struct columns and the record classes that declare their fields. A class without fields has none."""


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """The type of an array column."""

    element: Kind


@dataclass(frozen=True, slots=True)
class StructOf:
    """The type of a struct column."""

    fields: tuple[tuple[str, Kind], ...]


Kind: TypeAlias = str | ArrayOf | StructOf
"""The type of a column: Spark's name of an atomic type, or an array or struct of types."""

_ATOMIC: Final = {
    "int8": "tinyint",
    "int16": "smallint",
    "uint16": "int",
    "int32": "int",
    "uint32": "bigint",
    "int64": "bigint",
    "float64": "double",
    "bool": "boolean",
    "str": "string",
    "bytes": "binary",
    "uuid": "string",
}


@cache
def struct_kind(cls: type[Struct], root: type[Data]) -> StructOf:
    """The type of a record class, or of a struct inside of the record `root`."""
    return StructOf(tuple((spec.name, _field_kind(spec, root)) for spec in cls.fields()))


def _field_kind(spec: FieldSpec, root: type[Data]) -> Kind:
    kind: Kind = _ATOMIC.get(spec.kind) or struct_kind(root.struct_class(spec.kind), root)
    return ArrayOf(kind) if spec.array else kind


def ddl(kind: Kind) -> str:
    """The type in Spark's notation."""
    match kind:
        case ArrayOf(element):
            return f"array<{ddl(element)}>"
        case StructOf(fields):
            return f"struct<{','.join([f'{name}:{ddl(inner)}' for name, inner in fields])}>"
        case str():
            return kind


@dataclass(frozen=True, slots=True)
class Selection:
    """The columns that are asked for, in order, and the record types of which rows are asked for."""

    columns: tuple[str, ...] = tuple(UNTYPED_COLUMNS)
    fields: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The fields of each struct column in `columns`."""
    types: frozenset[str] | None = None
    """None for all types."""

    def kind(self, column: str) -> Kind:
        """The type of a column."""
        if column in UNTYPED_COLUMNS:
            return UNTYPED_COLUMNS[column]
        cls = TYPED_COLUMNS[column]
        every = dict(struct_kind(cls, cls).fields)
        return StructOf(tuple((name, every[name]) for name in self.fields[column]))

    def ddl(self) -> str:
        """The columns and their types in Spark's notation."""
        return ", ".join([f"`{column}` {ddl(self.kind(column))}" for column in self.columns])

    def has_any(self, columns: Iterable[str]) -> bool:
        """Whether one of these columns is asked for."""
        return any(column in self.columns for column in columns)


def select(columns: str | None = None, types: str | None = None) -> Selection:
    """The selection of two options, which are lists of names with commas.

    A struct column may be reduced to fields: `partition_record.leader`. Without `columns` it is the untyped
    form, or with `types` the typed form of these types. Raises ValueError, which lists the known names.
    """
    wanted = None
    if types is not None:
        wanted = frozenset(name.upper() for name in _names(types))
        if not wanted:
            raise ValueError("option types names no type")
        if unknown := sorted(wanted - RECORD_NAMES):
            raise ValueError(
                f"option types: {', '.join(unknown)} is not one of {', '.join(sorted(RECORD_NAMES))}"
            )
    if columns is None:
        if wanted is None:
            return Selection()
        typed = [name for name in TYPED_COLUMNS if name.upper() in wanted]
        columns = ",".join([*LOG_COLUMNS, COMMITTED, *typed, CORRUPT])
    chosen: dict[str, list[str]] = {}
    for name in _names(columns):
        column, _, inner = name.partition(".")
        if column in UNTYPED_COLUMNS and not inner:
            chosen[column] = []
        elif column in TYPED_COLUMNS:
            every = [known for known, _ in struct_kind(TYPED_COLUMNS[column], TYPED_COLUMNS[column]).fields]
            if inner and inner not in every:
                raise ValueError(f"option columns: {column} has no field {inner}, only {', '.join(every)}")
            fields = chosen.setdefault(column, [])
            fields += [known for known in ([inner] if inner else every) if known not in fields]
        else:
            known = ", ".join([*UNTYPED_COLUMNS, *TYPED_COLUMNS])
            raise ValueError(f"option columns: {name} is not one of {known}")
    if not chosen:
        raise ValueError("option columns names no column")
    return Selection(tuple(chosen), {name: tuple(found) for name, found in chosen.items() if found}, wanted)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
