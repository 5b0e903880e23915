"""Replays the steps of each entity in order and gives its history: one row for each state, with the
range of offsets in which it was valid (a slowly changing dimension of type 2).

All columns are computed for all entities at once. Until the rows are built, a value is represented by
the place of the step that set it, and values are compared by their codes. So values are copied once,
for the rows that remain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.dataclass import dataclass
from quorate.pipeline.history.codes import Flags, Numbers, codes, combined, flags
from quorate.pipeline.history.steps import CHANGES, OPENS, POSITION, Scope, added
from quorate.pipeline.tables.declaration import VALIDITY, Entity
from quorate.pipeline.tables.events import EFFECTIVE
from quorate.pipeline.tables.expressions import Rows, paths, whole
from quorate.pipeline.tables.kinds import arrow_kind


def history_schema(entity: Entity) -> pa.Schema:
    """The columns of an entity's table, except `cluster`."""
    columns = (*entity.key, *entity.columns, *VALIDITY)
    return pa.schema([(column.name, arrow_kind(column.kind)) for column in columns])


@dataclass(frozen=True, slots=True)
class OrderedSteps:
    """The steps of all entities, sorted by key, and those of one key in the order of the records."""

    row: Numbers
    """The row of the step."""
    named: Numbers
    """A row that has all columns of the key. The row of the step may lack some of them."""
    key: Numbers
    """The code of the key."""
    first: Flags
    """Whether it is the first step of its key."""
    begin: Numbers
    """The place of the first step of its key."""

    def before(self, values: Any) -> Any:
        """For each step, the value after the step before.

        The first step of a key gets the value of another key. Callers ignore it.
        """
        return np.concatenate([values[:1], values[:-1]])

    def last(self, chosen: Flags) -> Numbers:
        """For each step, the place of the last chosen step of the same key up to and including it, or -1."""
        place = np.arange(len(self.row))
        found = np.maximum.accumulate(np.where(chosen, place, -1))
        return np.where(found >= self.begin, found, -1)


@dataclass(frozen=True, slots=True)
class ColumnHistory:
    """The value of one column after each step."""

    source: pa.Array
    place: Numbers
    """The place of the value in `source` for each step, or -1 for null."""
    code: Numbers
    """The code of the value for each step. Equal values have equal codes."""

    @classmethod
    def of(cls, values: pa.Array) -> ColumnHistory:
        """The history of a column whose value after each step is given."""
        return cls(values, np.arange(len(values)), codes(values))

    def array(self, steps: Numbers | None = None) -> pa.Array:
        """The values after the steps at some places, or after all steps."""
        place = self.place if steps is None else self.place[steps]
        return self.source.take(pa.array(place, mask=place < 0))


@dataclass(frozen=True, slots=True)
class Replayed:
    """The steps of all entities in order, and what each entity was after each step."""

    entity: Entity
    steps: pa.Table
    effective: Numbers
    """The offset at which each row of `steps` takes effect."""
    ordered: OrderedSteps
    is_there: Flags
    """Whether the entity exists after each step."""
    was_there: Flags
    """Whether it existed before each step."""
    changed: Numbers
    """The places of the steps at which a state begins or ends."""
    columns: Mapping[str, ColumnHistory]
    """The columns that are not part of the key."""

    def keys(self, places: Numbers) -> dict[str, pa.Array]:
        """The columns of the key at some places."""
        rows = pa.array(self.ordered.named[places])
        return {name: whole(self.steps[name]).take(rows) for name in self.entity.key_names}

    def history_rows(self) -> pa.Table:
        """The states as rows of the entity's table, except `cluster`.

        A state that ends at the offset at which it begins was never visible, and has no row.
        """
        changed, steps = self.changed, self.steps
        row, key = self.ordered.row[changed], self.ordered.key[changed]
        at = self.effective[row]
        followed = np.zeros(len(row), np.bool_)
        followed[:-1] = key[1:] == key[:-1]
        following = np.concatenate([row[1:], row[:1]])
        is_there = self.is_there[changed]
        kept = np.flatnonzero(is_there & (~followed | (self.effective[following] > at)))
        begins, ends = pa.array(row[kept]), pa.array(following[kept], mask=~followed[kept])
        given = self.keys(changed[kept])
        given |= {name: column.array(changed[kept]) for name, column in self.columns.items()}
        for name, source in (("offset", EFFECTIVE), ("time", "timestamp")):
            values = whole(steps[source])
            given[f"valid_from_{name}"], given[f"valid_to_{name}"] = values.take(begins), values.take(ends)
        kinds = whole(steps["type"])
        given |= {"from_record": kinds.take(begins), "to_record": kinds.take(ends)}
        given["changed_by"] = whole(steps["changed_by"]).take(begins)
        schema = history_schema(self.entity)
        return pa.table([given[name] for name in schema.names], schema=schema)


