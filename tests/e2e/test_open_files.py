"""A broker that may open fewer files than it has partitions."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.support.cluster import Node, running

PARTITIONS = 800
OPEN_FILES = 512


def test_one_consumer_reads_more_partitions_than_the_broker_may_open_files(tmp_path: Path) -> None:
    """Its Fetch names all partitions, and the records of each are in a file of their own."""
    with running(Node(tmp_path / "node"), open_files=OPEN_FILES) as node:
        admin = node.admin()
        (created,) = admin.create_topics([NewTopic("t", PARTITIONS, 1)]).values()
        created.result(60)
        failed: list[object] = []
        producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 20})
        for i in range(PARTITIONS):
            producer.produce(
                "t", b"%d" % i * 700, partition=i, on_delivery=lambda error, _: error and failed.append(error)
            )
        assert producer.flush(60) == 0 and not failed
        consumer = Consumer(
            {"bootstrap.servers": node.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.assign([TopicPartition("t", i, 0) for i in range(PARTITIONS)])
        found: dict[int, bytes] = {}
        while len(found) < PARTITIONS:
            messages = consumer.consume(PARTITIONS, 20)
            assert messages, f"{len(found)} of {PARTITIONS} records\n{node.log_tail()}"
            for message in messages:
                assert message.error() is None, message.error()
                found[message.partition()] = message.value()
        consumer.close()
        assert found == {i: b"%d" % i * 700 for i in range(PARTITIONS)}
        assert node.stop() == 0
