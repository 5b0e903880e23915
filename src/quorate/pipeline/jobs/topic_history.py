"""Computes the history of every topic of a cluster from a metadata log directory.

Each row is an event: a topic was created or deleted, a partition was added or changed (leader, ISR, replicas,
ELR), a config was set or removed. It has the offset and the time of its record. If the log does not begin at
0, the history begins with the state in a snapshot. A snapshot resets the state: an entity that it lacks was
removed before its end offset. Records of metadata transactions that were aborted or have not ended are left
out.

Topics and partitions are divided by the id of the topic, configs by its name, and the history of each part is
computed by itself. So no process needs to know all topics.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from quorate.dataclass import dataclass
from quorate.pipeline.datasource.options import Options, parse_options
from quorate.pipeline.datasource.source import MetadataLogReader
from quorate.pipeline.datasource.tasks import FileTask, read_task
from quorate.pipeline.history.codes import Flags, flags
from quorate.pipeline.history.differences import CHANGE, Differences, changes, differences
from quorate.pipeline.history.fold import folded, states
from quorate.pipeline.history.names import COLUMNS, TopicNames
from quorate.pipeline.history.steps import HEADER, POSITION, Records, columns_read, steps
from quorate.pipeline.storage.jobs import packed, unpacked
from quorate.pipeline.tables.declaration import Column, Effect, Entity, Rule
from quorate.pipeline.tables.events import ABORT, EFFECTIVE, MARKERS, Transactions
from quorate.pipeline.tables.expressions import both, equal, is_null, is_set, whole
from quorate.pipeline.tables.topics import PARTITIONS, TOPIC_ID, TOPICS

_FIELDS: Final = {
    "leader": "leader",
    "leader_epoch": "leader epoch",
    "isr": "isr",
    "replicas": "replicas",
    "elr": "elr",
    "last_known_elr": "last known elr",
}
"""The columns of partitions whose changes are events, and their names there."""

_PARTITIONS: Final = PARTITIONS.reduced(_FIELDS)

_CONFIG_KEY: Final = {"topic_id": "topic_id", "topic": "resource_name", "key": "key"}
_IS_OF_TOPIC: Final = equal("resource_type", "TOPIC")
_CONFIGS: Final = Entity(
    "topic configs",
    "the configurations of topics",
    key=(TOPIC_ID, *TOPICS.columns, Column("key", "string", "the name of the configuration")),
    columns=(Column("value", "string", "its value"),),
    rules=(
        Rule(
            "CONFIG_RECORD",
            Effect.OPENS,
            _CONFIG_KEY,
            {"value": "value"},
            where=both(_IS_OF_TOPIC, is_set("value")),
        ),
        Rule("CONFIG_RECORD", Effect.CLOSES, _CONFIG_KEY, where=both(_IS_OF_TOPIC, is_null("value"))),
    ),
    names_topics=True,
)
"""Those of a topic created anew are others. A config record has the name of its topic only: it is of the last topic
that was created with that name."""

_BY_ID: Final = ("TOPIC_RECORD", "REMOVE_TOPIC_RECORD", "PARTITION_RECORD", "PARTITION_CHANGE_RECORD")
_BY_NAME: Final = ("TOPIC_RECORD", "CONFIG_RECORD")
_EVERYWHERE: Final = (*MARKERS, HEADER)
_CLEAR: Final = "CLEAR_ELR_RECORD"
_TYPES: Final = frozenset([*_BY_ID, *_BY_NAME, *_EVERYWHERE, _CLEAR])

_COLUMNS: Final = tuple(
    sorted(
        {"snapshot", "resource_type", "resource_name"}.union(
            *[columns_read(entity, _TYPES) for entity in (TOPICS, _PARTITIONS, _CONFIGS)]
        )
        - {EFFECTIVE, "principal", "client_id", "address", "api", "reason"}
    )
)

EVENT_COLUMNS = ("topic", "topic_id", "offset", "timestamp", "event", "partition", "changes", "snapshot")
"""`changes` is an array of (field, old, new) as text. `snapshot` is the end offset of the snapshot that has
the event, or null.
"""

EVENT_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("event", pa.string()),
        ("partition", pa.int32()),
        ("changes", pa.list_(CHANGE)),
        ("snapshot", pa.int64()),
        (POSITION, pa.int64()),
    ]
)
_EVENT_DDL: Final = (
    "topic string, topic_id string, offset bigint, timestamp timestamp, event string, partition int, "
    f"changes array<struct<field:string,old:string,new:string>>, snapshot bigint, {POSITION} bigint"
)

_PART_BYTES: Final = 32 << 20
"""So many bytes of the log are joined by a process at a time."""

_SENT_ROWS: Final = 1 << 16
_ROWS: Final = 1 << 14
"""The rows that are sent to a part, and to Spark, at once."""

_SENT: Final = pa.schema([("part", pa.int32()), ("rows", pa.binary())])

_NEVER: Final = 1 << 62


def history(spark: SparkSession, path: str) -> DataFrame:
    """Returns the events of all topics, unordered, with EVENT_COLUMNS and `position`.

    `position` orders events of the same offset.
    """

    def batches(events: pa.Table) -> pa.Table:
        return pa.Table.from_batches(events.to_batches(_ROWS), EVENT_SCHEMA)

    return _by_parts(spark, path, lambda _, events: batches(events), _EVENT_DDL)


def write_parquet(spark: SparkSession, path: str, folder: str, topics: Collection[str] = ()) -> None:
    """Writes the events of all topics, or of some, as Parquet files to a local folder that does not exist yet. The tasks
    write the files themselves, because Spark's writer of rows takes longer than all the rest. If there is no event, the
    only file has no row: readers take the schema from it. Raises OSError."""
    Path(folder).mkdir(parents=True)

    def write(part: int, events: pa.Table) -> pa.Table:
        if topics:
            events = events.filter(pc.is_in(events["topic"], value_set=pa.array(topics)))
        if events.num_rows:
            _write_part(folder, part, events)
        return pa.table({"events": [events.num_rows]})

    counts = _by_parts(spark, path, write, "events bigint").collect()
    if not any(row["events"] for row in counts):
        _write_part(folder, 0, EVENT_SCHEMA.empty_table())
    Path(folder, "_SUCCESS").touch()


def _write_part(folder: str, part: int, events: pa.Table) -> None:
    parquet.write_table(events.select(EVENT_COLUMNS), f"{folder}/part-{part:05}.snappy.parquet")


def _by_parts(
    spark: SparkSession, path: str, work: Callable[[int, pa.Table], pa.Table], ddl: str
) -> DataFrame:
    """Calls a function with the number and the events of each part, and returns the rows of its results."""
    tasks, options = _tasks(path)
    count = 1 + _size(tasks) // _PART_BYTES

    def send(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in [number for batch in numbers for number in batch["id"].to_pylist()]:
            for part, rows in _sent(read_task(tasks[number], options), count):
                yield pa.RecordBatch.from_pydict({"part": [part], "rows": [packed(rows)]}, _SENT)

    def receive(found: pa.Table) -> pa.Table:
        rows = pa.concat_tables([unpacked(data.as_py()) for data in found["rows"]])
        part = found["part"][0].as_py()
        return work(part, _topic_events(rows) if part < count else _config_events(rows))

    sent = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(send, "part int, rows binary")
    return sent.groupBy("part").applyInArrow(receive, ddl)


def history_here(path: str, limit_bytes: int) -> pa.Table | None:
    """Computes the same in this process, without Spark. Returns None if the log is larger than a limit."""
    tasks, options = _tasks(path)
    if _size(tasks) > limit_bytes:
        return None
    batches = [batch for task in tasks for batch in read_task(task, options)]
    if not batches:
        return EVENT_SCHEMA.empty_table()
    rows = pa.Table.from_batches(batches)
    return pa.concat_tables([_topic_events(rows), _config_events(rows)])


def _tasks(path: str) -> tuple[Sequence[Any], Options]:
    options = parse_options(
        {
            "path": path,
            "snapshots": "resets",
            "columns": ",".join(_COLUMNS),
            "types": ",".join(sorted(_TYPES)),
        }
    )
    return MetadataLogReader(options).partitions(), options


def _size(tasks: Sequence[FileTask]) -> int:
    return sum([part.size_bytes for task in tasks for part in task.parts])


# -- dividing the records ------------------------------------------------------------------------------


def _sent(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[tuple[int, pa.Table]]:
    """The records of each part: of the topics and partitions of some ids, then of the configs of some names."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum([found.num_rows for found in waiting]) >= _SENT_ROWS:
            yield from _divided(pa.Table.from_batches(waiting), count)
            waiting = []
    if waiting:
        yield from _divided(pa.Table.from_batches(waiting), count)


