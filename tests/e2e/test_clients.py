"""Unmodified clients against a real node: each codec, acks, idempotence, a restart in between, and
everything read back."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from quorate.testing import ClusterFactory, KafkaCluster
from tests.support.ledger import CODECS, QUIET, Ledger, admin_client, read_partition


@pytest.fixture
def servers(kafka_cluster: KafkaCluster) -> str:
    return kafka_cluster.bootstrap_servers


def create(servers: str, *names: str, partitions: int = 1, **config: str) -> Ledger:
    ledger, admin = Ledger(), admin_client(servers)
    for name in names:
        ledger.create(admin, name, partitions, **config)
    return ledger


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_back_what_it_wrote(servers: str, codec: str, acks: str) -> None:
    topic = f"rd-{codec}-{acks}"
    create(servers, topic)
    sent = [f"{codec}-{i}".encode() * 10 for i in range(500)]
    producer = Producer(
        {"bootstrap.servers": servers, "compression.type": codec, "acks": acks, "linger.ms": 5, **QUIET}
    )
    for value in sent:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    assert read_partition(servers, topic, 0) == sent


@pytest.mark.parametrize("codec", CODECS)
def test_the_compression_type_of_the_topic_takes_precedence(servers: str, codec: str) -> None:
    topic = f"recompressed-{codec}"
    ledger = create(servers, topic, **{"compression.type": "zstd"})
    ledger.produce(servers, topic, 100, "r", codec)
    assert read_partition(servers, topic, 0) == ledger.records[topic, 0]


def test_an_idempotent_producer(servers: str) -> None:
    topic = "idempotent"
    ledger = create(servers, topic, partitions=3)
    ledger.produce(servers, topic, 600, "i", "lz4", **{"enable.idempotence": True})
    for partition in range(3):
        assert read_partition(servers, topic, partition) == ledger.records[topic, partition]


def test_headers_keys_timestamps_and_tombstones_are_read_back(servers: str) -> None:
    topic = "parts"
    create(servers, topic)
    producer = Producer({"bootstrap.servers": servers, **QUIET})
    producer.produce(topic, None, key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_123)
    producer.produce(topic, b"", key=None)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "parts", **QUIET})
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


def test_aiokafka_with_each_codec(servers: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def body() -> None:
        for codec in (None, "gzip", "snappy", "lz4", "zstd"):
            topic = f"aio-{codec}"
            producer = AIOKafkaProducer(
                bootstrap_servers=servers, compression_type=codec, enable_idempotence=True
            )
            await producer.start()
            sent = [f"{codec}-{i}".encode() * 20 for i in range(200)]
            for value in sent:
                await producer.send(topic, value)  # the topic is created automatically
            await producer.stop()
            consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
            await consumer.start()
            got = [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in sent]
            await consumer.stop()
            assert got == sent, codec

    asyncio.run(body())


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_kafka_python(servers: str, codec: str | None) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    topic = f"kp-{codec}"
    producer = KafkaProducer(bootstrap_servers=servers, compression_type=codec, acks="all")
    sent = [f"{codec}-{i}".encode() * 20 for i in range(200)]
    for future in [producer.send(topic, value) for value in sent]:
        future.get(20)
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=3000
    )
    got = []
    for record in consumer:
        got.append(record.value)
        if len(got) == len(sent):
            break
    consumer.close()
    assert got == sent


def test_a_consumer_waits_for_data_and_gets_it_at_once(servers: str) -> None:
    topic = "waits"
    create(servers, topic)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "w", "fetch.wait.max.ms": 20_000, **QUIET})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(0.5) is None  # its Fetch waits at the broker by now
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, **QUIET})
    producer.produce(topic, b"news")
    assert producer.flush(20) == 0
    message = consumer.poll(5)  # far less than the wait that the consumer asked for
    consumer.close()
    assert message is not None
    assert message.value() == b"news"


def test_offsets_by_time_and_watermarks(servers: str) -> None:
    topic = "times"
    create(servers, topic)
    producer = Producer({"bootstrap.servers": servers, **QUIET})
    for i in range(10):
        producer.produce(topic, b"%d" % i, timestamp=1_000_000 + i * 1000)
        producer.flush(20)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "t", **QUIET})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20) == (0, 10)
    asked = [TopicPartition(topic, 0, at) for at in (1_003_500,)]
    (found,) = consumer.offsets_for_times(asked, timeout=20)
    assert found.offset == 4
    consumer.close()


def test_records_can_be_deleted(servers: str) -> None:
    topic = "deleted"
    ledger = create(servers, topic)
    ledger.produce(servers, topic, 20, "d")
    admin = admin_client(servers)  # kept: its futures end with it
    (result,) = admin.delete_records([TopicPartition(topic, 0, 15)]).values()
    assert result.result(20).low_watermark == 15
    assert read_partition(servers, topic, 0) == ledger.records[topic, 0][15:]


def test_everything_survives_a_restart(kafka_cluster_factory: ClusterFactory) -> None:
    cluster = kafka_cluster_factory()
    servers = cluster.bootstrap_servers
    admin = admin_client(servers)
    ledger = Ledger()
    ledger.create(admin, "kept", 4)
    for codec in CODECS:
        ledger.produce(servers, "kept", 200, "before", codec)
    cluster.stop(1)
    cluster.start(1)
    ledger.verify(admin, servers)
    for codec in CODECS:
        ledger.produce(servers, "kept", 200, "after", codec)
    cluster.kill(1)
    cluster.start(1)
    ledger.verify(admin, servers)
