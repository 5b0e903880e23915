"""quorate-topic-history: what happened to every topic of a cluster, from a metadata log directory (of a
running node, too).

One row per event: a topic created or deleted, a partition added or changed (leader, ISR, replicas,
ELR), a config set or removed, each with the offset and time of its record. Where the log does not begin
at 0, the snapshot below it says what the history starts from. A snapshot resets the state: what it
lacks and the one before it had is gone by its offset. Records of metadata transactions that were
aborted or have not ended are left out: they never were.

All of it is done by Spark's own operators; nothing is gathered on the driver but the lines, one by one,
as they are printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession, WindowSpec

TOPIC_TYPES = (
    "TOPIC_RECORD",
    "REMOVE_TOPIC_RECORD",
    "PARTITION_RECORD",
    "PARTITION_CHANGE_RECORD",
    "CLEAR_ELR_RECORD",
    "CONFIG_RECORD",
)
TRANSACTION_TYPES = ("BEGIN_TRANSACTION_RECORD", "END_TRANSACTION_RECORD", "ABORT_TRANSACTION_RECORD")

_STATE = (
    "isr array<int>, leader int, replicas array<int>, leaderEpoch int, "
    "eligibleLeaderReplicas array<int>, lastKnownElr array<int>"
)

EVENT_COLUMNS = ("topic", "topic_id", "offset", "timestamp", "event", "partition", "changes", "snapshot")
"""`changes`: an array of (field, old, new) as text; `snapshot`: the end offset of the snapshot that
tells of it, else null."""


def history(spark: SparkSession, path: str) -> DataFrame:
    """The events of all topics, with EVENT_COLUMNS and `position` (the order of equal offsets), in no
    order."""
    from pyspark.sql import functions as f

    read = spark.read.format("quorate_metadata").option("snapshots", "resets").load(path)
    rows = read.where(f.col("type").isin(*TOPIC_TYPES, *TRANSACTION_TYPES)).cache()
    base = rows.agg(f.max("snapshot").alias("base"))
    # What a snapshot covers is not told a second time by the log.
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
    from pyspark.sql import Window

    return Window.partitionBy(*columns)


def _ordered(*columns: str) -> WindowSpec:
    """Over few rows only (snapshots, transaction markers): all of them go through one task."""
    from pyspark.sql import Window

    return Window.orderBy(*columns)


def _committed(rows: DataFrame) -> DataFrame:
    """The rows without those of transactions that were aborted or have not ended, and without the markers."""
    from pyspark.sql import functions as f

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
    from pyspark.sql import functions as f

    return [
        f.col("topic"), f.col("topic_id"), f.col("offset"), f.col("timestamp"), kind.alias("event"), f.col("partition"),
        changes.alias("changes"), f.col("snapshot"), f.col("position"),
    ]  # fmt: skip


def _no_changes() -> Column:
    from pyspark.sql import functions as f

    return f.array().cast("array<struct<field:string,old:string,new:string>>")


def _change(field: Column, old: Column, new: Column) -> Column:
    from pyspark.sql import functions as f

    return f.struct(
        field.cast("string").alias("field"), old.cast("string").alias("old"), new.cast("string").alias("new")
    )


def _gone(rows: DataFrame, keys: list[str], resets: DataFrame) -> DataFrame:
    """Rows of a snapshot whose key the next snapshot lacks, moved to that one."""
    from pyspark.sql import functions as f

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
    from pyspark.sql import functions as f

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
    """Each partition's records against the state before them: what a change leaves out is what was last
    said."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    every = rows.where(f.col("type").isin("PARTITION_RECORD", "PARTITION_CHANGE_RECORD"))
    every = every.withColumn("record", f.from_json("json", _STATE))
    every = every.unionByName(_cleared(rows, every, topics), allowMissingColumns=True)
    whole = f.col("type") == "PARTITION_RECORD"
    named = f.when(whole | (f.col("record.leader") != -2), f.col("record.leader"))
    order = _each("topic_id", "partition").orderBy("offset", "position")
    now = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # A whole record starts the leader epoch anew; each change that names a leader raises it.
    every = every.withColumn("life", f.count(f.when(whole, 1)).over(now))
    raised = f.when(~whole & named.isNotNull(), 1).otherwise(0)
    life = _each("topic_id", "partition", "life").orderBy("offset", "position")
    life = life.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    epoch = f.first("record.leaderEpoch").over(life) + f.sum(raised).over(life)
    empty = f.array().cast("array<int>")
    fields = {
        "leader": f.last(named, ignorenulls=True).over(now),
        "leader epoch": epoch,
        "isr": f.last("record.isr", ignorenulls=True).over(now),
        "replicas": f.last("record.replicas", ignorenulls=True).over(now),
    }
    for field, column in (
        ("elr", "record.eligibleLeaderReplicas"),
        ("last known elr", "record.lastKnownElr"),
    ):
        fields[field] = f.last(
            f.when(whole, f.coalesce(column, empty)).otherwise(f.col(column)), ignorenulls=True
        ).over(now)
    shown = every
    for field, value in fields.items():
        shown = shown.withColumn(field, value.cast("string"))
    for field in fields:
        shown = shown.withColumn(f"old {field}", f.lag(f"`{field}`").over(order))
    changes = f.array(
        *[_change(f.lit(field), f.col(f"`old {field}`"), f.col(f"`{field}`")) for field in fields]
    )
    real = f.filter(
        changes,
        lambda change: (
            ~change["old"].eqNullSafe(change["new"]) & ~(change["old"].isNull() & (change["new"] == "[]"))
        ),
    )
    kind = (
        f.when(f.col("snapshot").isNotNull(), "in snapshot")
        .when(whole, "partition added")
        .otherwise("partition changed")
    )
    told = shown.join(topics.drop("created_at"), "topic_id", "left").select(*_event(kind, real))
    return told.where(f.size("changes") > 0)


def _cleared(rows: DataFrame, partitions: DataFrame, topics: DataFrame) -> DataFrame:
    """A change record for each partition that a ClearElr record is about: of the topic that it names,
    or of all."""
    from pyspark.sql import functions as f

    clear = rows.where(f.col("type") == "CLEAR_ELR_RECORD").drop("topic_id", "partition")
    deleted = rows.where(f.col("type") == "REMOVE_TOPIC_RECORD").select(
        "topic_id", f.col("offset").alias("deleted_at")
    )
    each = partitions.groupBy("topic_id", "partition").agg(f.min("offset").alias("since"))
    each = each.join(topics.drop("created_at"), "topic_id").join(deleted, "topic_id", "left")
    lives = (f.col("since") <= f.col("offset")) & (
        f.col("deleted_at").isNull() | (f.col("deleted_at") > f.col("offset"))
    )
    meant = (f.col("topic_name") == "") | (f.col("topic_name") == f.col("topic"))
    empty = '{"eligibleLeaderReplicas":[],"lastKnownElr":[]}'
    found = clear.join(each, meant & lives).withColumn("record", f.from_json(f.lit(empty), _STATE))
    return found.select(*partitions.columns)


def _config_events(rows: DataFrame, topics: DataFrame, resets: DataFrame) -> DataFrame:
    """Configs go by name: a record is about the last topic that had got it by then."""
    from pyspark.sql import functions as f

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
