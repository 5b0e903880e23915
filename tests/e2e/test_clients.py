"""Unmodified clients against a real node: each codec, acks, idempotence, a restart in between, and everything read back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.cluster import Node, running
from tests.support.ledger import CODECS, QUIET, Ledger, read_partition


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with running(Node(tmp_path_factory.mktemp("clients"))) as started:
        yield started


def create(node: Node, *names: str, partitions: int = 1, **config: str) -> Ledger:
    ledger = Ledger()
    for name in names:
        ledger.create(node.admin(), name, partitions, **config)
    return ledger


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_back_what_it_wrote(node: Node, codec: str, acks: str) -> None:
    topic = f"rd-{codec}-{acks}"
    create(node, topic)
    sent = [f"{codec}-{i}".encode() * 10 for i in range(500)]
    producer = Producer({"bootstrap.servers": node.bootstrap, "compression.type": codec, "acks": acks, "linger.ms": 5, **QUIET})
    for value in sent:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    assert read_partition(node.bootstrap, topic, 0) == sent


@pytest.mark.parametrize("codec", CODECS)
def test_the_topics_own_compression_takes_over(node: Node, codec: str) -> None:
    topic = f"recompressed-{codec}"
    ledger = create(node, topic, **{"compression.type": "zstd"})
    ledger.produce(node.bootstrap, topic, 100, "r", codec)
    assert read_partition(node.bootstrap, topic, 0) == ledger.records[topic, 0]


def test_an_idempotent_producer(node: Node) -> None:
    topic = "idempotent"
    ledger = create(node, topic, partitions=3)
    ledger.produce(node.bootstrap, topic, 600, "i", "lz4", **{"enable.idempotence": True})
    for partition in range(3):
        assert read_partition(node.bootstrap, topic, partition) == ledger.records[topic, partition]


def test_headers_keys_timestamps_and_tombstones_come_back(node: Node) -> None:
    topic = "parts"
    create(node, topic)
    producer = Producer({"bootstrap.servers": node.bootstrap, **QUIET})
    producer.produce(topic, None, key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_123)
    producer.produce(topic, b"", key=None)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "parts", **QUIET})
    consumer.assign([TopicPartition(topic, 0, 0)])
    first, second = consumer.consume(2, 20)
    consumer.close()
    assert (first.key(), first.value(), first.headers(), first.timestamp()[1]) == (
        b"k",
        None,
        [("h", b"1"), ("h", None)],
        1_700_000_000_123,
    )
    assert (second.key(), second.value()) == (None, b"")


def test_aiokafka_with_each_codec(node: Node) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def body() -> None:
        for codec in (None, "gzip", "snappy", "lz4", "zstd"):
            topic = f"aio-{codec}"
            producer = AIOKafkaProducer(bootstrap_servers=node.bootstrap, compression_type=codec, enable_idempotence=True)
            await producer.start()
            sent = [f"{codec}-{i}".encode() * 20 for i in range(200)]
            for value in sent:
                await producer.send(topic, value)  # the topic is created automatically
            await producer.stop()
            consumer = AIOKafkaConsumer(topic, bootstrap_servers=node.bootstrap, auto_offset_reset="earliest")
            await consumer.start()
            got = [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in sent]
            await consumer.stop()
            assert got == sent, codec

    asyncio.run(body())


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_kafka_python(node: Node, codec: str | None) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    topic = f"kp-{codec}"
    producer = KafkaProducer(bootstrap_servers=node.bootstrap, compression_type=codec, acks="all")
    sent = [f"{codec}-{i}".encode() * 20 for i in range(200)]
    for future in [producer.send(topic, value) for value in sent]:
        future.get(20)
    producer.close()
    consumer = KafkaConsumer(topic, bootstrap_servers=node.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=3000)
    got = []
    for record in consumer:
        got.append(record.value)
        if len(got) == len(sent):
            break
    consumer.close()
    assert got == sent


def test_a_consumer_waits_for_data_and_gets_it_at_once(node: Node) -> None:
    topic = "waits"
    create(node, topic)
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "w", "fetch.wait.max.ms": 20_000, **QUIET})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(0.5) is None  # its Fetch waits at the broker by now
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0, **QUIET})
    producer.produce(topic, b"news")
    assert producer.flush(20) == 0
    message = consumer.poll(5)  # far less than the wait that the consumer asked for
    consumer.close()
    assert message is not None
    assert message.value() == b"news"


def test_offsets_by_time_and_watermarks(node: Node) -> None:
    topic = "times"
    create(node, topic)
    producer = Producer({"bootstrap.servers": node.bootstrap, **QUIET})
    for i in range(10):
        producer.produce(topic, b"%d" % i, timestamp=1_000_000 + i * 1000)
        producer.flush(20)
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "t", **QUIET})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20) == (0, 10)
    asked = [TopicPartition(topic, 0, at) for at in (1_003_500,)]
    (found,) = consumer.offsets_for_times(asked, timeout=20)
    assert found.offset == 4
    consumer.close()


def test_records_can_be_deleted(node: Node) -> None:
    topic = "deleted"
    ledger = create(node, topic)
    ledger.produce(node.bootstrap, topic, 20, "d")
    admin = node.admin()  # kept: its futures end with it
    (result,) = admin.delete_records([TopicPartition(topic, 0, 15)]).values()
    assert result.result(20).low_watermark == 15
    assert read_partition(node.bootstrap, topic, 0) == ledger.records[topic, 0][15:]


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    with running(Node(tmp_path / "restart")) as node:
        ledger = Ledger()
        ledger.create(node.admin(), "kept", 4)
        for codec in CODECS:
            ledger.produce(node.bootstrap, "kept", 200, "before", codec)
        assert node.stop() == 0
        node.start()
        ledger.verify(node.admin(), node.bootstrap)
        for codec in CODECS:
            ledger.produce(node.bootstrap, "kept", 200, "after", codec)
        node.kill()
        node.start()
        ledger.verify(node.admin(), node.bootstrap)
