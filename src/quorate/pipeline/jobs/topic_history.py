"""Computes the history of every topic of a cluster from a metadata log directory.

Each row is an event: a topic was created or deleted, a partition was added or changed (leader, ISR, replicas,
ELR), a config was set or removed. It has the offset and the time of its record. If the log does not begin at
0, the history begins with the state in a snapshot. A snapshot resets the state: an entity that it lacks was
removed before its end offset. Records of metadata transactions that were aborted or have not ended are left
out.

Spark's operators do all of the work. The driver fetches the events one by one to print them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType

TOPIC_TYPES = (
    "TOPIC_RECORD",
    "REMOVE_TOPIC_RECORD",
    "PARTITION_RECORD",
    "PARTITION_CHANGE_RECORD",
    "CLEAR_ELR_RECORD",
    "CONFIG_RECORD",
)
TRANSACTION_TYPES = ("BEGIN_TRANSACTION_RECORD", "END_TRANSACTION_RECORD", "ABORT_TRANSACTION_RECORD")

_STATE = ("isr", "leader", "replicas", "eligible_leader_replicas", "last_known_elr")
"""The fields that PartitionRecord and PartitionChangeRecord both have."""

_COLUMNS = (
    "offset", "position", "timestamp", "snapshot", "type",
    "topic_id", "topic_name", "partition", "resource_type", "resource_name", "key", "value",
    *[f"partition_record.{field}" for field in (*_STATE, "leader_epoch")],
    *[f"partition_change_record.{field}" for field in _STATE],
)  # fmt: skip

EVENT_COLUMNS = ("topic", "topic_id", "offset", "timestamp", "event", "partition", "changes", "snapshot")
"""`changes` is an array of (field, old, new) as text. `snapshot` is the end offset of the snapshot that has
the event, or null.
"""


def history(spark: SparkSession, path: str) -> DataFrame:
    """Returns the events of all topics, unordered, with EVENT_COLUMNS and `position`.

    `position` orders events of the same offset.
    """
    source = spark.read.format("quorate_metadata").option("snapshots", "resets")
    source = source.option("columns", ",".join(_COLUMNS))
    rows = source.option("types", ",".join((*TOPIC_TYPES, *TRANSACTION_TYPES))).load(path).cache()
    base = rows.agg(f.max("snapshot").alias("base"))
    # Records of the log that the snapshot covers are skipped.
    told = f.col("snapshot").isNotNull() | f.col("base").isNull() | (f.col("offset") >= f.col("base"))
    rows = _committed(rows.crossJoin(f.broadcast(base)).where(told))
    created = f.min("offset").alias("created_at")
    topics = (
        rows.where(f.col("type") == "TOPIC_RECORD")
        .groupBy("topic_id", f.col("topic_name").alias("topic"))
        .agg(created)
    )
    resets = rows.where(f.col("snapshot").isNotNull()).select(
        "snapshot", f.max("timestamp").over(_each("snapshot")).alias("at")
    )
    resets = resets.distinct().withColumn("next", f.lead("snapshot").over(_ordered("snapshot")))
    resets = resets.withColumn("next_at", f.lead("at").over(_ordered("snapshot")))
    parts = (
        _topic_events(rows, topics, resets),
        _partition_events(rows, topics),
        _config_events(rows, topics, resets),
    )
    return parts[0].unionByName(parts[1]).unionByName(parts[2])


def _each(*columns: str) -> WindowSpec:
    return Window.partitionBy(*columns)


def _ordered(*columns: str) -> WindowSpec:
    """A window over all rows in order. One task computes it, so it is for few rows: snapshots, markers."""
    return Window.orderBy(*columns)


def _committed(rows: DataFrame) -> DataFrame:
    """Removes the markers of transactions, and the rows of those that were aborted or have not ended."""
    markers = rows.where(f.col("type").isin(*TRANSACTION_TYPES)).select("offset", "type")
    order = _ordered("offset")
    ended = f.coalesce(f.lead("type").over(order), f.lit("")) == "END_TRANSACTION_RECORD"
    dropped = (
        markers.withColumn("ended", ended)
        .withColumn("end", f.coalesce(f.lead("offset").over(order), f.lit(1 << 62)))
        .where((f.col("type") == "BEGIN_TRANSACTION_RECORD") & ~f.col("ended"))
        .select(f.col("offset").alias("begin"), "end")
    )
    inside = (f.col("offset") > f.col("begin")) & (f.col("offset") < f.col("end"))
    return rows.join(f.broadcast(dropped), inside, "left_anti").where(f.col("type").isin(*TOPIC_TYPES))


def _event(kind: Column, changes: Column) -> list[Column]:
    return [
        f.col("topic"), f.col("topic_id"), f.col("offset"), f.col("timestamp"), kind.alias("event"),
        f.col("partition"),
        changes.alias("changes"), f.col("snapshot"), f.col("position"),
    ]  # fmt: skip


def _no_changes() -> Column:
    return f.array().cast("array<struct<field:string,old:string,new:string>>")


def _change(field: Column, old: Column, new: Column) -> Column:
    return f.struct(
        field.cast("string").alias("field"), old.cast("string").alias("old"), new.cast("string").alias("new")
    )


def _gone(rows: DataFrame, keys: list[str], resets: DataFrame) -> DataFrame:
    """Returns the rows of a snapshot whose key the next snapshot lacks, with the offset of the next one."""
    told = rows.where(f.col("snapshot").isNotNull())
    later = told.select(*[f.col(key).alias(f"later_{key}") for key in keys], f.col("snapshot").alias("later"))
    same = f.col("next") == f.col("later")
    for key in keys:
        same = same & f.col(key).eqNullSafe(f.col(f"later_{key}"))
    left = (
        told.join(f.broadcast(resets), "snapshot")
        .where(f.col("next").isNotNull())
        .join(later, same, "left_anti")
    )
    return (
        left.withColumn("snapshot", f.col("next"))
        .withColumn("offset", f.col("next") - 1)
        .withColumn("timestamp", f.col("next_at"))
        .drop("next", "next_at", "at")
    )


def _topic_events(rows: DataFrame, topics: DataFrame, resets: DataFrame) -> DataFrame:
    names = topics.drop("created_at")
    found = rows.where(f.col("type").isin("TOPIC_RECORD", "REMOVE_TOPIC_RECORD")).drop("topic_name")
    first = f.row_number().over(_each("topic_id", "type").orderBy("offset")) == 1
    kind = f.when(f.col("type") == "REMOVE_TOPIC_RECORD", "deleted").when(
        f.col("snapshot").isNotNull(), "in snapshot"
    )
    came = found.withColumn("first", first).where("first").join(names, "topic_id", "left")
    went = _gone(found.where(f.col("type") == "TOPIC_RECORD"), ["topic_id"], resets).join(
        names, "topic_id", "left"
    )
    return came.select(*_event(kind.otherwise("created"), _no_changes())).unionByName(
        went.select(*_event(f.lit("gone by snapshot"), _no_changes()))
    )


def _partition_events(rows: DataFrame, topics: DataFrame) -> DataFrame:
    """Compares each record of a partition with the state before it. A field that a change record lacks keeps
    its value.
    """
    every = rows.where(f.col("type").isin("PARTITION_RECORD", "PARTITION_CHANGE_RECORD"))
    both = {
        field: f.coalesce(f.col(f"partition_record.{field}"), f.col(f"partition_change_record.{field}"))
        for field in _STATE
    }
    every = every.withColumn("record", _record(f.col("partition_record.leader_epoch"), both))
    every = every.unionByName(_cleared(rows, every, topics), allowMissingColumns=True)
    whole = f.col("type") == "PARTITION_RECORD"
    named = f.when(whole | (f.col("record.leader") != -2), f.col("record.leader"))
    order = _each("topic_id", "partition").orderBy("offset", "position")
    now = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # A PartitionRecord resets the leader epoch. Each change record with a leader increments it.
    raised = f.count(f.when(~whole & named.isNotNull(), 1)).over(now)
    empty = f.array().cast("array<int>")
    states = {
        "leader": f.last(named, ignorenulls=True),
        "leader epoch": f.last(
            f.when(whole, f.col("record.leader_epoch") - f.col("raised")), ignorenulls=True
        ),
        "isr": f.last("record.isr", ignorenulls=True),
        "replicas": f.last("record.replicas", ignorenulls=True),
    }
    for field, column in (
        ("elr", "record.eligible_leader_replicas"),
        ("last known elr", "record.last_known_elr"),
    ):
        known = f.when(whole, f.coalesce(column, empty)).otherwise(f.col(column))
        states[field] = f.last(known, ignorenulls=True)
    shown = every.withColumn("raised", raised)
    shown = shown.withColumns({field: state.over(now) for field, state in states.items()})
    shown = shown.withColumn("leader epoch", f.col("leader epoch") + f.col("raised"))
    shown = shown.withColumns({f"old {field}": f.lag(f"`{field}`").over(order) for field in states})
    none = _no_changes()
    # Arrays are joined, and not filtered: Spark compiles the former.
    real = f.concat(*[f.when(_is_changed(shown, field), _changed(field)).otherwise(none) for field in states])
    kind = (
        f.when(f.col("snapshot").isNotNull(), "in snapshot")
        .when(whole, "partition added")
        .otherwise("partition changed")
    )
    told = shown.join(topics.drop("created_at"), "topic_id", "left").select(*_event(kind, real))
    return told.where(f.size("changes") > 0)


def _is_changed(shown: DataFrame, field: str) -> Column:
    """Whether a field differs from the state before. A list that becomes known as empty does not."""
    old, new = f.col(f"`old {field}`"), f.col(f"`{field}`")
    differs = ~old.eqNullSafe(new)
    is_list = isinstance(shown.schema[field].dataType, ArrayType)
    return differs & ~(old.isNull() & (f.size(new) == 0)) if is_list else differs


def _changed(field: str) -> Column:
    return f.array(_change(f.lit(field), f.col(f"`old {field}`"), f.col(f"`{field}`")))


def _record(leader_epoch: Column, fields: dict[str, Column]) -> Column:
    """The fields of a partition's record. Those that are not given are null."""
    state = [
        fields.get(field, f.lit(None)).cast("int" if field == "leader" else "array<int>").alias(field)
        for field in _STATE
    ]
    return f.struct(leader_epoch.cast("int").alias("leader_epoch"), *state)


