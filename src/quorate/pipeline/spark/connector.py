"""Spark's Kafka connector and its Avro functions for a session: their jars and settings.

The connector reads and writes the topics of Kafka's brokers and of these brokers alike:

    spark = local_session("NAME", lake=True, topics=True)
    spark.read.format("kafka").option("kafka.bootstrap.servers", ...).option("subscribe", "orders").load()
    spark.readStream.format("kafka").options(**FAILOVER).option("kafka.bootstrap.servers", ...) ...
"""

from __future__ import annotations

from collections.abc import Mapping
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

FAILOVER: Final[Mapping[str, str]] = {
    "kafka.default.api.timeout.ms": "15000",
    "kafka.request.timeout.ms": "10000",
}
"""Options of a stream that is to follow a leader which was killed.

Before each batch, Spark asks the leaders for their last offsets with Java's admin client. If it
asks while the metadata still names the killed broker, that client binds the request to this broker
until the API timeout, 60 s by default, though another broker leads within a second. Spark then asks
anew. The timeouts also apply to the consumers of the tasks, so they are longer than the 9 s after
which Apache Kafka fences a broker that was killed.
"""

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
