"""Spark's own Kafka connector on a running cluster: batches, streams, restarts and leaders that move."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic
from quorate.pipeline.spark.connector import FAILOVER
from quorate.testing import KafkaCluster
from tests.support.cluster import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

_names = (f"topic-{number}" for number in itertools.count())


@pytest.fixture
def admin(brokers: KafkaCluster) -> Iterator[AdminClient]:
    with AdminClient(brokers.bootstrap_servers) as found:
        yield found


def new_topic(admin: AdminClient, **options: Any) -> str:
    name = next(_names)
    assert admin.create_topics([NewTopic(name, **options)]) == {name: None}
    return name


def write(spark: SparkSession, brokers: KafkaCluster, topic: str, numbers: range) -> None:
    """Writes a record for each number, with key, value and header."""
    rows = spark.range(numbers.start, numbers.stop).selectExpr(
        "cast(id % 3 AS string) AS key",
        "concat('value-', id) AS value",
        "array(named_struct('key', 'number', 'value', cast(string(id) AS binary))) AS headers",
    )
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", brokers.bootstrap_servers)
    writer.option("includeHeaders", "true").option("topic", topic).save()


def read(spark: SparkSession, brokers: KafkaCluster, topic: str) -> list[tuple[Any, ...]]:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", brokers.bootstrap_servers)
    rows = reader.option("includeHeaders", "true").option("subscribe", topic).load().collect()
    return sorted(
        [
            (
                row["partition"], row["offset"], bytes(row["key"]).decode(), bytes(row["value"]).decode(),
                [(each["key"], bytes(each["value"]).decode()) for each in row["headers"] or ()],
            )
            for row in rows
        ]
    )  # fmt: skip


def values(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted([row[3] for row in rows])


def numbered(*numbers: range) -> list[str]:
    return sorted([f"value-{number}" for number in itertools.chain(*numbers)])


def test_a_batch_that_spark_wrote_is_read_with_keys_and_headers(
    spark: SparkSession, brokers: KafkaCluster, admin: AdminClient
) -> None:
    topic = new_topic(admin, partitions=3, replication_factor=2)
    write(spark, brokers, topic, range(60))
    rows = read(spark, brokers, topic)
    assert values(rows) == numbered(range(60))
    assert {row[3]: (row[2], row[4]) for row in rows} == {
        f"value-{n}": (str(n % 3), [("number", str(n))]) for n in range(60)
    }
    for partition in range(3):
        offsets = [row[1] for row in rows if row[0] == partition]
        assert offsets == list(range(len(offsets)))


def test_a_stream_continues_from_its_checkpoint_across_a_move_of_the_leader_and_restarts(
    spark: SparkSession, brokers: KafkaCluster, admin: AdminClient, tmp_path: Path
) -> None:
    source = new_topic(admin, assignment={0: [2, 1], 1: [2, 1]})
    target = new_topic(admin, assignment={0: [1, 2]})

    def copy() -> None:
        """Copies what is new from one topic to the other."""
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers.bootstrap_servers)
        stream = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
        writer = stream.select("key", "value").writeStream.format("kafka").option("topic", target)
        writer = writer.option("kafka.bootstrap.servers", brokers.bootstrap_servers)
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        assert query.exception() is None

    def leaders() -> set[int]:
        return set(admin.leaders([source]).values())

    write(spark, brokers, source, range(20))
    copy()
    assert leaders() == {2}
    brokers.kill(2)
    wait_for("leaders on node 1", lambda: leaders() == {1})
    write(spark, brokers, source, range(20, 40))
    copy()
    brokers.start(2)
    write(spark, brokers, source, range(40, 50))
    brokers.stop(1)
    brokers.start(1)
    copy()
    assert values(read(spark, brokers, target)) == numbered(range(50))


def test_a_running_stream_follows_a_leader_that_was_killed(
    spark: SparkSession, brokers: KafkaCluster, admin: AdminClient, tmp_path: Path
) -> None:
    topic = new_topic(admin, assignment={0: [2, 1], 1: [2, 1]})
    wait_for(
        "both replicas",
        lambda: all(len(p.isr) == 2 for p in admin.describe_topics([topic])[topic].partitions),
    )
    found: list[str] = []

    def collect(rows: DataFrame, _: int) -> None:
        found.extend([bytes(row["value"]).decode() for row in rows.select("value").collect()])

    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers.bootstrap_servers)
    reader = reader.options(**FAILOVER).option("subscribe", topic).option("startingOffsets", "earliest")
    writer = reader.load().writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path))
    query = writer.start()
    try:
        write(spark, brokers, topic, range(20))
        wait_for("the first records", lambda: len(found) >= 20, 100)
        brokers.kill(2)  # the query asks for offsets without a pause, and so also before node 1 leads
        write(spark, brokers, topic, range(20, 40))
        wait_for("the records from the other leader", lambda: len(found) >= 40 or not query.isActive, 45)
        assert query.exception() is None
        assert sorted(found) == numbered(range(40))
    finally:
        query.stop()
        brokers.start(2)