def history_rows(entity: Entity, steps: pa.Table) -> pa.Table:
    """The history that steps give: the rows of the entity's table, except `cluster`."""
    return replay(entity, steps).history_rows()


def replay(entity: Entity, steps: pa.Table) -> Replayed:
    """Applies the steps of each entity in order."""
    steps = steps.combine_chunks()
    at = {name: _numbers(steps, name) for name in (EFFECTIVE, POSITION, "effect", "scope")}
    ordered = _ordered(entity, steps, at)
    effect = at["effect"][ordered.row]
    opens = effect == OPENS
    decided = ordered.last(effect != CHANGES)
    is_there = (decided >= 0) & (effect[decided] == OPENS)
    plain = [name for name in entity.state_names if name not in entity.counters]
    columns = {name: _filled(steps, name, ordered, opens) for name in plain}
    differs = _differs(ordered, columns)
    for name in sorted(entity.counters):
        columns[name] = _counted(steps, name, ordered, opens, differs)
    if entity.derived or entity.counters:
        for name, expression in entity.derived.items():
            table = pa.table({needed: columns[needed].array() for needed in paths(expression)})
            columns[name] = ColumnHistory.of(Rows(table).value(expression))
        differs = _differs(ordered, columns)
    was_there = ~ordered.first & ordered.before(is_there)
    changed = np.flatnonzero((is_there != was_there) | (is_there & differs))
    return Replayed(entity, steps, at[EFFECTIVE], ordered, is_there, was_there, changed, columns)


def _numbers(steps: pa.Table, name: str) -> Numbers:
    found: Numbers = steps[name].to_numpy().astype(np.int64)
    return found


def _ordered(entity: Entity, steps: pa.Table, at: Mapping[str, Numbers]) -> OrderedSteps:
    """Sorts the steps. A step for several entities is repeated for each of them."""
    scope = at["scope"]
    direct = np.flatnonzero(scope == Scope.ONE)
    key_columns = [codes(whole(steps[name])) for name in entity.key_names]
    key = combined(key_columns, steps.num_rows)
    rows, named_by, keys = [direct], [direct], [key[direct]]
    if len(direct) < steps.num_rows and len(direct):
        one, first = np.unique(key[direct], return_index=True)
        known = [code[direct[first]] for code in key_columns]
        named = [flags(pc.is_valid(whole(steps[name]))) for name in entity.key_names]
        matching = np.flatnonzero(scope == Scope.MATCHING)
        for step, of_entity in _matching(matching, known, key_columns, named):
            rows.append(step)
            named_by.append(direct[first[of_entity]])
            keys.append(one[of_entity])
        for other in np.flatnonzero(scope > Scope.MATCHING).tolist():
            same = at[EFFECTIVE][direct] == at[EFFECTIVE][other]
            if scope[other] == Scope.OTHERS:
                same &= at[POSITION][direct] == at[POSITION][other]
            others = np.flatnonzero(~np.isin(one, key[direct][same]))
            rows.append(np.full(len(others), other))
            named_by.append(direct[first[others]])
            keys.append(one[others])
    row, of = np.concatenate(rows), np.concatenate(keys)
    order = np.lexsort((at[POSITION][row], at[EFFECTIVE][row], of))
    row, of = row[order], of[order]
    with_key = np.concatenate(named_by)[order]
    first_of_key = np.ones(len(of), np.bool_)
    first_of_key[1:] = of[1:] != of[:-1]
    begin = np.maximum.accumulate(np.where(first_of_key, np.arange(len(of)), 0))
    return OrderedSteps(row, with_key, of, first_of_key, begin)


