"""Computes the tables of entities from new events: a few in this process, more in Spark's processes.

Current states are in files of their own, so that new records replace only these files. States that have
ended get further files, and the files that they have stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.dataclass import dataclass
from quorate.pipeline.history.names import COLUMNS, TopicNames
from quorate.pipeline.history.parts import parts
from quorate.pipeline.history.replay import affected, history_rows, history_schema
from quorate.pipeline.history.steps import Records, columns_read, prior_steps, step_schema, steps
from quorate.pipeline.storage.commits import Transaction
from quorate.pipeline.storage.data_files import (
    DataFile,
    Place,
    read_file,
    read_groups,
    write_file,
)
from quorate.pipeline.storage.jobs import shuffled
from quorate.pipeline.tables import ENTITIES
from quorate.pipeline.tables.declaration import Entity
from quorate.pipeline.tables.events import EVENT_SCHEMA
from quorate.pipeline.tables.lake import Changes, Lake, Progress
from quorate.pipeline.tables.topics import TOPICS

SMALL_BYTES: Final = 256 << 10
"""A file of ended states below this size is replaced by one that has the next ended states, too: otherwise
each of many runs would leave a small file."""

LITTLE_BYTES: Final = 64 << 20
"""A few new records are applied in this process if the current states have at most this size."""

ROWS_PER_PART: Final = 500_000
"""The records and states that one process replays at a time."""

_BYTES_PER_STATE: Final = 50

_ENDED: Final = (
    "if(get_json_object(stats, '$.nullCount.valid_to_offset') = '0', "
    "bigint(get_json_object(stats, '$.maxValues.valid_to_offset')), null)"
)
"""The last offset at which a state of a file ends, if all have ended."""


@dataclass(frozen=True, slots=True)
class Table:
    """An entity's table, of which rows are to be computed."""

    entity: Entity
    transaction: Transaction
    place: Place
    start: int
    """The offset that the table has applied."""
    resets: bool
    """Whether a snapshot replaces records that are missing."""
    changing: tuple[DataFile, ...]
    """The files with states that new records may change: they have not ended before `start`."""
    small: tuple[DataFile, ...]
    """Small files of ended states."""

    @classmethod
    def opened(cls, lake: Lake, cluster: str, entity: Entity, expected: Progress, *, resets: bool) -> Table:
        """Begins a transaction. Raises LakeConflictError if another run has written to the table."""
        transaction = lake.begin(entity.name, cluster, expected)
        start = expected.end
        name = f"{entity.name}/{cluster}"
        last, found = lake.open_files.get(name, (None, []))
        if last != transaction.begun_at:
            found = transaction.files(
                cluster, f"NOT coalesce({_ENDED} < {start}, false) OR size < {SMALL_BYTES}"
            )
        place = lake.place(entity.name, cluster)
        return cls(entity, transaction, place, start, resets, *changing_and_small(found, start))

    def commit(self, lake: Lake, changes: Changes, target: Progress) -> None:
        """Commits what has changed. Raises LakeConflictError if another run has committed meanwhile."""
        cluster, name = self.place.cluster, self.entity.name
        done = lake.commit(name, cluster, self.transaction, changes, target)
        if done is None:
            lake.open_files.pop(f"{name}/{cluster}", None)
            return
        removed = {file.path for file in changes.removed}
        open_files = [file for file in (*self.changing, *self.small) if file.path not in removed]
        open_files += [
            file
            for file in changes.added
            if file.nulls("valid_to_offset") != 0 or file.size_bytes < SMALL_BYTES
        ]
        lake.open_files[f"{name}/{cluster}"] = done, open_files

    @property
    def changing_bytes(self) -> int:
        """The size of the files with states that may change."""
        return sum([file.size_bytes for file in self.changing])

    def rows_of(self, path: str) -> pa.Table:
        """The rows of one of its files."""
        return read_file(self.place, path, history_schema(self.entity))


def changing_and_small(
    files: Iterable[DataFile], start: int
) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
    """The files of a table that records from an offset on may change, and small ones that they do not."""
    changing: list[DataFile] = []
    small: list[DataFile] = []
    for file in files:
        latest = file.greatest("valid_to_offset")
        is_ended = file.nulls("valid_to_offset") == 0 and latest is not None and latest < start
        if not (is_ended and start):
            changing.append(file)
        elif file.size_bytes < SMALL_BYTES:
            small.append(file)
    return tuple(changing), tuple(small)


