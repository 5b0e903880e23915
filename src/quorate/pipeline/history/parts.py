"""Divides the steps of an entity among several processes, so that those of one entity meet in one of them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.pipeline.history.codes import codes, combined, flags
from quorate.pipeline.tables.declaration import Entity
from quorate.pipeline.tables.expressions import whole


def shared_key(entity: Entity) -> tuple[str, ...]:
    """The columns of the key that every rule names, except rules for all entities.

    Entities that agree in these columns are in one part, so that a step that names no others is
    needed in this part only.
    """
    named = [set(rule.key) for rule in entity.rules if rule.key]
    return tuple([name for name in entity.key_names if all(name in names for names in named)])


def parts(entity: Entity, steps: pa.Table, count: int) -> Iterator[tuple[int, pa.Table]]:
    """The steps of each part. Those for all entities are in each."""
    if count == 1:
        yield 0, steps
        return
    keys = [whole(steps[name]) for name in shared_key(entity)]
    everywhere = np.zeros(steps.num_rows, np.bool_)
    for key in keys:
        everywhere |= flags(pc.is_null(key))
    code = combined([codes(key) for key in keys], steps.num_rows)
    known, first, place = np.unique(code, return_index=True, return_inverse=True)
    values = pa.table(keys, names=[str(number) for number in range(len(keys))]).take(pa.array(first))
    number = np.array([zlib.crc32(repr(row).encode()) % count for row in values.to_pylist()], np.int64)
    assert len(number) == len(known)
    part = number[place]
    for which in range(count):
        chosen = np.flatnonzero((part == which) | everywhere)
        if len(chosen):
            yield which, steps.take(pa.array(chosen))