def _cleared(rows: DataFrame, partitions: DataFrame, topics: DataFrame) -> DataFrame:
    """Returns a change record for each partition of the topic of a ClearElrRecord, or of all topics."""
    clear = rows.where(f.col("type") == "CLEAR_ELR_RECORD").drop("topic_id", "partition")
    deleted = rows.where(f.col("type") == "REMOVE_TOPIC_RECORD").select(
        "topic_id", f.col("offset").alias("deleted_at")
    )
    lives = f.col("deleted_at").isNull() | (f.col("deleted_at") > f.col("offset"))
    meant = (f.col("topic_name") == "") | (f.col("topic_name") == f.col("topic"))
    cleared = clear.join(topics.drop("created_at").join(deleted, "topic_id", "left"), meant & lives)
    # The first record of a partition has all of its fields.
    whole = partitions.where(f.col("type") == "PARTITION_RECORD")
    each = whole.groupBy("topic_id", "partition").agg(f.min("offset").alias("since"))
    empty = f.array().cast("array<int>")
    emptied = {"eligible_leader_replicas": empty, "last_known_elr": empty}
    found = cleared.join(each, "topic_id").where(f.col("since") <= f.col("offset"))
    found = found.withColumn("record", _record(f.lit(None), emptied))
    return found.select(*partitions.columns)


