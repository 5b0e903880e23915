"""Gives records the id and the name of a topic, where they have one of the two."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.pipeline.history.codes import Numbers, codes, flags
from quorate.pipeline.tables.events import EFFECTIVE, MAX_OFFSET
from quorate.pipeline.tables.expressions import Rows, whole

TOPIC_ID: Final = "topic_id"
TOPIC_NAME: Final = "topic_name"
COLUMNS: Final = (TOPIC_ID, "topic", "valid_from_offset", "valid_to_offset")
"""The columns of the table `topics` that are needed."""


class TopicNames:
    """The topics of a range of the log: their ids, their names, and the offsets at which they existed."""

    def __init__(self, topics: pa.Table) -> None:
        """`topics` are rows of the table `topics`, with `COLUMNS`."""
        topics = topics.select(list(COLUMNS)).combine_chunks()
        self._ids, self._names = (topics.column(name).combine_chunks() for name in COLUMNS[:2])
        self._from = topics.column("valid_from_offset").to_numpy()
        self._to = topics.column("valid_to_offset").fill_null(MAX_OFFSET).to_numpy()
        self._created = self._ids, self._names

    def with_created(self, created: pa.Table) -> TopicNames:
        """Returns a copy that has the names of created topics, too.

        `created` are TopicRecords. The table has no row for a topic that one transaction creates and
        deletes, but other records of this transaction may have its id.
        """
        found = copy(self)
        found._created = whole(created[TOPIC_ID]), whole(created[TOPIC_NAME])
        return found

    def fill(self, rows: Rows, wanted: Collection[str]) -> Rows:
        """Returns the rows with those of `topic_id` and `topic_name` filled in that are wanted.

        An id has one name for ever. A name belongs to the topic that had it when the record took effect.
        """
        table = rows.table
        if TOPIC_NAME in wanted and table[TOPIC_NAME].null_count:
            name = rows.value(TOPIC_NAME)
            known = [
                names.take(pc.index_in(rows.value(TOPIC_ID), value_set=ids))
                for ids, names in ((self._ids, self._names), self._created)
            ]
            place = table.schema.get_field_index(TOPIC_NAME)
            table = table.set_column(place, TOPIC_NAME, pc.coalesce(name, *known))
        if TOPIC_ID in wanted and table[TOPIC_ID].null_count:
            place = table.schema.get_field_index(TOPIC_ID)
            table = table.set_column(place, TOPIC_ID, self._id_of_name(rows))
        return Rows(table)

    def _id_of_name(self, rows: Rows) -> pa.Array:
        """The ids of the rows. A row without an id gets the id of its topic name."""
        ids, name = rows.value(TOPIC_ID), rows.value(TOPIC_NAME)
        lacking = np.flatnonzero(flags(pc.and_(pc.is_null(ids), pc.is_valid(name))))
        found = np.full(len(ids), -1, np.int64)
        if len(lacking):
            at = rows.value(EFFECTIVE).to_numpy()[lacking]
            found[lacking] = self._at(name.take(pa.array(lacking)), at)
        return pc.coalesce(ids, self._ids.take(pa.array(found, mask=found < 0)))

    def _at(self, names: pa.Array, offsets: Numbers) -> Numbers:
        """For each name, the row of the topic that had it at the offset, or -1."""
        count = len(self._names)
        code = codes(pa.concat_arrays([self._names, names]))
        at = np.concatenate([self._from, offsets])
        asked = np.arange(len(code)) >= count
        order = np.lexsort((asked, at, code))  # a topic comes before a record at its first offset
        sorted_code = code[order]
        place = np.arange(len(order))
        last = np.maximum.accumulate(np.where(asked[order], -1, place))
        same = (last >= 0) & (sorted_code[last] == sorted_code)
        topic = np.where(same, order[last], -1)
        inside = same & (at[order] < self._to[np.where(same, topic, 0)]) if count else same
        found = np.full(len(code), -1, np.int64)
        found[order] = np.where(inside, topic, -1)
        return found[count:]
