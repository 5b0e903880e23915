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
from quorate.pipeline.topics.schemas import widened_columns

RECORDS: Final = "topic_records"
POISON: Final = "topic_poison"

POLL_TIMEOUT_MS: Final = 60_000
"""How long a task waits for records of a broker that does not answer."""

_FETCHING: Final = {
    "kafka.max.poll.records": "100000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
}
"""The connector asks for the first and the last offset of a partition after each poll, which has 500 records by
default. The bytes of a fetch then limit a poll."""

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
        self._has_poison = values.decode(f.col("value")).reason is not None
        self._options = {
            "kafkaConsumer.pollTimeoutMs": str(POLL_TIMEOUT_MS),
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
            **_FETCHING,
            **{f"kafka.{name}": value for name, value in properties.items()},
            "kafka.bootstrap.servers": servers,
        }

    def prepare(self, topic: str) -> None:
        """Gives the table of a topic the types of the values. Raises LakeError if it has others."""
        table = records_table(topic)
        if not self._lake.exists(table):
            return
        path = self._lake.path(table)
        present = self._lake.spark.read.format("delta").load(path).schema
        widened = widened_columns(path, present["value"].dataType, self._kind)
        if widened:
            with conflicts():
                # Readers older than Delta 3.2 do not know tables with this feature.
                self._alter(path, "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
                for column, kind in widened.items():
                    name = ".".join([f"`{part}`" for part in column.split(".")])
                    self._alter(path, f"ALTER COLUMN {name} TYPE {kind.simpleString()}")

    def _alter(self, path: str, change: str) -> None:
        self._lake.spark.sql(f"ALTER TABLE delta.`{path}` {change}")

    def has(self, position: Position) -> bool:
        """Whether the tables have the planned batch."""
        return self._appended(POISON if self._has_poison else records_table(position.topic), position)

    def apply(self, position: Position) -> None:
        """Appends the planned batch to the tables that do not have it, the poison last.

        A run that ends in between may be continued with another schema. A record is poison then if the table of
        records does not have it.
        """
        table = records_table(position.topic)
        if not self._appended(table, position):
            self._append(table, position, self._records(position))
            poison = self._rows(position).where(f.col("reason").isNotNull())
        else:
            poison = self._without_those_of(table, position, self._rows(position))
        if self._has_poison:
            columns = self._columns(position, f.col("value"))
            topic = f.lit(position.topic).alias("topic")
            self._append(POISON, position, poison.select(*columns[:1], topic, *columns[1:], "reason"))

    def _rows(self, position: Position) -> DataFrame:
        """The records of a batch, with the reason why a value does not decode."""
        rows = read_records(self._lake.spark, position, self._options)
        reason = self._format.decode(f.col("value")).reason
        return rows.withColumn("reason", f.lit(None).cast("string") if reason is None else reason)

    def _records(self, position: Position) -> DataFrame:
        """The rows of a batch for the table of records."""
        value = self._format.decode(f.col("value")).value
        return self._rows(position).where(f.col("reason").isNull()).select(*self._columns(position, value))

    def _appended(self, table: str, position: Position) -> bool:
        return self._lake.version(table, self._application(position)) >= position.batch

    def _without_those_of(self, table: str, position: Position, rows: DataFrame) -> DataFrame:
        """The rows of a batch that a table does not have, with a reason."""
        present = self._lake.spark.read.format("delta").load(self._lake.path(table))
        present = present.where(self._where(position)).select("partition", "offset")
        reason = f.coalesce(f.col("reason"), f.lit("not of the schema with which its batch was read"))
        return rows.join(present, ["partition", "offset"], "left_anti").withColumn("reason", reason)

    def _where(self, position: Position) -> str:
        """The condition of a batch's rows."""
        ranges = [
            f"(partition = {partition} AND offset >= {start} AND offset < {end})"
            for partition, (start, end) in position.ranges.items()
        ]
        return (
            f"cluster = '{literal(self._cluster)}' AND topic_id = '{position.topic_id}' AND "
            f"({' OR '.join(ranges)})"
        )

    def take_back(self, position: Position) -> None:
        """Removes what the tables have of the planned batch, and keeps another run from appending it later."""
        records = records_table(position.topic)
        for table in (POISON, records):
            path = self._lake.path(table)
            if self._lake.exists(table):
                rows = self._lake.spark.read.format("delta").load(path)
            elif table == records:
                # Another run may be about to create the table.
                rows = self._records(position)
            else:
                continue
            self._append(table, position, rows.limit(0))
            with conflicts():
                self._lake.spark.sql(f"DELETE FROM delta.`{path}` WHERE {self._where(position)}")

    def _application(self, position: Position) -> str:
        """Delta's application id of a topic."""
        return f"{APPLICATION}/{self._cluster}/{position.topic_id}"

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
        writer = writer.option("txnAppId", self._application(position))
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