def _config_events(rows: DataFrame, topics: DataFrame, resets: DataFrame) -> DataFrame:
    """Assigns config records, which have the topic's name only, to the last topic with that name."""
    found = rows.where((f.col("type") == "CONFIG_RECORD") & (f.col("resource_type") == "TOPIC")).drop(
        "topic_id"
    )
    found = found.withColumn("topic", f.col("resource_name"))
    gone = _gone(found, ["topic", "key"], resets).withColumn("value", f.lit(None).cast("string"))
    found = found.unionByName(gone)
    possible = found.join(topics, "topic", "left").where(
        f.col("created_at").isNull() | (f.col("created_at") <= f.col("offset"))
    )
    latest = f.row_number().over(_each("offset", "position", "topic", "key").orderBy(f.desc("created_at")))
    found = possible.withColumn("rank", latest).where(f.col("rank") == 1)
    before = f.lag("value").over(_each("topic_id", "topic", "key").orderBy("offset", "position"))
    kind = f.when(f.col("snapshot").isNotNull(), "in snapshot").otherwise(
        f.when(f.col("value").isNull(), "config removed").otherwise("config set")
    )
    kind = f.when(f.col("snapshot").isNotNull() & f.col("value").isNull(), "gone by snapshot").otherwise(kind)
    told = found.withColumn("before", before).where(~f.col("before").eqNullSafe(f.col("value")))
    return told.select(*_event(kind, f.array(_change(f.col("key"), f.col("before"), f.col("value")))))
