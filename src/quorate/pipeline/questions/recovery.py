"""How long did the cluster need to recover after each failure of a broker?"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from quorate.pipeline.questions.availability import ACTIVE, broker_rows, racks
from quorate.pipeline.questions.moments import Period
from quorate.pipeline.questions.replication import degraded_rows
from quorate.pipeline.questions.spans import seconds, spans
from quorate.pipeline.tables.declaration import Column
from quorate.pipeline.tables.lake import Lake

COLUMNS: Final = (
    Column("broker_id", "int", "the broker"),
    Column("rack", "string", "its rack"),
    Column(
        "kind",
        "string",
        "`fenced`: it sent no heartbeat. `restarted`: a new process was registered before it was fenced. "
        "`controlled shutdown`: it announced its end",
    ),
    Column("offset", "bigint", "the offset of the record with which it ceased to be active"),
    Column("time", "timestamp", "its time"),
    Column("returned_time", "timestamp", "when it was active again, or null"),
    Column(
        "recovered_time",
        "timestamp",
        "when all of its partitions had a leader and all their in-sync replicas again, or null",
    ),
    Column("away_s", "double", "how long it was not active, in seconds"),
    Column("recovery_s", "double", "how long the recovery took, in seconds"),
    Column("partitions", "bigint", "how many partitions lacked it"),
    Column("offline", "bigint", "how many of them had no leader for some time"),
)


def recovery(lake: Lake, cluster: str, period: Period) -> DataFrame:
    """The failures and shutdowns of brokers that began in a period, as they were known at its end. A failure
    that begins while partitions lack other replicas ends when these have returned, too."""
    away = _away(lake, cluster, period)
    lacking = spans(
        degraded_rows(lake, cluster, period),
        ["topic_id", "partition"],
        more=[
            f.array_distinct(f.flatten(f.collect_list("missing"))).alias("missing"),
            f.max("offline").alias("was_offline"),
        ],
    )
    lacking = lacking.select(
        f.explode("missing").alias("of"),
        "was_offline",
        f.col("from_offset").alias("since"),
        f.when(~period.ends_later("to_offset"), f.col("to_offset")).alias("until"),
        f.col("to_time").alias("until_time"),
    )
    # The records that shrink the ISR may be before the one that fences the broker.
    meanwhile = (
        (f.col("of") == f.col("broker_id"))
        & (f.col("returned").isNull() | (f.col("since") <= f.col("returned")))
        & (f.col("until").isNull() | (f.col("until") > f.col("offset")))
    )
    keys = ["broker_id", "kind", "offset", "time", "returned", "returned_time"]
    found = (
        away.join(lacking, meanwhile, "left")
        .groupBy(*keys)
        .agg(
            f.count("of").alias("partitions"),
            f.count_if("was_offline").alias("offline"),
            f.count_if(f.col("of").isNotNull() & f.col("until").isNull()).alias("open"),
            f.max("until_time").alias("last"),
        )
    )
    recovered = f.when(f.col("partitions") == 0, f.col("returned_time")).when(
        f.col("open") == 0, f.col("last")
    )
    found = found.withColumn("recovered_time", recovered)
    found = found.withColumns(
        {
            "away_s": seconds(f.col("time"), f.coalesce("returned_time", f.lit(period.end))),
            "recovery_s": f.when(
                f.col("recovered_time").isNotNull(), seconds(f.col("time"), f.col("recovered_time"))
            ),
        }
    )
    found = found.join(racks(lake, cluster), "broker_id", "left")
    return found.select(*[column.name for column in COLUMNS])


def _away(lake: Lake, cluster: str, period: Period) -> DataFrame:
    """The times at which a broker was not active, after it had been active."""
    rows = broker_rows(lake, cluster, period).withColumn("active", f.col("state") == ACTIVE)
    kind = f.when(f.col("from_record") == "REGISTER_BROKER_RECORD", "restarted").otherwise(f.col("state"))
    order = Window.partitionBy("broker_id").orderBy("from_offset")
    found = spans(
        rows, ["broker_id"], ["active"], [f.min_by(kind, "valid_from_offset").alias("kind")]
    ).withColumns(
        {
            "followed": f.lag("to_offset").over(order).eqNullSafe(f.col("from_offset")),
            "returns": f.lead("from_offset").over(order).eqNullSafe(f.col("to_offset"))
            & ~period.ends_later("to_offset"),
        }
    )
    found = found.where(~f.col("active") & f.col("followed") & period.has("from_offset"))
    return found.select(
        "broker_id",
        "kind",
        f.col("from_offset").alias("offset"),
        f.col("from_time").alias("time"),
        f.when(f.col("returns"), f.col("to_offset")).alias("returned"),
        f.when(f.col("returns"), f.col("to_time")).alias("returned_time"),
    )
