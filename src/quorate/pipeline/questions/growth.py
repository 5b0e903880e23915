"""How did the numbers of topics and partitions grow?"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from quorate.pipeline.questions.moments import Period
from quorate.pipeline.questions.spans import Unit, stepped, timeline
from quorate.pipeline.tables.declaration import Column, Entity
from quorate.pipeline.tables.lake import Lake
from quorate.pipeline.tables.topics import PARTITIONS, TOPICS

COLUMNS: Final = (
    Column("time", "timestamp", "the begin of the minute, hour, day or week"),
    Column("topics", "bigint", "the topics at its end"),
    Column("topics_created", "bigint", "the topics that were created in it"),
    Column("topics_deleted", "bigint", "the topics that were deleted in it"),
    Column("partitions", "bigint", "the partitions at its end"),
    Column("partitions_created", "bigint", "the partitions that were created in it"),
    Column("partitions_deleted", "bigint", "the partitions that were deleted in it"),
    Column("replicas", "bigint", "the replicas at its end"),
)
_TOTALS: Final = ("topics", "partitions", "replicas")
_COUNTS: Final = tuple([column.name for column in COLUMNS if column.kind == "bigint"])


def growth(lake: Lake, cluster: str, period: Period, unit: Unit = Unit.DAY) -> DataFrame:
    """The numbers of topics, partitions and replicas over a period, with a row for each step of it."""
    changes = reduce(
        lambda one, other: one.unionByName(other, allowMissingColumns=True),
        [
            _existence(lake, cluster, TOPICS, period, unit),
            _existence(lake, cluster, PARTITIONS, period, unit),
            _replicas(lake, cluster, period, unit),
        ],
    )
    sums = changes.groupBy("time").agg(*[f.sum(name).alias(name) for name in _COUNTS])
    order = Window.orderBy("time")
    rows = timeline(lake.spark, period, unit).join(sums, "time", "left")
    rows = rows.withColumns({name: f.coalesce(name, f.lit(0)) for name in _COUNTS})
    rows = rows.withColumns({name: f.sum(name).over(order) for name in _TOTALS})
    return rows.select(*[column.name for column in COLUMNS])


def _existence(lake: Lake, cluster: str, entity: Entity, period: Period, unit: Unit) -> DataFrame:
    """When each topic or partition was created and deleted: +1 and -1."""
    rows = lake.read(entity.name, cluster).where(f.col("valid_from_offset") <= period.last)
    spans = rows.groupBy(*entity.key_names).agg(
        f.min("valid_from_offset").alias("created"),
        f.min("valid_from_time").alias("created_time"),
        f.max_by("valid_to_offset", "valid_from_offset").alias("deleted"),
        f.max_by("valid_to_time", "valid_from_offset").alias("deleted_time"),
    )
    name = entity.name
    begin = _step(period, unit, "created", "created_time")
    created = spans.select(
        begin.alias("time"),
        f.lit(1).alias(name),
        period.has("created").cast("int").alias(f"{name}_created"),
    )
    deleted = spans.where(f.col("deleted") <= period.last).select(
        f.greatest(begin, _step(period, unit, "deleted", "deleted_time")).alias("time"),
        f.lit(-1).alias(name),
        period.has("deleted").cast("int").alias(f"{name}_deleted"),
    )
    return created.unionByName(deleted, allowMissingColumns=True)


def _replicas(lake: Lake, cluster: str, period: Period, unit: Unit) -> DataFrame:
    rows = lake.read(PARTITIONS.name, cluster).where(f.col("valid_from_offset") <= period.last)
    rows = stepped(rows, PARTITIONS.key_names, period, unit)
    count = f.size("replicas")
    begins = rows.select(f.col("begins").alias("time"), count.alias("replicas"))
    ends = rows.where(f.col("ends").isNotNull()).select(
        f.col("ends").alias("time"), (-count).alias("replicas")
    )
    return begins.union(ends)


def _step(period: Period, unit: Unit, offset: str, time: str) -> Expression:
    """The step in which a change is counted. What was before the period counts from its begin on."""
    return unit.begin(period, period.clip(offset, time))
