"""What happened to topics, to their partitions and to the configs of topics, as events.

The records are divided into parts: those of topics and partitions by the id of the topic, those of
configs by its name. The events of a part are computed from its own records, so that no process needs
the records of all topics.

If the log does not begin at 0, the events begin with the state in a snapshot. A later snapshot replaces
the state: an entity that it lacks was removed before its end offset. Records of metadata transactions
that were aborted or have not ended have no events.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.dataclass import dataclass
from quorate.pipeline.history.codes import Flags, flags
from quorate.pipeline.history.differences import CHANGE, Differences, changes, differences
from quorate.pipeline.history.names import COLUMNS, TopicNames
from quorate.pipeline.history.replay import replay
from quorate.pipeline.history.steps import HEADER, POSITION, Records, columns_read, steps
from quorate.pipeline.tables.declaration import Column, Effect, Entity, Rule
from quorate.pipeline.tables.events import ABORT, EFFECTIVE, MARKERS, MAX_OFFSET, Transactions
from quorate.pipeline.tables.expressions import both, equal, is_null, is_set, whole
from quorate.pipeline.tables.topics import PARTITIONS, TOPIC_ID, TOPICS

EVENT_COLUMNS: Final = (
    "topic",
    "topic_id",
    "offset",
    "timestamp",
    "event",
    "partition",
    "changes",
    "snapshot",
)
"""The columns of an event. `changes` is an array of (field, old, new) as text. `snapshot` is the end offset
of the snapshot that has the event, or null."""

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
"""`position` orders the events of one offset."""

_FIELDS: Final = {
    "leader": "leader",
    "leader_epoch": "leader epoch",
    "isr": "isr",
    "replicas": "replicas",
    "elr": "elr",
    "last_known_elr": "last known elr",
}
"""The columns of partitions whose changes are events, and how the events name them."""

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
"""The key has the topic's id, so that a topic that is created anew does not inherit configs. A config record
has only the name: it belongs to the last topic that was created with it."""

_BY_ID: Final = ("TOPIC_RECORD", "REMOVE_TOPIC_RECORD", "PARTITION_RECORD", "PARTITION_CHANGE_RECORD")
_BY_NAME: Final = ("TOPIC_RECORD", "CONFIG_RECORD")
_EVERYWHERE: Final = (*MARKERS, HEADER)
_CLEAR: Final = "CLEAR_ELR_RECORD"
RECORD_TYPES: Final = frozenset([*_BY_ID, *_BY_NAME, *_EVERYWHERE, _CLEAR])
"""The types of the records that have events, or that decide whether others have."""

RECORD_COLUMNS: Final = tuple(
    sorted(
        {"snapshot", "resource_type", "resource_name"}.union(
            *[columns_read(entity, RECORD_TYPES) for entity in (TOPICS, _PARTITIONS, _CONFIGS)]
        )
        - {EFFECTIVE, "principal", "client_id", "address", "api", "reason"}
    )
)


def divide(rows: pa.Table, count: int) -> Iterator[tuple[int, pa.Table]]:
    """Divides records into parts, and yields the number and the records of each part that has some.

    The parts below `count` are for `topic_events`, those from `count` to `2 * count` for `config_events`.
    """
    kind = whole(rows["type"])
    everywhere = _is_one_of(kind, _EVERYWHERE)
    by_id = _parts(rows, "topic_id", _is_one_of(kind, _BY_ID), count)
    yield from _not_empty(rows, by_id, everywhere | _is_one_of(kind, (_CLEAR,)), count)
    has_name = flags(pc.is_valid(whole(rows["topic_name"])))
    by_name = _parts(rows, "topic_name", _is_one_of(kind, _BY_NAME) & has_name, count)
    # Configs need no struct, and these are most of the bytes.
    flat = rows.select([name for name in rows.column_names if not name.endswith("_record")])
    for part, chosen in _not_empty(flat, by_name, everywhere, count):
        yield count + part, chosen


def _not_empty(rows: pa.Table, part: Any, in_all: Flags, count: int) -> Iterator[tuple[int, pa.Table]]:
    """The number and the rows of each part that has some."""
    for number in range(count):
        chosen = np.flatnonzero(in_all | (part == number))
        if len(chosen):
            yield number, rows.take(pa.array(chosen))


def _is_one_of(kind: pa.Array, types: Sequence[str]) -> Flags:
    return flags(pc.is_in(kind, value_set=pa.array(types)))


def _parts(rows: pa.Table, key: str, wanted: Flags, count: int) -> Any:
    """The part of each wanted row, by a hash of the value in a column; -1 for the other rows."""
    if count == 1:
        return np.where(wanted, 0, -1)
    found = whole(rows[key]).dictionary_encode()
    number = np.array([zlib.crc32((value or "").encode()) % count for value in found.dictionary.to_pylist()])
    return np.where(wanted, number[found.indices.fill_null(0).to_numpy()] if len(number) else 0, -1)


@dataclass(frozen=True, slots=True)
class _Part:
    """The records of a part that take effect."""

    records: Records
    base: int
    """The end offset of the snapshot with which the log begins, or 0."""

    @classmethod
    def of(cls, rows: pa.Table) -> _Part:
        """Leaves out the records that the snapshot contains, and those that never took effect."""
        kind, offset = whole(rows["type"]), whole(rows["offset"])
        in_log = flags(pc.is_null(whole(rows["snapshot"])))
        base = pc.max(whole(rows["snapshot"])).as_py() or 0
        markers = np.flatnonzero(_is_one_of(kind, MARKERS) & in_log)
        # A marker after the last record aborts a transaction that is open.
        offsets = np.append(offset.to_numpy()[markers], MAX_OFFSET)
        kinds = [*kind.take(pa.array(markers)).to_pylist(), ABORT]
        takes_effect = flags(
            pc.is_valid(Transactions.of(offsets, kinds).effective(offset.to_numpy(), in_log))
        )
        takes_effect &= ~in_log | (offset.to_numpy() >= base)
        # Each record keeps its own offset, also inside of a transaction.
        own = pc.if_else(pa.array(takes_effect), offset, None)
        return cls(Records(rows.append_column(EFFECTIVE, own)), base)

    def events(self, found: Differences, chosen: Flags, kind: pa.Array, **given: pa.Array) -> pa.Table:
        """Some of the differences as events. `given` are columns of the events."""
        count = len(kind)
        offset = found.at[EFFECTIVE]
        end = pc.if_else(pc.less(offset, self.base), pc.add(offset, 1), None)
        given |= {"offset": offset, "event": kind, "snapshot": end}
        given |= {name: found.at[name] for name in ("timestamp", POSITION)}
        if "changes" not in given:
            given["changes"] = pa.array([[]] * count, EVENT_SCHEMA.field("changes").type)
        columns = [given.get(column.name, pa.nulls(count, column.type)) for column in EVENT_SCHEMA]
        return pa.table(columns, schema=EVENT_SCHEMA).filter(pa.array(chosen))


def topic_events(rows: pa.Table) -> pa.Table:
    """The events of the topics in a part and of their partitions: rows with `EVENT_SCHEMA`."""
    part = _Part.of(rows)
    replayed = replay(TOPICS, steps(TOPICS, part.records, resets=True))
    found = differences(replayed)
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
    topics = replayed.history_rows()
    found = differences(
        replay(_PARTITIONS, steps(_PARTITIONS, part.records, resets=True, names=TopicNames(topics)))
    )
    is_added = pc.equal(found.at["type"], "PARTITION_RECORD")
    name = pc.if_else(is_added, "partition added", "partition changed")
    topic_id = found.key["topic_id"]
    known = pc.index_in(topic_id, value_set=whole(topics["topic_id"]))
    lists = changes(found, _FIELDS)
    events.append(
        part.events(
            found,
            found.is_there & flags(pc.greater(pc.list_value_length(lists), 0)),
            _kinds(found, part.base, name, ""),
            topic=whole(topics["topic"]).take(known),
            topic_id=topic_id,
            partition=found.key["partition"],
            changes=lists,
        )
    )
    return pa.concat_tables(events)


def config_events(rows: pa.Table) -> pa.Table:
    """The events of the configs of topics in a part: rows with `EVENT_SCHEMA`."""
    part = _Part.of(rows)
    names = _last_topics(part.records.of("TOPIC_RECORD"))
    found = differences(replay(_CONFIGS, steps(_CONFIGS, part.records, resets=True, names=names)))
    return part.events(
        found,
        np.ones(len(found.is_there), np.bool_),
        _kinds(found, part.base, "config set", "config removed"),
        topic=found.key["topic"],
        topic_id=found.key["topic_id"],
        changes=changes(found, {"value": found.key["key"]}),
    )


def _last_topics(created: pa.Table) -> TopicNames:
    """The topics, each as if it existed until another topic was created with the same name."""
    found = created.group_by(["topic_name", "topic_id"]).aggregate([(EFFECTIVE, "min")])
    found = found.sort_by([("topic_name", "ascending"), (f"{EFFECTIVE}_min", "ascending")]).combine_chunks()
    name, begin = whole(found["topic_name"]), whole(found[f"{EFFECTIVE}_min"])
    following = pa.array(np.arange(1, len(name) + 1), mask=np.arange(len(name)) == len(name) - 1)
    is_same = pc.equal(name, name.take(following))
    end = pc.if_else(is_same, begin.take(following), None)
    return TopicNames(pa.table([whole(found["topic_id"]), name, begin, end], names=list(COLUMNS)))


def _kinds(found: Differences, base: int, present: str | pa.Array, removed: str) -> pa.Array:
    """The names of events.

    An event from a record of the log is named `present` if the entity exists after it, and `removed` if
    not. Events from a snapshot have names of their own.
    """
    in_snapshot = pc.less(found.at[EFFECTIVE], base)
    return pc.if_else(
        pa.array(found.is_there),
        pc.if_else(in_snapshot, "in snapshot", present),
        pc.if_else(pc.equal(found.at["type"], HEADER), "gone by snapshot", removed),
    )
