"""A cluster that starts from another cluster's metadata snapshot: same topics and settings, own brokers."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from quorate.metadata.errors import MetadataError
from quorate.metadata.image import MetadataImage
from quorate.metadata.image.builder import apply_records
from quorate.metadata.image.writer import image_records
from quorate.metadata.records import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from quorate.metadata.snapshot import SnapshotId, image_from_snapshot, write_snapshot
from quorate.protocol.schema import Data
from quorate.testing import ClusterError, ClusterFactory
from quorate.testing.from_snapshot import LocalSnapshot
from tests.support.ledger import admin_client

pytestmark = pytest.mark.timeout(180)

TOPICS = 400
TOPIC, BROKER = 2, 4
NOW_MS = 1_700_000_000_000
BROKERS = (101, 102, 103)


def topic_id(number: int) -> bytes:
    return (number + 1).to_bytes(16, "big")


def production_records() -> list[Data]:
    """Three brokers and topics with three replicas each, as a snapshot of a cluster in use has them."""
    records: list[Data] = [FeatureLevelRecord(name="metadata.version", feature_level=27)]
    records += [
        RegisterBrokerRecord(
            broker_id=b, incarnation_id=topic_id(b), broker_epoch=b,
            end_points=[RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="kafka", port=9092)],
            fenced=False, log_dirs=[topic_id(1000 + b)],
        )
        for b in BROKERS
    ]  # fmt: skip
    for number in range(TOPICS):
        records.append(TopicRecord(name=f"orders-{number}", topic_id=topic_id(number)))
        records.append(
            PartitionRecord(
                partition_id=0, topic_id=topic_id(number), replicas=list(BROKERS), isr=[102, 103], leader=102,
                leader_epoch=17, partition_epoch=40, directories=[topic_id(1000 + b) for b in BROKERS],
            )
        )  # fmt: skip
    records += [
        ConfigRecord(resource_type=TOPIC, resource_name="orders-1", name="min.insync.replicas", value="2"),
        ConfigRecord(resource_type=TOPIC, resource_name="orders-1", name="retention.ms", value="86400000"),
        ConfigRecord(resource_type=BROKER, resource_name="102", name="log.cleaner.threads", value="7"),
        ClientQuotaRecord(
            entity=[ClientQuotaRecord.EntityData(entity_type="user", entity_name="alice")],
            key="producer_byte_rate",
            value=1e6,
        ),
    ]
    return records


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("production") / "00000000000000004711-0000000017.checkpoint"
    image = apply_records(MetadataImage(), production_records(), offset=4710, epoch=17, timestamp_ms=NOW_MS)
    write_snapshot(
        path, image, kraft_version=0, voters=None, last_contained_timestamp_ms=NOW_MS, now_ms=NOW_MS
    )
    return path


def test_partitions_are_placed_on_the_brokers_that_there_are(snapshot: Path) -> None:
    records = list(image_records(LocalSnapshot(snapshot, [1, 2]).image))
    assert not [r for r in records if isinstance(r, RegisterBrokerRecord)]
    partitions = [r for r in records if isinstance(r, PartitionRecord)]
    assert len(partitions) == TOPICS
    for partition in partitions:
        assert (
            sorted(partition.replicas) == [1, 2]
            and partition.isr == partition.replicas[:1]
            and partition.leader == -1
        )
    assert {p.replicas[0] for p in partitions} == {1, 2}, "the leaders are shared out"
    configs = {(r.resource_name, r.name): r.value for r in records if isinstance(r, ConfigRecord)}
    assert configs == {("orders-1", "min.insync.replicas"): "2", ("orders-1", "retention.ms"): "86400000"}
    alone = [
        r
        for r in image_records(LocalSnapshot(snapshot, [1]).image)
        if isinstance(r, ConfigRecord) and r.name == "min.insync.replicas"
    ]
    assert [r.value for r in alone] == ["1"]


def test_a_cluster_with_production_topics_can_be_used(
    kafka_cluster_factory: ClusterFactory, snapshot: Path
) -> None:
    cluster = kafka_cluster_factory(snapshot=snapshot)
    quiet = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    admin = AdminClient(quiet)
    topics = admin.list_topics(timeout=20).topics
    assert {f"orders-{n}" for n in range(TOPICS)} <= topics.keys()
    assert {p.leader for t in topics.values() for p in t.partitions.values()} == {1}
    resource = ConfigResource(ResourceType.TOPIC, "orders-1")
    entries = admin.describe_configs([resource])[resource].result(10)
    assert entries["retention.ms"].value == "86400000"
    producer = Producer({**quiet, "acks": "all"})
    producer.produce("orders-1", b"first")
    assert producer.flush(20) == 0
    consumer = Consumer({**quiet, "group.id": "g"})
    consumer.assign([TopicPartition("orders-1", 0, 0)])
    (message,) = consumer.consume(1, 20)
    consumer.close()
    assert message.value() == b"first"
    cluster.kill(1)
    cluster.start(1)
    assert f"orders-{TOPICS - 1}" in AdminClient(quiet).list_topics(timeout=20).topics


@pytest.mark.parametrize(
    ("archive", "name"), [("static", "data/__cluster_metadata-0/00000000000000000069-0000000001.checkpoint"),
                          ("dynamic", "data/__cluster_metadata-0/00000000000000000071-0000000001.checkpoint")]
)  # fmt: skip
def test_a_snapshot_of_apache_kafka_is_taken(
    kafka_cluster_factory: ClusterFactory, tmp_path: Path, archive: str, name: str
) -> None:
    with tarfile.open(Path(__file__).parent.parent / "golden" / f"kafka-4.1.1-{archive}.tar.xz") as golden:
        golden.extract(name, tmp_path, filter="data")
    original = image_from_snapshot((tmp_path / name).read_bytes(), SnapshotId(70, 1))
    wanted = set(original.topics.by_name)
    assert wanted
    cluster = kafka_cluster_factory(snapshot=tmp_path / name)
    admin = admin_client(cluster.bootstrap_servers)
    topics = admin.list_topics(timeout=20).topics
    assert wanted == topics.keys()
    for topic in sorted(wanted):
        if not topic.startswith("__"):
            producer = Producer(
                {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "acks": "all"}
            )
            producer.produce(topic, b"x", key=b"k")
            assert producer.flush(20) == 0


def test_replicas_of_several_brokers_join_the_isr(
    kafka_cluster_factory: ClusterFactory, snapshot: Path
) -> None:
    cluster = kafka_cluster_factory(controllers=1, brokers=2, snapshot=snapshot)
    quiet = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    producer = Producer({**quiet, "acks": "all", "message.timeout.ms": 60_000})
    failed: list[KafkaException] = []
    producer.produce(
        "orders-1",
        b"needs two replicas",
        on_delivery=lambda e, _: failed.append(e) if e is not None else None,
    )
    assert producer.flush(70) == 0 and not failed
    (partition,) = (
        AdminClient(quiet).list_topics("orders-1", timeout=20).topics["orders-1"].partitions.values()
    )
    assert sorted(partition.isrs) == [1, 2]


def test_the_snapshot_of_a_static_quorum_before_dynamic_ones_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000002-0000000001.checkpoint"
    records = [FeatureLevelRecord(name="metadata.version", feature_level=20)]
    image = apply_records(MetadataImage(), records, offset=1, epoch=1, timestamp_ms=NOW_MS)
    write_snapshot(
        path, image, kraft_version=0, voters=None, last_contained_timestamp_ms=NOW_MS, now_ms=NOW_MS
    )
    with pytest.raises(MetadataError, match=r"metadata.version is 3.8-IV0.*needs 3.9-IV0"):
        LocalSnapshot(path, [1])


def test_what_is_no_snapshot_is_named(kafka_cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    damaged = tmp_path / "00000000000000000001-0000000001.checkpoint"
    damaged.write_bytes(b"no snapshot")
    with pytest.raises(ClusterError, match="cannot start from the metadata snapshot"):
        kafka_cluster_factory(snapshot=damaged)
    with pytest.raises(ClusterError, match="from a directory or from a snapshot"):
        kafka_cluster_factory(snapshot=damaged, directory=tmp_path)
