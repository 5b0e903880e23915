"""Which topics has nobody changed in a period?"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from quorate.pipeline.questions.moments import Period
from quorate.pipeline.questions.spans import seconds
from quorate.pipeline.questions.state import state_at
from quorate.pipeline.tables.declaration import Column
from quorate.pipeline.tables.lake import Lake
from quorate.pipeline.tables.settings import CONFIGS
from quorate.pipeline.tables.topics import PARTITIONS, TOPICS

COLUMNS: Final = (
    Column("topic", "string", "the topic's name"),
    Column("topic_id", "string", "the topic's id", detail=True),
    Column("partitions", "bigint", "the number of its partitions"),
    Column("created_time", "timestamp", "when it was created, or first known"),
    Column("changed_time", "timestamp", "when its partitions, replicas or configuration changed last"),
    Column("changed_by", "string", "the type of the record of that change"),
    Column("unchanged_days", "double", "the days since then, at the end of the period"),
)

_ASSIGNMENT: Final = ("replicas", "adding_replicas", "removing_replicas")


def unchanged(lake: Lake, cluster: str, period: Period) -> DataFrame:
    """The topics at the end of a period that were not created and not changed in it: no partition added, no
    replica moved, no configuration set or removed. Changes of leaders and of the ISR do not count."""
    touched = reduce(DataFrame.union, _touches(lake, cluster)).where(f.col("offset") <= period.last)
    touched = touched.groupBy("topic_id").agg(
        f.max("offset").alias("offset"),
        f.max_by("time", "offset").alias("changed_time"),
        f.max_by("record", "offset").alias("changed_by"),
        f.min_by("time", "offset").alias("created_time"),
    )
    partitions = state_at(lake, cluster, PARTITIONS, period.last).groupBy("topic_id")
    found = (
        state_at(lake, cluster, TOPICS, period.last)
        .join(touched.where(f.col("offset") <= period.first), "topic_id")
        .join(partitions.agg(f.count("*").alias("partitions")), "topic_id", "left")
    )
    days = seconds(f.col("changed_time"), f.lit(period.end)) / 86_400
    found = found.withColumn("unchanged_days", days)
    return found.select(*[column.name for column in COLUMNS])


def _touches(lake: Lake, cluster: str) -> list[DataFrame]:
    """What counts as a change of a topic: offset, time and record type of each."""
    began = [
        f.col("topic_id"),
        f.col("valid_from_offset").alias("offset"),
        f.col("valid_from_time").alias("time"),
        f.col("from_record").alias("record"),
    ]
    order = Window.partitionBy(*PARTITIONS.key_names).orderBy("valid_from_offset")
    assignment = f.struct(*_ASSIGNMENT)
    moved = (
        lake.read(PARTITIONS.name, cluster)
        .withColumn("same", assignment.eqNullSafe(f.lag(assignment).over(order)))
        .where(~f.col("same"))
    )
    configs = lake.read(CONFIGS.name, cluster).where(f.col("topic_id").isNotNull())
    removed = configs.where(f.col("valid_to_offset").isNotNull()).select(
        "topic_id",
        f.col("valid_to_offset").alias("offset"),
        f.col("valid_to_time").alias("time"),
        f.col("to_record").alias("record"),
    )
    return [
        lake.read(TOPICS.name, cluster).select(*began),
        moved.select(*began),
        configs.select(*began),
        removed,
    ]
