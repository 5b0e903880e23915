"""Spark's Kafka connector and its Avro functions for a session: their jars and settings.

The connector reads and writes the topics of Kafka's brokers and of these brokers alike:

    spark = local_session("NAME", lake=True, topics=True)
    spark.read.format("kafka").option("kafka.bootstrap.servers", ...).option("subscribe", "orders").load()
"""

from __future__ import annotations

from typing import Final

from quorate.pipeline.spark.jars import Jars

VERSION: Final = "4.1.1"
"""The newest release of Spark 4.1 of which Maven has all of these jars. It runs in every 4.1."""

JARS_VARIABLE: Final = "QUORATE_SPARK_KAFKA_JARS"
"""A directory with these jars and those of Kafka's client."""

_NAMES: Final = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "spark-avro_2.13")

CONNECTOR: Final = Jars(
    JARS_VARIABLE,
    tuple([f"org.apache.spark:{name}:{VERSION}" for name in _NAMES]),
    tuple([f"{name}-{VERSION}" for name in _NAMES]),
)

LARGEST_FIELD: Final = 64 << 20
"""The most bytes of a field, and the most items of a list, that Avro allocates for what a record announces. A
damaged record would otherwise end the executor with an OutOfMemoryError."""

JAVA_OPTIONS: Final = " ".join(
    [
        f"-Dorg.apache.avro.limits.{limit}={LARGEST_FIELD}"
        for limit in ("bytes.maxLength", "string.maxLength", "collectionItems.maxLength")
    ]
)
"""Options of the Java processes that decode Avro."""
