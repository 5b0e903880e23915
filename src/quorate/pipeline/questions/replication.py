"""When did partitions lack replicas, and which brokers left and joined the in-sync replicas?"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from quorate.pipeline.questions.availability import racks
from quorate.pipeline.questions.moments import Period
from quorate.pipeline.questions.spans import Unit, seconds, step_end, steps_between, timeline
from quorate.pipeline.tables.declaration import Column
from quorate.pipeline.tables.lake import Lake
from quorate.pipeline.tables.settings import CONFIGS
from quorate.pipeline.tables.topics import PARTITIONS

COLUMNS: Final = (
    Column("topic", "string", "the topic's name"),
    Column("topic_id", "string", "the topic's id", detail=True),
    Column("partition", "int", "the number of the partition"),
    Column("times", "bigint", "how often it began to lack replicas or a leader"),
    Column("under_replicated_s", "double", "how long it had fewer in-sync replicas than replicas"),
    Column("under_min_isr_s", "double", "how long it had fewer in-sync replicas than min.insync.replicas"),
    Column("offline_s", "double", "how long it had no leader"),
    Column("still", "boolean", "whether it lacks replicas or a leader at the end of the period"),
)

SERIES: Final = (
    Column("time", "timestamp", "the begin of the minute, hour, day or week"),
    Column("under_replicated", "double", "the partitions that were under-replicated, on average"),
    Column("under_min_isr", "double", "those below min.insync.replicas"),
    Column("offline", "double", "those without a leader"),
)

ISR_CHANGES: Final = (
    Column("time", "timestamp", "the begin of the minute, hour, day or week"),
    Column("broker_id", "int", "the broker"),
    Column("rack", "string", "its rack"),
    Column("left", "bigint", "how often it left the ISR of a partition of which it still had a replica"),
    Column("joined", "bigint", "how often it joined the ISR of a partition that existed"),
)

_FLAGS: Final = ("under_replicated", "under_min_isr", "offline")
_MIN_ISR: Final = "min.insync.replicas"


def degraded_rows(lake: Lake, cluster: str, period: Period) -> DataFrame:
    """The states of the table `partitions` that lack in-sync replicas or a leader, with `under_replicated`,
    `offline`, and `missing`: the brokers that are missing. Replicas that a reassignment adds are not missing
    (Kafka's Partition.isUnderReplicated)."""
    return _partitions(lake, cluster, period).where("under_replicated OR offline")


def _partitions(lake: Lake, cluster: str, period: Period) -> DataFrame:
    """All states of the table `partitions` in a period, with these columns."""
    wanted = f.array_except("replicas", "adding_replicas")
    offline = f.col("leader") == -1
    rows = lake.read(PARTITIONS.name, cluster).where(period.overlaps())
    return rows.withColumns(
        {
            "under_replicated": f.size("isr") < f.size(wanted),
            "offline": offline,
            "missing": f.when(offline, f.col("replicas")).otherwise(f.array_except(wanted, "isr")),
        }
    )


def degraded(lake: Lake, cluster: str, period: Period, min_isr: int = 1) -> DataFrame:
    """How long each partition was under-replicated, below min.insync.replicas, and offline. `min_isr` is the
    brokers' value of this configuration. The log has it only if it was set dynamically."""
    rows = _pieces(lake, cluster, period, min_isr)
    lasted = seconds(f.col("begin"), f.col("end"))
    return (
        rows.groupBy("topic", "topic_id", "partition")
        .agg(
            f.count_if("starts").alias("times"),
            *[f.sum(f.when(f.col(flag), lasted).otherwise(0)).alias(f"{flag}_s") for flag in _FLAGS],
            f.max("still").alias("still"),
        )
        .select(*[column.name for column in COLUMNS])
    )


def degraded_over_time(lake: Lake, cluster: str, period: Period, unit: Unit, min_isr: int = 1) -> DataFrame:
    """How many partitions were under-replicated, below min.insync.replicas, and offline, on average over each
    step of the period."""
    step = f.explode(steps_between(period, unit, f.col("begin"), f.col("end"))).alias("time")
    rows = _pieces(lake, cluster, period, min_isr).select(step, "begin", "end", *_FLAGS)
    end = step_end(unit, f.col("time"), f.lit(period.end))
    lasted = seconds(f.greatest("begin", "time"), f.least(f.col("end"), end))
    sums = rows.groupBy("time").agg(
        *[f.sum(f.when(f.col(flag), lasted).otherwise(0)).alias(flag) for flag in _FLAGS]
    )
    found = timeline(lake.spark, period, unit).join(sums, "time", "left")
    average = {
        flag: f.when(f.col("seconds") > 0, f.coalesce(f.col(flag), f.lit(0.0)) / f.col("seconds")).otherwise(
            0.0
        )
        for flag in _FLAGS
    }
    return found.select("time", *[average[flag].alias(flag) for flag in _FLAGS])


def _pieces(lake: Lake, cluster: str, period: Period, min_isr: int) -> DataFrame:
    """The degraded states, cut where min.insync.replicas changes and at the ends of the period. `starts` is
    true for the first piece after the partition was healthy."""
    # Replicas that a reassignment adds are not missing, but count for min.insync.replicas.
    rows = _partitions(lake, cluster, period).where("offline OR size(isr) < size(replicas)")
    configs = lake.read(CONFIGS.name, cluster).where(f.col("key") == _MIN_ISR)
    of_topics = _steps(configs.where("resource_type = 'TOPIC'"), "topic_id").alias("of_topics")
    of_all = configs.where("resource_type = 'BROKER' AND resource_name = ''")
    defaults = _steps(of_all.withColumn("every", f.lit(True)), "every").withColumnRenamed(
        "steps", "default_steps"
    )
    rows = rows.join(of_topics, "topic_id", "left").withColumn("every", f.lit(True))
    rows = rows.join(f.broadcast(defaults), "every", "left")
    none = "cast(array() AS array<struct<at:bigint,time:timestamp,value:int>>)"
    rows = rows.withColumns(
        {
            "steps": f.expr(f"coalesce(steps, {none})"),
            "default_steps": f.expr(f"coalesce(default_steps, {none})"),
        }
    )
    cuts = f.expr(
        "array_sort(array_distinct(concat("
        "array(struct(valid_from_offset AS at, valid_from_time AS time)),"
        "transform(filter(concat(steps, default_steps), s -> s.at > valid_from_offset"
        " AND (valid_to_offset IS NULL OR s.at < valid_to_offset)),"
        " s -> struct(s.at AS at, s.time AS time)))))"
    )
    rows = rows.withColumn("cuts", cuts)
    rows = rows.select("*", f.posexplode("cuts").alias("number", "cut"))
    value = f.coalesce(_value_at("steps"), _value_at("default_steps"), f.lit(min_isr))
    rows = rows.withColumns(
        {
            "next": f.get("cuts", f.col("number") + 1),
            # A partition needs no more in-sync replicas than it has replicas.
            "under_min_isr": f.size("isr") < f.least(value, f.size("replicas")),
        }
    )
    rows = rows.withColumns(
        {
            "from_at": f.col("cut.at"),
            "from_moment": f.col("cut.time"),
            "to_at": f.coalesce("next.at", "valid_to_offset"),
            "to_moment": f.coalesce("next.time", "valid_to_time"),
        }
    )
    rows = rows.where(
        (f.col("from_at") <= period.last)
        & (f.col("to_at").isNull() | (f.col("to_at") > period.first))
        & f.expr(" OR ".join(_FLAGS))
    )
    order = Window.partitionBy(*PARTITIONS.key_names).orderBy("from_at")
    return rows.withColumns(
        {
            "starts": ~f.lag("to_at").over(order).eqNullSafe(f.col("from_at")),
            "still": period.ends_later("to_at"),
            "begin": period.clip("from_at", "from_moment"),
            "end": period.clip("to_at", "to_moment"),
        }
    )


def _steps(configs: DataFrame, key: str) -> DataFrame:
    """The values of a configuration one after the other, as an array of offset, time and value for each key.
    A value is null from where the configuration was removed."""
    begins = configs.select(
        key,
        f.col("valid_from_offset").alias("at"),
        f.col("valid_from_time").alias("time"),
        f.col("value").try_cast("int").alias("value"),
    )
    ends = configs.where(f.col("valid_to_offset").isNotNull()).select(
        key,
        f.col("valid_to_offset").alias("at"),
        f.col("valid_to_time").alias("time"),
        f.lit(None).cast("int"),
    )
    at_once = (
        begins.union(ends).groupBy(key, "at").agg(f.max("time").alias("time"), f.max("value").alias("value"))
    )
    return at_once.groupBy(key).agg(
        f.array_sort(f.collect_list(f.struct("at", "time", "value"))).alias("steps")
    )


def _value_at(steps: str) -> Expression:
    """The value at the begin of a piece."""
    return f.expr(f"try_element_at(filter({steps}, s -> s.at <= cut.at), -1).value")


def isr_changes(
    lake: Lake, cluster: str, period: Period, unit: Unit = Unit.HOUR, *, by_rack: bool = False
) -> DataFrame:
    """How often brokers left and joined the in-sync replicas of partitions, by time and broker or rack."""
    order = Window.partitionBy(*PARTITIONS.key_names).orderBy("valid_from_offset")
    rows = lake.read(PARTITIONS.name, cluster).where(period.overlaps())
    rows = rows.withColumn("before", f.lag("isr").over(order)).where(
        f.col("before").isNotNull() & period.has("valid_from_offset")
    )
    # A replica that a reassignment removed has not fallen behind.
    left = f.array_except(f.array_intersect("before", "replicas"), "isr")
    joined = f.array_except("isr", "before")
    time = unit.begin(period, f.col("valid_from_time")).alias("time")
    one, none = f.lit(1), f.lit(0)
    every = rows.select(time, f.explode(left).alias("broker_id"), one.alias("left"), none.alias("joined"))
    every = every.union(rows.select(time, f.explode(joined).alias("broker_id"), none, one))
    keys = [*(() if unit is Unit.TOTAL else ("time",)), *(("rack",) if by_rack else ("broker_id", "rack"))]
    found = every.join(racks(lake, cluster), "broker_id", "left").groupBy(*keys)
    return found.agg(f.sum("left").alias("left"), f.sum("joined").alias("joined"))