@dataclass(frozen=True, slots=True)
class States:
    """The rows of an entity's table in three parts."""

    ended: pa.Table
    """Those that have ended before the new records."""
    valid: pa.Table
    """Those that are valid at the begin of the new records, as if none had followed."""
    is_consistent: bool
    """Whether there are no rows of later records."""

    @classmethod
    def of(cls, rows: pa.Table, start: int) -> States:
        """The rows as they were at an offset."""
        ends, begins = rows["valid_to_offset"], rows["valid_from_offset"]
        ended = pc.fill_null(pc.less(ends, start), False)
        valid = pc.and_(pc.invert(ended), pc.less(begins, start))
        found = cls(rows.filter(ended), rows.filter(valid), True)
        later = rows.num_rows - found.ended.num_rows - found.valid.num_rows
        return (
            found
            if not later and found.valid["valid_to_offset"].null_count == len(found.valid)
            else cls(found.ended, found.valid, False)
        )


def _current_and_ended(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The current states and those that have ended, in the order in which they began."""
    rows = rows.take(pa.array(np.argsort(rows["valid_from_offset"].to_numpy(), kind="stable")))
    current = pc.is_null(rows["valid_to_offset"])
    return rows.filter(current), rows.filter(pc.invert(current))


# -- few records ---------------------------------------------------------------------------------------


def changes_here(table: Table, records: Records, names: TopicNames | None) -> Changes:
    """Computes in this process what the records change in a table."""
    entity = table.entity
    found = steps(entity, records, resets=table.resets, names=names)
    removed = []
    ended, kept, prior = [], [], []
    for file in table.changing:
        before = States.of(table.rows_of(file.path), table.start)
        touched = affected(entity, before.valid, found) | (not before.is_consistent)
        if not touched.any() and before.is_consistent and not before.ended.num_rows:
            continue
        removed.append(file)
        ended.append(before.ended)
        kept.append(before.valid.filter(pa.array(~touched)))
        prior.append(prior_steps(entity, before.valid.filter(pa.array(touched))))
    current, past = _current_and_ended(history_rows(entity, pa.concat_tables([*prior, found])))
    ended.append(past)
    if table.small and any(rows.num_rows for rows in ended):
        removed += table.small
        ended[:0] = [table.rows_of(file.path) for file in table.small]
    written = [write_file(table.place, pa.concat_tables([*kept, current]))]
    written.append(write_file(table.place, pa.concat_tables(ended)))
    return Changes([file for file in written if file is not None], removed)


# -- many records --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _File:
    """A file of events, as a task."""

    path: str
    place: Place
    end: int


@dataclass(frozen=True, slots=True)
class _Before:
    """A file of states that may change, as a task."""

    path: str
    entity: str


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the tasks know of a table. It is sent to them, and has no transaction."""

    entity: str
    place: Place
    start: int
    read_from: int
    resets: bool
    first_part: int
    parts: int


@dataclass(frozen=True, slots=True)
class Events:
    """The events from which several tables are computed."""

    files: Sequence[DataFile]
    place: Place
    end: int
    types: Collection[str]
    topics: tuple[Place, tuple[str, ...]]
    """The files of the table `topics` that have those of the range."""


def changes_by_tasks(
    lake: Lake,
    tables: Mapping[str, Table],
    read_from: Mapping[str, int],
    counts: Mapping[str, int],
    source: Events,
) -> dict[str, Changes]:
    """Computes in Spark's processes what the records change in some tables.

    `read_from` has for each table the offset from which its events are read, and `counts` their number.
    """
    plans: list[_Plan] = []
    total = 0
    for name, table in tables.items():
        size = counts[name] + table.changing_bytes // _BYTES_PER_STATE
        count = 1 + size // ROWS_PER_PART
        plans.append(_Plan(name, table.place, table.start, read_from[name], table.resets, total, count))
        total += count
    first = min([plan.read_from for plan in plans])
    tasks: list[_File | _Before] = [
        _File(file.path, source.place, source.end)
        for file in source.files
        if file.greatest("offset") is None or file.greatest("offset") >= first
    ]
    tasks += [_Before(file.path, name) for name, table in tables.items() for file in table.changing]
    by_name = {plan.entity: plan for plan in plans}
    columns = {
        "offset",
        *[column for plan in plans for column in columns_read(ENTITIES[plan.entity], source.types)],
    }
    needs_names = any(ENTITIES[plan.entity].names_topics for plan in plans)
    topics = source.topics

    def send(task: _File | _Before) -> Iterator[tuple[int, pa.Table]]:
        if isinstance(task, _Before):
            yield from _sent_states(by_name[task.entity], task)
            return
        names = _topic_names(*topics) if needs_names else None
        for group in read_groups(task.place, task.path, EVENT_SCHEMA, columns, first, task.end):
            yield from _sent_steps(plans, group, first, names)

    def receive(number: int, found: Iterator[pa.Table]) -> tuple[str, list[DataFile]]:
        plan = next(plan for plan in reversed(plans) if plan.first_part <= number)
        return plan.entity, _received(plan, found)

    written: dict[str, list[DataFile]] = {name: [] for name in tables}
    for name, files in shuffled(lake.spark, tasks, send, total, receive):
        written[name] += files
    return {name: Changes(files, tables[name].changing) for name, files in written.items()}


def _sent_steps(
    plans: Iterable[_Plan], group: pa.Table, first: int, names: TopicNames | None
) -> Iterator[tuple[int, pa.Table]]:
    known: dict[int, Records] = {}
    for plan in plans:
        if plan.read_from not in known:
            later = group
            if plan.read_from > first:
                later = group.filter(pc.greater_equal(group["offset"], plan.read_from))
            known[plan.read_from] = Records(later)
        entity = ENTITIES[plan.entity]
        found = steps(entity, known[plan.read_from], resets=plan.resets, names=names)
        if found.num_rows:
            for number, part in parts(entity, found, plan.parts):
                yield plan.first_part + number, part


def _sent_states(plan: _Plan, task: _Before) -> Iterator[tuple[int, pa.Table]]:
    """The states of a file: as steps if they are valid at the begin of the new records."""
    entity = ENTITIES[plan.entity]
    before = States.of(read_file(plan.place, task.path, history_schema(entity)), plan.start)
    if before.valid.num_rows:
        for number, part in parts(entity, prior_steps(entity, before.valid), plan.parts):
            yield plan.first_part + number, part
    if before.ended.num_rows:
        yield plan.first_part, before.ended


def _received(plan: _Plan, found: Iterator[pa.Table]) -> list[DataFile]:
    entity = ENTITIES[plan.entity]
    schema = step_schema(entity)
    all_steps, ended = [schema.empty_table()], [history_schema(entity).empty_table()]
    for table in found:
        (all_steps if "scope" in table.column_names else ended).append(table)
    current, past = _current_and_ended(history_rows(entity, pa.concat_tables(all_steps)))
    written = [write_file(plan.place, rows) for rows in (current, pa.concat_tables([*ended, past]))]
    return [file for file in written if file is not None]


# -- the names of topics -------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _topic_names_of(
    table: str, cluster: str, hadoop: tuple[tuple[str, str], ...], paths: tuple[str, ...]
) -> TopicNames:
    place = Place(table, cluster, (), dict(hadoop))
    schema = pa.schema([column for column in history_schema(TOPICS) if column.name in COLUMNS])
    return TopicNames(
        pa.concat_tables([schema.empty_table(), *[read_file(place, path, schema) for path in paths]])
    )


def _topic_names(place: Place, paths: tuple[str, ...]) -> TopicNames:
    return _topic_names_of(place.table, place.cluster, tuple(sorted(place.hadoop.items())), paths)


def topic_files(lake: Lake, cluster: str, start: int) -> tuple[Place, tuple[str, ...]]:
    """The files with the topics that exist at an offset or later."""
    found = lake.files(TOPICS.name, cluster)
    chosen = [
        file.path
        for file in found
        if file.nulls("valid_to_offset") != 0 or (file.greatest("valid_to_offset") or start) >= start
    ]
    return lake.place(TOPICS.name, cluster), tuple(chosen)


def topic_names(lake: Lake, cluster: str, start: int) -> TopicNames:
    """The topics that exist at an offset or later."""
    return _topic_names(*topic_files(lake, cluster, start))
