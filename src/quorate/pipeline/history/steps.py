"""What records do to the entities of a declaration: one row, a step, for each record and entity.

A step has the key of its entity. If the record names only a part of the key, the other columns are null,
and the step is for all entities that agree with the part. `Scope` lists the other steps that are for
several entities.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.pipeline.datasource.columns import ATTRIBUTION_COLUMNS
from quorate.pipeline.history.codes import flags
from quorate.pipeline.history.names import TOPIC_ID, TOPIC_NAME, TopicNames
from quorate.pipeline.tables.declaration import VALIDITY, Effect, Entity, Rule
from quorate.pipeline.tables.events import EFFECTIVE
from quorate.pipeline.tables.expressions import Expression, Rows, is_set, paths, whole
from quorate.pipeline.tables.kinds import arrow_kind

POSITION: Final = "position"
"""The place of a record in its file. It orders records that take effect at the same offset."""

HEADER: Final = "SNAPSHOT_HEADER"
_WHO: Final = tuple(ATTRIBUTION_COLUMNS)
_PLACE: Final = (EFFECTIVE, POSITION, "offset", "timestamp", "type")
OPENS: Final = 1
CHANGES: Final = 2
CLOSES: Final = 3
"""The values of the column `effect`."""

_EFFECTS: Final = {
    Effect.OPENS: OPENS,
    Effect.REPLACES_ALL: OPENS,
    Effect.CHANGES: CHANGES,
    Effect.CLOSES: CLOSES,
}


class Scope(IntEnum):
    """Which entities a step is for."""

    ONE = 0
    """The entity with its key."""
    MATCHING = 1
    """All entities that agree with the columns of the key that are not null."""
    OTHERS = 2
    """All entities without a step of the same record, which lists the entities that exist."""
    NOT_IN_SNAPSHOT = 3
    """All entities without a step at the same offset, which is that of a snapshot."""


def step_schema(entity: Entity) -> pa.Schema:
    """The columns of the steps of an entity. A counter has two: its value, and what a record adds to it."""
    validity = {column.name: column.kind for column in VALIDITY}
    return pa.schema(
        [
            *[(column.name, arrow_kind(column.kind)) for column in entity.key],
            (EFFECTIVE, pa.int64()),
            (POSITION, pa.int64()),
            ("timestamp", arrow_kind("timestamp")),
            ("type", pa.string()),
            ("changed_by", arrow_kind(validity["changed_by"])),
            ("effect", pa.int8()),
            ("scope", pa.int8()),
            ("if_changed", pa.bool_()),
            *[(column.name, arrow_kind(column.kind)) for column in entity.columns],
            *[(added(name), pa.int64()) for name in sorted(entity.counters)],
        ]
    )


def added(counter: str) -> str:
    """The column of what a record adds to a counter."""
    return f"add_{counter}"


def columns_read(entity: Entity, types: Collection[str]) -> frozenset[str]:
    """The columns and fields of the records of some types that the steps of an entity need."""
    found = {*_PLACE, "snapshot", *_WHO}
    for rule in entity.rules:
        if rule.record in types:
            found |= _read(rule)
    if entity.names_topics:
        found |= {TOPIC_ID, TOPIC_NAME}
    return frozenset(found)


def _read(rule: Rule) -> set[str]:
    expressions: list[Expression] = [*rule.key.values(), *rule.values.values(), *rule.adds.values()]
    if rule.where is not None:
        expressions.append(rule.where)
    found = {path for expression in expressions for path in paths(expression)}
    if rule.each is not None:
        found = {path for path in found if not path.startswith("each.")} | {rule.each}
    return found


class Records:
    """Rows of the table `events` that take effect, by their type."""

    def __init__(self, events: pa.Table) -> None:
        self._events = events
        kinds = events["type"].combine_chunks().dictionary_encode()
        kinds = kinds.combine_chunks() if isinstance(kinds, pa.ChunkedArray) else kinds
        self._codes = kinds.indices.to_numpy()
        self._known = {kind: code for code, kind in enumerate(kinds.dictionary.to_pylist())}
        self._takes_effect = flags(pc.is_valid(whole(events[EFFECTIVE])))
        self._found: dict[str, pa.Table] = {}

    def of(self, kind: str) -> pa.Table:
        """The records of one type, without the struct columns of the other types."""
        if kind not in self._found:
            other = [name for name in self._events.column_names if name.endswith("_record")]
            columns = [n for n in self._events.column_names if n not in other or n == kind.lower()]
            code = self._known.get(kind, -1)
            mask = (self._codes == code) & self._takes_effect
            self._found[kind] = self._events.select(columns).filter(pa.array(mask))
        return self._found[kind]


def steps(
    entity: Entity, records: Records, *, resets: bool = False, names: TopicNames | None = None
) -> pa.Table:
    """The steps of some records.

    With `resets`, a snapshot among the records stands for those that the log has lost: an entity that the
    snapshot lacks does not exist any more. Entities with `names_topics` need `names`.
    """
    schema = step_schema(entity)
    found = []
    if names is not None and entity.names_topics:
        names = names.with_created(records.of("TOPIC_RECORD"))
    for rule in entity.rules:
        rows = Rows(records.of(rule.record))
        if not rows.table.num_rows:
            continue
        if names is not None and entity.names_topics:
            rows = names.fill(rows, _read(rule))
        if rule.where is not None:
            rows = rows.where(rule.where)
        if rule.effect is Effect.REPLACES_ALL:
            found.append(_table(schema, rows, Rule(rule.record, Effect.CLOSES, {}), Scope.OTHERS))
        if rule.each is not None:
            rows = rows.each(rule.each)
        scope = Scope.ONE if len(rule.key) == len(entity.key) else Scope.MATCHING
        if scope is Scope.MATCHING:
            # A null in the key would match every entity. A record with an unknown topic must match none.
            for expression in rule.key.values():
                rows = rows.where(is_set(expression))
        found.append(_table(schema, rows, rule, scope))
    if resets:
        headers = Rows(records.of(HEADER))
        found.append(_table(schema, headers, Rule(HEADER, Effect.CLOSES, {}), Scope.NOT_IN_SNAPSHOT))
    return pa.concat_tables(found) if found else schema.empty_table()


def _table(schema: pa.Schema, rows: Rows, rule: Rule, scope: Scope) -> pa.Table:
    count = rows.table.num_rows
    given: dict[str, pa.Array] = {
        "changed_by": _who(rows),
        "type": pa.repeat(rule.record, count),
        "effect": pa.repeat(pa.scalar(_EFFECTS[rule.effect], pa.int8()), count),
        "scope": pa.repeat(pa.scalar(int(scope), pa.int8()), count),
        "if_changed": pa.repeat(rule.adds_if_changed, count),
    }
    for name in (EFFECTIVE, POSITION, "timestamp"):
        given[name] = rows.value(name)
    for name, expression in {**rule.key, **rule.values}.items():
        given[name] = rows.value(expression)
    for name, expression in rule.adds.items():
        given[added(name)] = rows.value(expression)
    return pa.table(
        [
            given[column.name].cast(column.type) if column.name in given else pa.nulls(count, column.type)
            for column in schema
        ],
        schema=schema,
    )


def _who(rows: Rows) -> pa.Array:
    """Who or what caused the records, or null."""
    kind = pa.struct([(name, arrow_kind(kind)) for name, kind in ATTRIBUTION_COLUMNS.items()])
    parts = [rows.value(name) for name in _WHO]
    known = np.zeros(rows.table.num_rows, np.bool_)
    for part in parts:
        if part.null_count < len(part):
            known |= flags(pc.is_valid(part))
    if not known.any():
        return pa.nulls(rows.table.num_rows, kind)
    fields = [part.cast(inner.type) for part, inner in zip(parts, kind, strict=True)]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=pa.array(~known))


def prior_steps(entity: Entity, before: pa.Table) -> pa.Table:
    """The rows of an entity's table that are valid at the start of a range, as steps before all others."""
    count = before.num_rows
    given = {
        EFFECTIVE: before["valid_from_offset"],
        POSITION: pa.repeat(pa.scalar(-1, pa.int64()), count),
        "timestamp": before["valid_from_time"],
        "type": before["from_record"],
        "effect": pa.repeat(pa.scalar(OPENS, pa.int8()), count),
        "scope": pa.repeat(pa.scalar(int(Scope.ONE), pa.int8()), count),
        "if_changed": pa.repeat(False, count),
    }
    columns = []
    for column in step_schema(entity):
        if column.name in given:
            columns.append(given[column.name])
        elif column.name in before.column_names:
            columns.append(before[column.name].cast(column.type))
        else:
            columns.append(pa.nulls(count, column.type))
    return pa.table(columns, schema=step_schema(entity))
