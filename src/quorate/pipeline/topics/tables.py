"""Reads records from the brokers with Spark's Kafka connector, and appends them to the tables of a lake.

Each topic has a table in `topic_records`. Records whose values do not decode are in `topic_poison`, those of all
topics. A commit carries the number of the batch, as the version of Delta's transaction with an application id for
each topic id, so that a batch is applied once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as f

from quorate.pipeline.tables.lake import Lake, conflicts, literal
from quorate.pipeline.topics.formats import Format
from quorate.pipeline.topics.positions import APPLICATION, Position
from quorate.pipeline.topics.schemas import require_compatible

RECORDS: Final = "topic_records"
POISON: Final = "topic_poison"

POLL_TIMEOUT_MS: Final = 60_000
"""How long a task waits for records of a broker that does not answer."""

_SKIPPING: Final = {
    RECORDS: "cluster,topic_id,partition,offset,timestamp",
    POISON: "cluster,topic,topic_id,partition,offset,timestamp",
}
"""The columns of which Delta keeps the bounds in each file. Those of keys and values would be long texts."""


def records_table(topic: str) -> str:
    """The table of a topic's records."""
    return f"{RECORDS}/{topic}"


class TopicTables:
    """The tables of one cluster's topics."""

    def __init__(
        self, lake: Lake, cluster: str, servers: str, properties: Mapping[str, str], values: Format
    ) -> None:
        self._lake = lake
        self._cluster = cluster
        self._format = values
        self._kind = values.kind(lake.spark)
        self._options = {
            "kafkaConsumer.pollTimeoutMs": str(POLL_TIMEOUT_MS),
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
            **{f"kafka.{name}": value for name, value in properties.items()},
            "kafka.bootstrap.servers": servers,
        }

    def require_compatible(self, topic: str) -> None:
        """Raises LakeError if the table of a topic has other columns."""
        table = records_table(topic)
        if self._lake.exists(table):
            present = self._lake.spark.read.format("delta").load(self._lake.path(table)).schema
            require_compatible(self._lake.path(table), present["value"].dataType, self._kind)

    def apply(self, position: Position) -> None:
        """Appends the planned batch to the tables that do not have it. The poison is appended first, so that
        the table of records tells whether the batch is complete."""
        rows = read_records(self._lake.spark, position, self._options)
        decoded = self._format.decode(f.col("value"))
        if decoded.reason is not None:
            poison = rows.withColumn("reason", decoded.reason).where(f.col("reason").isNotNull())
            columns = self._columns(position, f.col("value"))
            self._append(
                POISON,
                position,
                poison.select(*columns[:1], f.lit(position.topic).alias("topic"), *columns[1:], "reason"),
            )
            rows = rows.where(decoded.reason.isNull())
        self._append(
            records_table(position.topic), position, rows.select(*self._columns(position, decoded.value))
        )

    def take_back(self, position: Position) -> None:
        """Removes what the tables have of the planned batch, and keeps another run from appending it later."""
        ranges = " OR ".join(
            [f"(partition = {p} AND offset >= {start})" for p, (start, _) in position.ranges.items()]
        )
        for table in (POISON, records_table(position.topic)):
            if not self._lake.exists(table):
                continue
            path = self._lake.path(table)
            self._append(table, position, self._lake.spark.read.format("delta").load(path).limit(0))
            with conflicts():
                self._lake.spark.sql(
                    f"DELETE FROM delta.`{path}` WHERE cluster = '{literal(self._cluster)}' "
                    f"AND topic_id = '{position.topic_id}' AND ({ranges})"
                )

    def _columns(self, position: Position, value: Column) -> list[Column]:
        return [
            f.lit(self._cluster).alias("cluster"),
            f.lit(position.topic_id).alias("topic_id"),
            *[f.col(name) for name in ("partition", "offset", "timestamp", "key")],
            value.alias("value"),
            f.col("headers"),
        ]

    def _append(self, table: str, position: Position, rows: DataFrame) -> None:
        writer: DataFrameWriter = rows.write.format("delta").mode("append").option("mergeSchema", "true")
        writer = writer.option("txnAppId", f"{APPLICATION}/{self._cluster}/{position.topic_id}")
        writer = writer.option("txnVersion", position.batch)
        if not self._lake.exists(table):
            kind = table.partition("/")[0]
            writer = writer.option("delta.dataSkippingStatsColumns", _SKIPPING[kind])
        with conflicts():
            writer.save(self._lake.path(table))


def read_records(spark: SparkSession, position: Position, options: Mapping[str, str]) -> DataFrame:
    """The records of a planned batch, in the columns of the connector."""
    ranges = position.ranges
    offsets = [json.dumps({position.topic: {str(p): r[side] for p, r in ranges.items()}}) for side in (0, 1)]
    reader = spark.read.format("kafka").options(**options)
    reader = reader.option("assign", json.dumps({position.topic: list(ranges)}))
    reader = reader.option("startingOffsets", offsets[0]).option("endingOffsets", offsets[1])
    return reader.option("minPartitions", spark.sparkContext.defaultParallelism).load()
