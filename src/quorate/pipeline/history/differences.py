"""What differs from one state of an entity to the next, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.dataclass import dataclass
from quorate.pipeline.history.codes import Flags, Numbers, flags
from quorate.pipeline.history.replay import ColumnHistory, Replayed
from quorate.pipeline.history.steps import POSITION
from quorate.pipeline.tables.events import EFFECTIVE
from quorate.pipeline.tables.expressions import whole

CHANGE: Final = pa.struct([("field", pa.string()), ("old", pa.string()), ("new", pa.string())])
"""A column that differs. `old` is null if it had no value, `new` if it has none any more."""

_EMPTY_LIST: Final = "[]"


@dataclass(frozen=True, slots=True)
class Differences:
    """The steps at which a state of an entity begins or ends, with an element of each array for
    each of them."""

    key: Mapping[str, pa.Array]
    at: Mapping[str, pa.Array]
    """Columns of the records: effective offset, position, time and type."""
    is_there: Flags
    """Whether the entity exists after the step."""
    was_there: Flags
    """Whether it existed before."""
    before: Mapping[str, pa.Array]
    """The texts of the columns before the step."""
    after: Mapping[str, pa.Array]
    """Those after it."""
    lists: frozenset[str]
    """The columns whose values are lists."""


def differences(replayed: Replayed) -> Differences:
    """The steps at which a state begins or ends."""
    changed = replayed.changed
    rows = pa.array(replayed.ordered.row[changed])
    at = {name: whole(replayed.steps[name]).take(rows) for name in (EFFECTIVE, POSITION, "timestamp", "type")}
    is_there, was_there = replayed.is_there[changed], replayed.was_there[changed]
    before: dict[str, pa.Array] = {}
    after: dict[str, pa.Array] = {}
    for name, column in replayed.columns.items():
        number, texts = _texts(column)
        # The step before is one of the same entity, if this existed.
        for found, places, exists in ((before, changed - 1, was_there), (after, changed, is_there)):
            known = np.where(exists, number[places], -1)
            found[name] = pa.DictionaryArray.from_arrays(
                pa.array(known.astype(np.int32), mask=known < 0), texts
            )
    columns = replayed.columns.items()
    lists = frozenset([name for name, column in columns if pa.types.is_list(column.source.type)])
    return Differences(replayed.keys(changed), at, is_there, was_there, before, after, lists)


def _texts(column: ColumnHistory) -> tuple[Numbers, pa.Array]:
    """The number of the value's text after each step (-1: null), and the texts by number.

    Equal values have the same number.
    """
    known = np.flatnonzero(column.code >= 0)[::-1]
    first = np.zeros(int(column.code.max(initial=-1)) + 1, np.int64)
    first[column.code[known]] = column.place[known]
    return column.code, _text(column.source.take(pa.array(first)))


def _text(values: pa.Array) -> pa.Array:
    """Values as Spark casts them to text: a list is `[1, 2]`."""
    if not pa.types.is_list(values.type):
        return values.cast(pa.string())
    inner = values.cast(pa.list_(pa.string()))
    return pc.binary_join_element_wise("[", pc.binary_join(inner, ", "), "]", "")


def changes(found: Differences, fields: Mapping[str, str | pa.Array]) -> pa.Array:
    """For each step, the list of the columns that differ, in the order of `fields`.

    The values of `fields` are the names to show: one for all steps, or an array with one for each step.
    A list that was null and becomes empty does not differ.
    """
    count = len(found.is_there)
    differs = np.zeros((count, len(fields)), np.bool_)
    names, old, new = [], [], []
    for number, (column, shown) in enumerate(fields.items()):
        before, after = found.before[column], found.after[column]
        one, other = (array.indices.fill_null(-1).to_numpy() for array in (before, after))
        differs[:, number] = one != other
        if column in found.lists:
            is_empty = np.append(flags(pc.equal(after.dictionary, _EMPTY_LIST)), False)
            differs[:, number] &= ~((one < 0) & is_empty[other])
        chosen = np.flatnonzero(differs[:, number])
        rows = pa.array(chosen)
        names.append(pa.repeat(shown, len(chosen)) if isinstance(shown, str) else shown.take(rows))
        old.append(before.take(rows).dictionary_decode())
        new.append(after.take(rows).dictionary_decode())
    ends = np.concatenate([[0], np.cumsum(differs.sum(axis=1))]).astype(np.int32)
    # The arrays have column after column, the lists step after step.
    column_of, step_of = np.nonzero(differs.T)
    order = pa.array(np.lexsort((column_of, step_of)))
    parts = [pa.concat_arrays([array.cast(pa.string()) for array in arrays]) for arrays in (names, old, new)]
    structs = pa.StructArray.from_arrays([part.take(order) for part in parts], fields=list(CHANGE))
    return pa.ListArray.from_arrays(ends, structs)
