"""What the declarations of entities compute from records: small functions of columns, evaluated by Arrow.

An expression is a path or a function of expressions. A path names a column of the table `events`, a
field of its struct columns (`partition_record.leader`), or a field of the element of a list
(`each.voter_id`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from quorate.dataclass import dataclass
from quorate.pipeline.datasource.bounds import FIRST_TIME_MS, LAST_TIME_MS


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the values of other expressions. Its result is an array, or a scalar for all rows."""

    of: tuple[Expression, ...]
    apply: Callable[..., Any]


Expression: TypeAlias = str | Function


def paths(expression: Expression) -> frozenset[str]:
    """The columns and fields that an expression reads."""
    if isinstance(expression, str):
        return frozenset([expression])
    return frozenset([path for inner in expression.of for path in paths(inner)])


class Rows:
    """Rows of records, of which expressions are evaluated. A column that is not there is null."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._found: dict[str, pa.Array] = {}

    def value(self, expression: Expression) -> pa.Array:
        """The values of an expression."""
        found = self._value(expression)
        if not isinstance(found, pa.Scalar):
            return found
        count = self.table.num_rows
        return pa.repeat(found, count) if count else pa.array([], found.type)

    def _value(self, expression: Expression) -> Any:
        if isinstance(expression, str):
            return self._at(expression)
        return expression.apply(*[self._value(inner) for inner in expression.of])

    def _at(self, path: str) -> Any:
        if path not in self._found:
            parent, _, name = path.rpartition(".")
            if parent:
                inside = self._at(parent)
                found = pa.scalar(None) if pa.types.is_null(inside.type) else pc.struct_field(inside, name)
            elif path in self.table.column_names:
                found = whole(self.table.column(path))
            else:
                found = pa.scalar(None)
            self._found[path] = found
        return self._found[path]

    def where(self, condition: Expression) -> Rows:
        """The rows for which a condition is true."""
        return Rows(self.table.filter(self.value(condition)))

    def each(self, path: str) -> Rows:
        """A row for each element of a list, which is the column `each`."""
        lists = self.value(path)
        table = self.table.take(pc.list_parent_indices(lists))
        return Rows(table.append_column("each", pc.list_flatten(lists)))


def whole(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column as one array."""
    found = column.combine_chunks()
    if isinstance(found, pa.ChunkedArray):
        return found.chunk(0) if found.num_chunks else pa.array([], column.type)
    return found


def _null(found: Any) -> pa.Scalar:
    return pa.scalar(None, found.type)


def constant(value: Any, kind: pa.DataType | None = None) -> Function:
    """The same value for each row."""
    return Function((), lambda: pa.scalar(value, kind))


NO_NUMBERS: Final = constant([], pa.list_(pa.int32()))
"""An empty list of numbers."""


def but(of: Expression, missing: int | bool | str) -> Function:
    """The value, or null where it is the one that stands for a missing one."""
    return Function((of,), lambda found: pc.if_else(pc.equal(found, missing), _null(found), found))


def first_of(*of: Expression) -> Function:
    """The first of several values that is not null."""
    return Function(of, pc.coalesce)


def named(of: Expression, names: Mapping[Any, Any] | type[IntEnum], *, others: bool = False) -> Function:
    """The names of codes.

    The others are null, or with `others` the code in decimal: a newer release added them.
    """
    known = {int(code): code.name for code in names} if isinstance(names, type) else dict(names)

    def apply(found: Any) -> Any:
        place = pc.index_in(found, value_set=pa.array(list(known), found.type))
        value = pa.array(list(known.values())).take(place)
        return pc.coalesce(value, pc.cast(found, pa.string())) if others else value

    return Function((of,), apply)


def time_of(of: Expression) -> Function:
    """The time of milliseconds since 1970, or null if no calendar has it: multiplied, it would be
    another time."""

    def apply(found: Any) -> Any:
        ms = pc.cast(found, pa.int64())
        known = pc.and_(pc.greater_equal(ms, FIRST_TIME_MS), pc.less_equal(ms, LAST_TIME_MS))
        inside = pc.if_else(known, ms, pa.scalar(None, pa.int64()))
        return pc.cast(pc.multiply(inside, 1000), pa.timestamp("us", "UTC"))

    return Function((of,), apply)


def ordered(of: Expression) -> Function:
    """A list in the order of its elements."""

    def apply(found: Any) -> Any:
        if pa.types.is_null(found.type):
            return found
        rows = [None if row is None else sorted(row, key=_key) for row in found.to_pylist()]
        return pa.array(rows, found.type)

    return Function((of,), apply)


def _key(value: Any) -> Any:
    """Orders values as Spark does: the fields of structs one after the other, null first."""
    if isinstance(value, dict):
        return [_key(inner) for inner in value.values()]
    return value is not None, value


def unless_empty(of: Expression) -> Function:
    """A list, or null if it has no element."""
    return Function(
        (of,), lambda found: pc.if_else(pc.greater(pc.list_value_length(found), 0), found, _null(found))
    )


def only_if(condition: Expression, of: Expression) -> Function:
    """A value where a condition holds, and null elsewhere."""
    return Function((condition, of), lambda holds, found: pc.if_else(holds, found, _null(found)))


def equal(of: Expression, value: Any) -> Function:
    """Whether a value is the given one. Null if it is null."""
    return Function((of,), lambda found: pc.equal(found, pa.scalar(value, found.type)))


def differs(of: Expression, value: Any) -> Function:
    """Whether a value is another than the given one. Null if it is null."""
    return Function((of,), lambda found: pc.not_equal(found, pa.scalar(value, found.type)))


def is_set(of: Expression) -> Function:
    """Whether a value is not null."""
    return Function((of,), pc.is_valid)


def is_null(of: Expression) -> Function:
    """Whether a value is null."""
    return Function((of,), pc.is_null)


def both(one: Expression, other: Expression) -> Function:
    """Whether two conditions hold."""
    return Function((one, other), pc.and_kleene)


def negated(of: Expression) -> Function:
    """Whether a condition does not hold."""
    return Function((of,), pc.invert)
