"""How were replicas and leaders distributed over brokers and racks?"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from quorate.pipeline.questions.availability import racks
from quorate.pipeline.questions.moments import Period
from quorate.pipeline.questions.spans import Unit, stepped, timeline
from quorate.pipeline.tables.declaration import Column
from quorate.pipeline.tables.lake import Lake
from quorate.pipeline.tables.topics import PARTITIONS

COLUMNS: Final = (
    Column(
        "time", "timestamp", "the begin of the minute, hour, day or week; the numbers are those at its end"
    ),
    Column("broker_id", "int", "the broker"),
    Column("rack", "string", "its rack"),
    Column("replicas", "bigint", "the replicas that it has"),
    Column("leaders", "bigint", "the partitions that it leads"),
    Column("preferred", "bigint", "the partitions of which it is the first replica"),
)
_COUNTS: Final = ("replicas", "leaders", "preferred")


def balance(
    lake: Lake, cluster: str, period: Period, unit: Unit = Unit.DAY, *, by_rack: bool = False
) -> DataFrame:
    """The replicas and leaders of each broker or rack over a period, with a row for each step of it."""
    known = racks(lake, cluster)
    changes = _changes(lake, cluster, period, unit)
    brokers = known.select("broker_id").union(changes.select("broker_id")).distinct()
    every = timeline(lake.spark, period, unit).crossJoin(brokers)
    order = Window.partitionBy("broker_id").orderBy("time")
    rows = every.join(changes, ["time", "broker_id"], "left")
    rows = rows.withColumns({name: f.coalesce(f.sum(name).over(order), f.lit(0)) for name in _COUNTS})
    rows = rows.join(known, "broker_id", "left")
    if by_rack:
        return rows.groupBy("time", "rack").agg(*[f.sum(name).alias(name) for name in _COUNTS])
    return rows.select(*[column.name for column in COLUMNS])


def _changes(lake: Lake, cluster: str, period: Period, unit: Unit) -> DataFrame:
    """What the states of partitions add to and take from each broker's numbers in each step."""
    rows = lake.read(PARTITIONS.name, cluster).where(f.col("valid_from_offset") <= period.last)
    rows = stepped(rows, PARTITIONS.key_names, period, unit).select("replicas", "leader", "begins", "ends")
    # What begins and ends in one step is in no number at the end of a step.
    rows = rows.where(f.col("ends").isNull() | (f.col("begins") < f.col("ends")))
    rows = rows.select("leader", "begins", "ends", f.posexplode("replicas").alias("place", "broker_id"))
    both = f.array(
        f.struct(f.col("begins").alias("time"), f.lit(1).alias("sign")),
        f.struct(f.col("ends").alias("time"), f.lit(-1).alias("sign")),
    )
    rows = rows.select("leader", "place", "broker_id", f.inline(both)).where(f.col("time").isNotNull())
    sign = f.col("sign")
    return rows.groupBy("time", "broker_id").agg(
        f.sum(sign).alias("replicas"),
        f.sum(f.when(f.col("leader") == f.col("broker_id"), sign).otherwise(0)).alias("leaders"),
        f.sum(f.when(f.col("place") == 0, sign).otherwise(0)).alias("preferred"),
    )