def _divided(rows: pa.Table, count: int) -> Iterator[tuple[int, pa.Table]]:
    kind = whole(rows["type"])
    everywhere = _is_one_of(kind, _EVERYWHERE)
    by_id = _parts(rows, "topic_id", _is_one_of(kind, _BY_ID), count)
    yield from _numbered(rows, by_id, everywhere | _is_one_of(kind, (_CLEAR,)), count)
    has_name = flags(pc.is_valid(whole(rows["topic_name"])))
    by_name = _parts(rows, "topic_name", _is_one_of(kind, _BY_NAME) & has_name, count)
    # Configs need no struct, and these are most of the bytes.
    flat = rows.select([name for name in rows.column_names if not name.endswith("_record")])
    for part, chosen in _numbered(flat, by_name, everywhere, count):
        yield count + part, chosen


def _numbered(rows: pa.Table, part: Any, in_all: Flags, count: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each part that has some."""
    for number in range(count):
        chosen = np.flatnonzero(in_all | (part == number))
        if len(chosen):
            yield number, rows.take(pa.array(chosen))


def _is_one_of(kind: pa.Array, types: Sequence[str]) -> Flags:
    return flags(pc.is_in(kind, value_set=pa.array(types)))


def _parts(rows: pa.Table, key: str, wanted: Flags, count: int) -> Any:
    """The part of each wanted row by the value of a column, and -1 for the others."""
    if count == 1:
        return np.where(wanted, 0, -1)
    found = whole(rows[key]).dictionary_encode()
    number = np.array([zlib.crc32((value or "").encode()) % count for value in found.dictionary.to_pylist()])
    return np.where(wanted, number[found.indices.fill_null(0).to_numpy()] if len(number) else 0, -1)


# -- the history of a part -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """The records of a part of the log that have an effect."""

    records: Records
    base: int
    """The end offset of the snapshot with which the log begins, or 0."""

    @classmethod
    def of(cls, rows: pa.Table) -> _Part:
        """Leaves out the records of the log that the snapshot contains, and those that were not applied."""
        kind, offset = whole(rows["type"]), whole(rows["offset"])
        in_log = flags(pc.is_null(whole(rows["snapshot"])))
        base = pc.max(whole(rows["snapshot"])).as_py() or 0
        markers = np.flatnonzero(_is_one_of(kind, MARKERS) & in_log)
        # An open transaction counts as aborted.
        offsets = np.append(offset.to_numpy()[markers], _NEVER)
        kinds = [*kind.take(pa.array(markers)).to_pylist(), ABORT]
        takes_effect = flags(
            pc.is_valid(Transactions.of(offsets, kinds).effective(offset.to_numpy(), in_log))
        )
        takes_effect &= ~in_log | (offset.to_numpy() >= base)
        # Each record keeps its own offset, also inside of a transaction.
        own = pc.if_else(pa.array(takes_effect), offset, None)
        return cls(Records(rows.append_column(EFFECTIVE, own)), base)

    def events(self, found: Differences, chosen: Flags, kind: pa.Array, **given: pa.Array) -> pa.Table:
        """The chosen ones of some differences as events."""
        count = len(kind)
        offset = found.at[EFFECTIVE]
        end = pc.if_else(pc.less(offset, self.base), pc.add(offset, 1), None)
        given |= {"offset": offset, "event": kind, "snapshot": end}
        given |= {name: found.at[name] for name in ("timestamp", POSITION)}
        if "changes" not in given:
            given["changes"] = pa.array([[]] * count, EVENT_SCHEMA.field("changes").type)
        columns = [given.get(column.name, pa.nulls(count, column.type)) for column in EVENT_SCHEMA]
        return pa.table(columns, schema=EVENT_SCHEMA).filter(pa.array(chosen))


def _topic_events(rows: pa.Table) -> pa.Table:
    """The events of the topics in a part, and of their partitions."""
    part = _Part.of(rows)
    joined = folded(TOPICS, steps(TOPICS, part.records, resets=True))
    found = differences(joined)
    before, after = (texts["topic"].dictionary_decode() for texts in (found.before, found.after))
    events = [
        part.events(
            found,
            found.is_there != found.was_there,
            _kinds(found, part.base, "created", "deleted"),
            topic=pc.coalesce(after, before),
            topic_id=found.key["topic_id"],
        )
    ]
    topics = states(joined)
    found = differences(
        folded(_PARTITIONS, steps(_PARTITIONS, part.records, resets=True, names=TopicNames(topics)))
    )
    is_first = pc.equal(found.at["type"], "PARTITION_RECORD")
    came = pc.if_else(is_first, "partition added", "partition changed")
    topic_id = found.key["topic_id"]
    known = pc.index_in(topic_id, value_set=whole(topics["topic_id"]))
    lists = changes(found, _FIELDS)
    events.append(
        part.events(
            found,
            found.is_there & flags(pc.greater(pc.list_value_length(lists), 0)),
            _kinds(found, part.base, came, ""),
            topic=whole(topics["topic"]).take(known),
            topic_id=topic_id,
            partition=found.key["partition"],
            changes=lists,
        )
    )
    return pa.concat_tables(events)


def _config_events(rows: pa.Table) -> pa.Table:
    """The events of the configs in a part."""
    part = _Part.of(rows)
    names = _last_topics(part.records.of("TOPIC_RECORD"))
    found = differences(folded(_CONFIGS, steps(_CONFIGS, part.records, resets=True, names=names)))
    return part.events(
        found,
        np.ones(len(found.is_there), np.bool_),
        _kinds(found, part.base, "config set", "config removed"),
        topic=found.key["topic"],
        topic_id=found.key["topic_id"],
        changes=changes(found, {"value": found.key["key"]}),
    )


def _last_topics(created: pa.Table) -> TopicNames:
    """The topics as if each existed until another was created with its name."""
    found = created.group_by(["topic_name", "topic_id"]).aggregate([(EFFECTIVE, "min")])
    found = found.sort_by([("topic_name", "ascending"), (f"{EFFECTIVE}_min", "ascending")]).combine_chunks()
    name, begin = whole(found["topic_name"]), whole(found[f"{EFFECTIVE}_min"])
    following = pa.array(np.arange(1, len(name) + 1), mask=np.arange(len(name)) == len(name) - 1)
    is_same = pc.equal(name, name.take(following))
    end = pc.if_else(is_same, begin.take(following), None)
    return TopicNames(pa.table([whole(found["topic_id"]), name, begin, end], names=list(COLUMNS)))


def _kinds(found: Differences, base: int, came: str | pa.Array, went: str) -> pa.Array:
    """What happened, of which `came` and `went` are the names if a record of the log tells it."""
    in_snapshot = pc.less(found.at[EFFECTIVE], base)
    return pc.if_else(
        pa.array(found.is_there),
        pc.if_else(in_snapshot, "in snapshot", came),
        pc.if_else(pc.equal(found.at["type"], HEADER), "gone by snapshot", went),
    )
