"""Which leaders did partitions get, and which brokers gained and lost the leadership?"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from quorate.pipeline.questions.availability import racks
from quorate.pipeline.questions.moments import Period
from quorate.pipeline.questions.spans import Unit
from quorate.pipeline.tables.declaration import Column
from quorate.pipeline.tables.lake import Lake
from quorate.pipeline.tables.topics import PARTITIONS

ELECTIONS: Final = (
    Column("offset", "bigint", "the offset of the record that changed the leader"),
    Column("time", "timestamp", "its time"),
    Column("topic", "string", "the topic's name"),
    Column("topic_id", "string", "the topic's id", detail=True),
    Column("partition", "int", "the number of the partition"),
    Column("before", "int", "the leader before, -1 if there was none"),
    Column("leader", "int", "the leader since, -1 if there is none"),
    Column("leader_epoch", "int", "its leader epoch"),
    Column(
        "kind",
        "string",
        "`none`: no replica could be elected. `unclean`: the leader was not in sync, so that records may be "
        "lost. `preferred`: the first of the replicas. `again`: the same leader in a new epoch. `other`",
    ),
)

COLUMNS: Final = (
    Column("time", "timestamp", "the begin of the minute, hour, day or week"),
    Column("broker_id", "int", "the broker; -1 for partitions without a leader"),
    Column("rack", "string", "its rack"),
    Column("gained", "bigint", "how often it became the leader of a partition that another one had led"),
    Column("lost", "bigint", "how often it ceased to be the leader of a partition that still exists"),
    Column("preferred", "bigint", "how often it gained the leadership as the first of the replicas"),
    Column("unclean", "bigint", "how often it gained the leadership without being in sync"),
    Column("created", "bigint", "how many new partitions it was the first leader of"),
)
_COUNTERS: Final = ("gained", "lost", "preferred", "unclean", "created")


def elections(lake: Lake, cluster: str, period: Period) -> DataFrame:
    """The elections of leaders in a period. The first leader of a new partition is not elected."""
    found = _leaders(lake, cluster, period).where(f.col("before").isNotNull() & f.col("elected"))
    return found.select(*[column.name for column in ELECTIONS])


def leader_changes(
    lake: Lake, cluster: str, period: Period, unit: Unit = Unit.HOUR, *, by_rack: bool = False
) -> DataFrame:
    """The changes of leaders in a period, counted by time and broker or rack."""
    rows = _leaders(lake, cluster, period).withColumn("time", unit.begin(period, f.col("time")))
    moved = rows.where(f.col("before") != f.col("leader"))
    created = rows.where(f.col("before").isNull() & (f.col("from_record") == PARTITIONS.rules[0].record))
    parts = (
        _one(moved, "leader", "gained"),
        _one(moved, "before", "lost"),
        _one(moved.where(f.col("kind") == "preferred"), "leader", "preferred"),
        _one(moved.where(f.col("kind") == "unclean"), "leader", "unclean"),
        _one(created, "leader", "created"),
    )
    every = reduce(lambda one, other: one.unionByName(other), parts)
    every = every.join(racks(lake, cluster), "broker_id", "left")
    keys = [*(() if unit is Unit.TOTAL else ("time",)), *(("rack",) if by_rack else ("broker_id", "rack"))]
    return every.groupBy(*keys).agg(*[f.sum(name).alias(name) for name in _COUNTERS])


def _leaders(lake: Lake, cluster: str, period: Period) -> DataFrame:
    """The states of partitions that began in the period, with the leader before."""
    order = Window.partitionBy(*PARTITIONS.key_names).orderBy("valid_from_offset")
    rows = lake.read(PARTITIONS.name, cluster).where(period.overlaps())
    first = f.col("replicas")[0]
    before, leader = f.col("before"), f.col("leader")
    # The recovery state does not tell a second unclean election during a recovery.
    recovers = (f.col("leader_recovery_state") == 1) & (f.col("recovery_before") == 0)
    was_in_sync = f.array_contains("isr_before", leader) | f.array_contains("elr_before", leader)
    kind = (
        f.when(leader == -1, "none")
        .when(before == leader, "again")
        .when(recovers | ~was_in_sync, "unclean")
        .when(leader == first, "preferred")
        .otherwise("other")
    )
    return (
        rows.withColumns(
            {
                "before": f.lag("leader").over(order),
                "recovery_before": f.lag("leader_recovery_state").over(order),
                "isr_before": f.lag("isr").over(order),
                "elr_before": f.lag("elr").over(order),
                "elected": f.col("leader_epoch") != f.lag("leader_epoch").over(order),
            }
        )
        .where(period.has("valid_from_offset"))
        .withColumns({"offset": f.col("valid_from_offset"), "time": f.col("valid_from_time"), "kind": kind})
    )


def _one(rows: DataFrame, broker: str, counter: str) -> DataFrame:
    return rows.select(
        "time",
        f.col(broker).alias("broker_id"),
        *[f.lit(int(name == counter)).alias(name) for name in _COUNTERS],
    )
