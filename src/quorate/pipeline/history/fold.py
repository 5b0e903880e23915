"""Joins the steps of each entity to its states, one after the other.

All columns are computed for all entities at once. A state is not a value but the place of the step that gave it: values
are compared by their codes, and are taken when it is known which states there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.dataclass import dataclass
from quorate.pipeline.history.codes import Flags, Numbers, codes, combined, flags
from quorate.pipeline.history.steps import (
    CHANGES,
    OPENS,
    POSITION,
    Scope,
    added,
)
from quorate.pipeline.tables.declaration import VALIDITY, Entity
from quorate.pipeline.tables.events import EFFECTIVE
from quorate.pipeline.tables.expressions import Rows, paths, whole
from quorate.pipeline.tables.kinds import arrow_kind


def history_schema(entity: Entity) -> pa.Schema:
    """The columns of an entity's table without `cluster`."""
    columns = (*entity.key, *entity.columns, *VALIDITY)
    return pa.schema([(column.name, arrow_kind(column.kind)) for column in columns])


@dataclass(frozen=True, slots=True)
class Ordered:
    """The steps of all entities, in the order of their keys, and for each key in that of the records."""

    row: Numbers
    """The row of the step."""
    named: Numbers
    """A row that has all columns of the key: the step's own may have some of them only."""
    key: Numbers
    """The code of the key."""
    first: Flags
    """Whether it is the first step of its key."""
    begin: Numbers
    """The place of the first step of its key."""

    def before(self, values: Any) -> Any:
        """The values one place later. The value of the first step of a key is that of the last step of another."""
        return np.concatenate([values[:1], values[:-1]])

    def last(self, given: Flags) -> Numbers:
        """For each step, the place of the last step of its key up to it that is given, or -1."""
        place = np.arange(len(self.row))
        found = np.maximum.accumulate(np.where(given, place, -1))
        return np.where(found >= self.begin, found, -1)


@dataclass(frozen=True, slots=True)
class State:
    """The value of a column after each step."""

    source: pa.Array
    place: Numbers
    """Its place in `source` for each step, or -1 for null."""
    code: Numbers

    @classmethod
    def of(cls, values: pa.Array) -> State:
        """A column of which each step has the value."""
        return cls(values, np.arange(len(values)), codes(values))

    def array(self, steps: Numbers | None = None) -> pa.Array:
        """The values after some steps, or all."""
        place = self.place if steps is None else self.place[steps]
        return self.source.take(pa.array(place, mask=place < 0))


@dataclass(frozen=True, slots=True)
class Folded:
    """What the steps of all entities have made of them."""

    entity: Entity
    steps: pa.Table
    effective: Numbers
    """The offset at which each row of `steps` takes effect."""
    ordered: Ordered
    is_there: Flags
    """Whether the entity exists after each step."""
    was_there: Flags
    """Whether it existed before each step."""
    changed: Numbers
    """The places of the steps at which a state begins or ends."""
    columns: Mapping[str, State]
    """The values of the columns that are not the key after each step."""

    def keys(self, places: Numbers) -> dict[str, pa.Array]:
        """The columns of the key at some places."""
        rows = pa.array(self.ordered.named[places])
        return {name: whole(self.steps[name]).take(rows) for name in self.entity.key_names}


def fold(entity: Entity, steps: pa.Table) -> pa.Table:
    """The states that an entity's steps give: the rows of its table without `cluster`."""
    return states(folded(entity, steps))


def folded(entity: Entity, steps: pa.Table) -> Folded:
    """Joins the steps of each entity, one after the other."""
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
            columns[name] = State.of(Rows(table).value(expression))
        differs = _differs(ordered, columns)
    was_there = ~ordered.first & ordered.before(is_there)
    changed = np.flatnonzero((is_there != was_there) | (is_there & differs))
    return Folded(entity, steps, at[EFFECTIVE], ordered, is_there, was_there, changed, columns)


