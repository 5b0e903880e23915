"""Reads records from the brokers with Spark's Kafka connector, and appends them to the tables of a lake.

Each topic has a table in `topic_records`. Records whose values do not decode are in `topic_poison`,
those of all topics. A commit carries the number of the batch, as the version of Delta's transaction
with an application id for each topic id, so that a batch is applied once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, DataFrameWriter, Observation, SparkSession
from pyspark.sql import functions as f

from quorate.pipeline.tables.lake import Lake, literal
from quorate.pipeline.topics.formats import DECODED, REASON, Format
from quorate.pipeline.topics.positions import APPLICATION, POSITIONS, Position
from quorate.pipeline.topics.schemas import widened_columns

RECORDS: Final = "topic_records"
POISON: Final = "topic_poison"

POLL_TIMEOUT_MS: Final = 60_000
"""How long a task waits for records of a broker that does not answer."""

_ATTEMPTS: Final = 100
"""How often a look for what a query has counted is repeated. Each takes at most 100 ms."""

_FETCHING: Final = {
    "kafka.max.poll.records": "100000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
}
"""The connector asks for the first and the last offset of a partition after each poll, which has
500 records by default. The bytes of a fetch then limit a poll."""

_SKIPPING: Final = {
    RECORDS: "cluster,topic_id,partition,offset,timestamp",
    POISON: "cluster,topic,topic_id,partition,offset,timestamp",
}
"""The columns of which Delta keeps the bounds in each file. Those of keys and values would be long texts."""


def records_table(topic: str) -> str:
    """The table of a topic's records."""
    return f"{RECORDS}/{topic}"


def tables_of_topics(lake: Lake) -> list[str]:
    """The tables of all topics in a lake, and those about them."""
    jvm = lake.spark._jvm
    assert jvm is not None
    folder = jvm.org.apache.hadoop.fs.Path(lake.path(RECORDS))
    system = folder.getFileSystem(lake.spark._jsparkSession.sessionState().newHadoopConf())
    listed = system.listStatus(folder) if system.exists(folder) else []
    topics = [entry.getPath().getName() for entry in listed if entry.isDirectory()]
    return [*map(records_table, sorted(topics)), POISON, POSITIONS]


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
            with self._lake.committing(table):
                # Readers older than Delta 3.2 do not know tables with this feature.
                self._alter(path, "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
                for column, kind in widened.items():
                    name = ".".join([f"`{part}`" for part in column.split(".")])
                    self._alter(path, f"ALTER COLUMN {name} TYPE {kind.simpleString()}")

    def _alter(self, path: str, change: str) -> None:
        self._lake.spark.sql(f"ALTER TABLE delta.`{path}` {change}")

    def has(self, position: Position) -> bool:
        """Whether the tables have the planned batch."""
        return self._appended(POISON if self._format.has_poison else records_table(position.topic), position)

    def apply(self, position: Position) -> None:
        """Appends the planned batch to the tables that do not have it, the poison last.

        The records are read once, unless some are poison. A run that ends in between may be
        continued with another schema. A record is poison then if the table of records does not have
        it.
        """
        table = records_table(position.topic)
        rows, found = self._rows(position), Observation()
        if not self._format.has_poison:
            if not self._appended(table, position):
                self._append(table, position, self._records(position, rows))
            return
        is_new = not self._appended(table, position)
        if is_new:
            counted = rows.observe(found, f.count("*"), f.count(REASON))
            self._append(table, position, self._records(position, counted))
        has_none = is_new and _has_poison(found) is False
        poison = rows.limit(0) if has_none else self._without_those_of(table, position, rows)
        columns = self._columns(position, f.col("value"))
        topic = f.lit(position.topic).alias("topic")
        self._append(POISON, position, poison.select(*columns[:1], topic, *columns[1:], REASON))

    def _rows(self, position: Position) -> DataFrame:
        """The records of a batch, with their decoded value and the reason why there is none."""
        return self._format.decode(read_records(self._lake.spark, position, self._options))

    def _records(self, position: Position, rows: DataFrame) -> DataFrame:
        """The rows of a batch for the table of records."""
        return rows.where(f.col(REASON).isNull()).select(*self._columns(position, f.col(DECODED)))

    def _appended(self, table: str, position: Position) -> bool:
        return self._lake.version(table, self._application(position)) >= position.batch

    def _without_those_of(self, table: str, position: Position, rows: DataFrame) -> DataFrame:
        """The rows of a batch that a table does not have, with a reason."""
        present = self._lake.spark.read.format("delta").load(self._lake.path(table))
        present = present.where(self._where(position)).select("partition", "offset")
        reason = f.coalesce(f.col(REASON), f.lit("not of the schema with which its batch was read"))
        return rows.join(present, ["partition", "offset"], "left_anti").withColumn(REASON, reason)

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
        """Removes what the tables have of the planned batch, and keeps another run from appending
        it later."""
        records = records_table(position.topic)
        for table in (POISON, records):
            path = self._lake.path(table)
            if self._lake.exists(table):
                rows = self._lake.spark.read.format("delta").load(path)
            elif table == records:
                # Another run may be about to create the table.
                rows = self._records(position, self._rows(position))
            else:
                continue
            self._append(table, position, rows.limit(0))
            with self._lake.committing(table):
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
        with self._lake.committing(table):
            writer.save(self._lake.path(table))


def _has_poison(found: Observation) -> bool | None:
    """Whether some of the rows that were appended have a reason.

    None if this is not known, because Delta has skipped the commit: another run has appended the
    batch, with a schema that is not known either.
    """
    assert found._jo is not None
    for _ in range(_ATTEMPTS):
        observed = found._jo.getRowOrEmpty()
        if observed.isDefined():
            rows, reasons = [observed.get().getLong(place) for place in (0, 1)]
            return reasons > 0 if rows else None
    return None


def read_records(spark: SparkSession, position: Position, options: Mapping[str, str]) -> DataFrame:
    """The records of a planned batch, in the columns of the connector."""
    ranges = position.ranges
    offsets = [json.dumps({position.topic: {str(p): r[side] for p, r in ranges.items()}}) for side in (0, 1)]
    reader = spark.read.format("kafka").options(**options)
    reader = reader.option("assign", json.dumps({position.topic: list(ranges)}))
    reader = reader.option("startingOffsets", offsets[0]).option("endingOffsets", offsets[1])
    return reader.option("minPartitions", spark.sparkContext.defaultParallelism).load()
