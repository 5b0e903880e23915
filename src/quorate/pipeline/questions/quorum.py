"""Which controllers were active one after the other, and who were the voters?"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from quorate.pipeline.questions.moments import Period
from quorate.pipeline.questions.spans import seconds
from quorate.pipeline.tables.declaration import Column
from quorate.pipeline.tables.events import EVENTS
from quorate.pipeline.tables.lake import Lake

FAILOVERS: Final = (
    Column("offset", "bigint", "the offset of the LeaderChange record"),
    Column("time", "timestamp", "its time"),
    Column("epoch", "int", "the epoch of the quorum"),
    Column("controller_id", "int", "the controller that was elected"),
    Column("before", "int", "the active controller before; null if the lake does not have it"),
    Column("led_s", "double", "how long it was the active controller, until the next election"),
    Column(
        "silent_s",
        "double",
        "the seconds without a record before it: an active controller writes at least every "
        "metadata.max.idle.interval.ms",
    ),
    Column("voters", "array<int>", "the voters at that time"),
    Column("granting_voters", "array<int>", "the voters that voted for it"),
)

VOTERS: Final = (
    Column("offset", "bigint", "the offset of the record with the new voters"),
    Column("time", "timestamp", "its time"),
    Column("epoch", "int", "the epoch of the quorum"),
    Column("record", "string", "KRAFT_VOTERS; LEADER_CHANGE if the voters are static"),
    Column("voters", "array<string>", "the voters: node id, and directory id unless they are static"),
    Column("added", "array<string>", "those that were not voters before"),
    Column("removed", "array<string>", "those that are not voters any more"),
)

_CHANGE: Final = "LEADER_CHANGE"
_VOTERS: Final = "KRAFT_VOTERS"


def failovers(lake: Lake, cluster: str, period: Period) -> DataFrame:
    """The elections of an active controller in a period."""
    order = Window.orderBy("offset")
    log = lake.read(EVENTS, cluster).where(f.col("snapshot").isNull() & (f.col("offset") <= period.last))
    ends = log.groupBy("epoch").agg(f.max("timestamp").alias("last_time"))
    found = log.where(f.col("type") == _CHANGE).select(
        "offset",
        f.col("timestamp").alias("time"),
        "epoch",
        f.col("leader_change.leader_id").alias("controller_id"),
        f.array_sort("leader_change.voters.voter_id").alias("voters"),
        f.array_sort("leader_change.granting_voters.voter_id").alias("granting_voters"),
    )
    found = found.join(ends, "epoch", "left").withColumns(
        {
            "before": f.lag("controller_id").over(order),
            "led_s": seconds(f.col("time"), f.coalesce(f.lead("time").over(order), f.lit(period.end))),
            "silent_s": seconds(f.lag("last_time").over(order), f.col("time")),
        }
    )
    return found.where(period.has("offset")).select(*[column.name for column in FAILOVERS])


def voters_history(lake: Lake, cluster: str, period: Period) -> DataFrame:
    """The sets of voters that were valid in a period. If the voters are static, the elections show them."""
    events = lake.read(EVENTS, cluster).where(f.col("offset") <= period.last)
    dynamic = not events.where(f.col("type") == _VOTERS).isEmpty()
    each = (
        f.transform(
            "kraft_voters.voters",
            lambda v: f.concat(v["voter_id"].cast("string"), f.lit(":"), v["voter_directory_id"]),
        )
        if dynamic
        else f.transform("leader_change.voters", lambda v: v["voter_id"].cast("string"))
    )
    order = Window.orderBy("offset", "position")
    rows = events.where(f.col("type") == (_VOTERS if dynamic else _CHANGE)).select(
        "offset",
        "position",
        f.col("timestamp").alias("time"),
        "epoch",
        f.col("type").alias("record"),
        f.array_sort(each).alias("voters"),
    )
    none = f.array().cast("array<string>")
    rows = rows.withColumn("before", f.coalesce(f.lag("voters").over(order), none))
    rows = rows.where(f.col("voters") != f.col("before")).withColumns(
        {
            "until": f.lead("offset").over(order),
            "added": f.array_except("voters", "before"),
            "removed": f.array_except("before", "voters"),
        }
    )
    rows = rows.where(f.col("until").isNull() | (f.col("until") > period.first))
    return rows.select(*[column.name for column in VOTERS])