def states(folded: Folded) -> pa.Table:
    """The states as rows of the entity's table without `cluster`. Those that end at the offset at which they begin are
    left out."""
    changed, steps = folded.changed, folded.steps
    row, key = folded.ordered.row[changed], folded.ordered.key[changed]
    at = folded.effective[row]
    followed = np.zeros(len(row), np.bool_)
    followed[:-1] = key[1:] == key[:-1]
    following = np.concatenate([row[1:], row[:1]])
    is_there = folded.is_there[changed]
    kept = np.flatnonzero(is_there & (~followed | (folded.effective[following] > at)))
    begins, ends = pa.array(row[kept]), pa.array(following[kept], mask=~followed[kept])
    given = folded.keys(changed[kept])
    given |= {name: state.array(changed[kept]) for name, state in folded.columns.items()}
    for name, column in (("offset", EFFECTIVE), ("time", "timestamp")):
        values = whole(steps[column])
        given[f"valid_from_{name}"], given[f"valid_to_{name}"] = values.take(begins), values.take(ends)
    kinds = whole(steps["type"])
    given |= {"from_record": kinds.take(begins), "to_record": kinds.take(ends)}
    given["changed_by"] = whole(steps["changed_by"]).take(begins)
    schema = history_schema(folded.entity)
    return pa.table([given[name] for name in schema.names], schema=schema)


def _numbers(steps: pa.Table, name: str) -> Numbers:
    found: Numbers = steps[name].to_numpy().astype(np.int64)
    return found


def _ordered(entity: Entity, steps: pa.Table, at: Mapping[str, Numbers]) -> Ordered:
    """Brings the steps in order, those for several entities once for each of these."""
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
    return Ordered(row, with_key, of, first_of_key, begin)


def _matching(
    matching: Numbers, known: list[Numbers], key_columns: list[Numbers], named: list[Flags]
) -> Iterator[tuple[Numbers, Numbers]]:
    """Pairs of steps and the entities which agree with them in the columns of the key that the step has. `known` are the
    codes of the entities' keys, `key_columns` and `named` those of all steps, and whether they have the column."""
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


def _filled(steps: pa.Table, name: str, ordered: Ordered, opens: Flags) -> State:
    """A column whose value stays until a step gives another."""
    source = whole(steps[name])
    row = ordered.row
    given = opens | flags(pc.is_valid(source))[row]
    last = ordered.last(given)
    place = np.where(last < 0, -1, row[last])
    code = codes(source)
    # A null among the values and no value at all are the same.
    null = flags(pc.is_null(source))
    missing = (place < 0) | null[place]
    return State(source, place, np.where(missing, -1, code[place]))


def _counted(steps: pa.Table, name: str, ordered: Ordered, opens: Flags, differs: Flags) -> State:
    """A column to which records add: the value of the record that opened the entity, and what was added since."""
    row = ordered.row
    counts = ~flags(whole(steps["if_changed"]))[row] | differs
    adds = whole(steps[added(name)]).fill_null(0).to_numpy()[row]
    total = np.cumsum(np.where(counts, adds, 0))
    source = whole(steps[name])
    base = source.cast(pa.int64()).fill_null(0).to_numpy()[row]
    opened = ordered.last(opens)
    value = base[opened] + total - total[opened]
    missing = (opened < 0) | flags(pc.is_null(source))[row][opened]
    return State.of(pa.array(value, mask=missing).cast(source.type))


def _differs(ordered: Ordered, columns: Mapping[str, State]) -> Flags:
    """Whether a state differs from that after the step before. The first state of an entity does."""
    found = ordered.first.copy()
    for state in columns.values():
        found[1:] |= state.code[1:] != state.code[:-1]
    return found


def affected(entity: Entity, states: pa.Table, steps: pa.Table) -> Flags:
    """For each of some states whether a step may be for its entity."""
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