def _matching(
    matching: Numbers, known: list[Numbers], key_columns: list[Numbers], named: list[Flags]
) -> Iterator[tuple[Numbers, Numbers]]:
    """Pairs each step with every entity that agrees with it in the columns of the key that it names.

    `known` has the codes of the entities' keys, one array for each column of the key. `key_columns` has
    the codes of all steps, and `named` whether a step names the column.
    """
    pattern = combined([has[matching].astype(np.int64) for has in named], len(matching))
    for which in np.unique(pattern):
        these = matching[pattern == which]
        chosen = [place for place, has in enumerate(named) if has[these[0]]]
        count = len(known[0])
        both = [np.concatenate([known[place], key_columns[place][these]]) for place in chosen]
        code = combined(both, count + len(these))
        order = np.argsort(code[:count], kind="stable")
        found = code[:count][order]
        begin, end = (np.searchsorted(found, code[count:], side) for side in ("left", "right"))
        sizes = end - begin
        before = np.cumsum(sizes) - sizes
        yield np.repeat(these, sizes), order[np.arange(int(sizes.sum())) + np.repeat(begin - before, sizes)]


def _filled(steps: pa.Table, name: str, ordered: OrderedSteps, opens: Flags) -> ColumnHistory:
    """A column that keeps its value until a step sets another."""
    source = whole(steps[name])
    row = ordered.row
    given = opens | flags(pc.is_valid(source))[row]
    last = ordered.last(given)
    place = np.where(last < 0, -1, row[last])
    code = codes(source)
    # A step that sets null and no step at all give the same value.
    null = flags(pc.is_null(source))
    missing = (place < 0) | null[place]
    return ColumnHistory(source, place, np.where(missing, -1, code[place]))


def _counted(
    steps: pa.Table, name: str, ordered: OrderedSteps, opens: Flags, differs: Flags
) -> ColumnHistory:
    """A column to which records add: the value when the entity was opened plus what was added since."""
    row = ordered.row
    counts = ~flags(whole(steps["if_changed"]))[row] | differs
    adds = whole(steps[added(name)]).fill_null(0).to_numpy()[row]
    total = np.cumsum(np.where(counts, adds, 0))
    source = whole(steps[name])
    base = source.cast(pa.int64()).fill_null(0).to_numpy()[row]
    opened = ordered.last(opens)
    value = base[opened] + total - total[opened]
    missing = (opened < 0) | flags(pc.is_null(source))[row][opened]
    return ColumnHistory.of(pa.array(value, mask=missing).cast(source.type))


def _differs(ordered: OrderedSteps, columns: Mapping[str, ColumnHistory]) -> Flags:
    """Whether a column changed at each step. The first step of an entity counts as a change."""
    found = ordered.first.copy()
    for column in columns.values():
        found[1:] |= column.code[1:] != column.code[:-1]
    return found


def affected(entity: Entity, states: pa.Table, steps: pa.Table) -> Flags:
    """Whether one of the steps may be for the entity of each of some states."""
    scope = whole(steps["scope"]).to_numpy()
    if (scope > Scope.MATCHING).any():
        return np.ones(states.num_rows, np.bool_)
    count = states.num_rows
    columns = [
        codes(pa.concat_arrays([whole(states[name]), whole(steps[name])])) for name in entity.key_names
    ]
    named = [flags(pc.is_valid(whole(steps[name]))) for name in entity.key_names]
    pattern = combined([has.astype(np.int64) for has in named], steps.num_rows)
    found = np.zeros(count, np.bool_)
    for which in np.unique(pattern):
        these = np.flatnonzero(pattern == which)
        rows = np.concatenate([np.arange(count), count + these])
        chosen = [column[rows] for column, has in zip(columns, named, strict=True) if has[these[0]]]
        code = combined(chosen, len(rows))
        found |= np.isin(code[:count], code[count:])
    return found
