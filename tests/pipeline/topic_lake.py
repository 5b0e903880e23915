"""Topics with records, runs that keep them in a lake, and what the lake has of them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from pyspark.sql import types as t

from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic
from quorate.pipeline.topics.brokers import Brokers
from quorate.pipeline.topics.formats import Format, RawFormat
from quorate.pipeline.topics.keep import Keeper, keep
from quorate.pipeline.topics.positions import Positions
from quorate.pipeline.topics.tables import TopicTables
from quorate.testing import KafkaCluster
from tests.support.cluster import wait_for

if TYPE_CHECKING:
    from quorate.pipeline.tables.lake import Lake

Row = dict[str, Any]

INT, LONG, TEXT = t.IntegerType(), t.LongType(), t.StringType()

_numbers = itertools.count()


def new_name(prefix: str = "orders") -> str:
    """A name that no other test has."""
    return f"{prefix}-{next(_numbers)}"


def struct(**fields: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in fields.items()])


def create(admin: AdminClient, name: str, **options: Any) -> None:
    topic = NewTopic(name, **{"partitions": 2, "replication_factor": 1, **options})
    assert admin.create_topics([topic]) == {name: None}


def recreate(admin: AdminClient, name: str) -> None:
    """Deletes a topic and creates it anew."""
    assert admin.delete_topics([name]) == {name: None}
    wait_for("the deletion", lambda: name not in [each.name for each in admin.list_topics()])
    create(admin, name)


def produce(brokers: KafkaCluster, topic: str, values: list[bytes | None], partition: int = 0) -> None:
    """Writes records with the keys k0, k1, ... and a header with the number."""
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "linger.ms": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, f"k{number}".encode(), partition, headers=[("n", str(number))])
    assert producer.flush(30) == 0


def numbers(first: int, end: int) -> list[bytes | None]:
    return [str(number).encode() for number in range(first, end)]


def run(
    lake: Lake, brokers: KafkaCluster, *topics: str, values: Format | None = None, batch_records: int = 1000
) -> list[str]:
    """Brings the tables of topics up to date, and returns what is reported."""
    said: list[str] = []
    with Brokers(brokers.bootstrap_servers, {}) as client:
        tables = TopicTables(lake, "c", client.servers, client.properties, values or RawFormat())
        positions = Positions(lake, "c")
        keeper = Keeper(
            client, positions, tables, topics.__contains__, said.append, batch_records=batch_records
        )
        keep(keeper, said.append)
    return said


def rows_of(lake: Lake, table: str, topic: str | None = None) -> list[Row]:
    if not lake.exists(table):
        return []
    rows = lake.spark.read.format("delta").load(lake.path(table))
    if topic is not None:
        rows = rows.where(rows["topic"] == topic)
    found = [row.asDict(recursive=True) for row in rows.collect()]
    return sorted(found, key=lambda row: (row["topic_id"], row["partition"], row["offset"]))


def records(lake: Lake, topic: str) -> list[tuple[int, int, Any]]:
    """Partition, offset and value of a topic's rows."""
    return [(r["partition"], r["offset"], r["value"]) for r in rows_of(lake, f"topic_records/{topic}")]


def expected(*values: list[bytes | None]) -> list[tuple[int, int, Any]]:
    """The same of these values of partitions 0, 1, ..."""
    return [(p, offset, v) for p, each in enumerate(values) for offset, v in enumerate(each)]


def poison_of(lake: Lake, topic: str) -> list[tuple[int, bytes, str]]:
    """Offset, value and reason of a topic's poison."""
    return [
        (row["offset"], bytes(row["value"]), row["reason"]) for row in rows_of(lake, "topic_poison", topic)
    ]
