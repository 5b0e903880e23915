"""KafkaCluster on real nodes: they come and go, and each fault has the effect that it is named after."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from quorate.net.client import Connection
from quorate.protocol.errors import KafkaError
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from quorate.testing import ClusterError, ClusterFactory, KafkaCluster
from tests.support.ledger import QUIET, admin_client

pytestmark = pytest.mark.timeout(180)


def create(cluster: KafkaCluster, topic: str, partitions: int = 1, replicas: int = 1, **config: str) -> None:
    new = NewTopic(topic, partitions, replicas, config=config)
    admin = admin_client(cluster.bootstrap_servers)  # kept: its futures end with it
    admin.create_topics([new])[topic].result(30)


def produce(servers: str, topic: str, values: list[bytes], **conf: object) -> None:
    producer = Producer({"bootstrap.servers": servers, **QUIET, **conf})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def read(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", **QUIET})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [m.value() or b"" for m in consumer.consume(count, 30)]
    finally:
        consumer.close()


def end_offset(servers: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", **QUIET})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return int(end)
    finally:
        consumer.close()


def eventually(what: str, probe: Callable[[], object], timeout_s: float = 40) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if probe():
                return
        except (KafkaException, KafkaError, OSError, TimeoutError, KeyError):
            pass
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.02)  # polls other processes


def server(cluster: KafkaCluster, node_id: int) -> str:
    return cluster.bootstrap_servers.split(",")[cluster.broker_ids.index(node_id)]


def controller_known_by(cluster: KafkaCluster, node_id: int) -> int:
    """The active controller, as this node's own replica of the metadata knows it."""
    admin = admin_client(server(cluster, node_id))
    return int(admin.describe_cluster(request_timeout=5).result(10).controller.id)


def topics_of(cluster: KafkaCluster, node_id: int) -> dict[str, list[int]]:
    """The topics that this node knows, with the ISR of partition 0. A client library may ask another node."""

    async def ask() -> MetadataResponse:
        host, port = server(cluster, node_id).split(":")
        connection = await Connection.connect(host, int(port))
        try:
            response = await asyncio.wait_for(connection.send(MetadataRequest(topics=None), 12), 10)
        finally:
            connection.close()
        assert isinstance(response, MetadataResponse)
        return response

    return {str(topic.name): sorted(topic.partitions[0].isr_nodes) for topic in asyncio.run(ask()).topics}


def isr(cluster: KafkaCluster, node_id: int, topic: str) -> list[int]:
    return topics_of(cluster, node_id)[topic]


def test_clients_produce_and_consume(kafka_cluster: KafkaCluster) -> None:
    create(kafka_cluster, "plain")
    produce(kafka_cluster.bootstrap_servers, "plain", [b"one", b"two"])
    assert read(kafka_cluster.bootstrap_servers, "plain", 2) == [b"one", b"two"]
    assert kafka_cluster.node_ids == kafka_cluster.broker_ids == kafka_cluster.controller_ids == [1]


def test_the_controllers_answer_at_their_own_address(kafka_cluster: KafkaCluster) -> None:
    tool = [str(Path(sys.executable).parent / "kafka-metadata-quorum"), "--bootstrap-controller"]
    told = subprocess.run(
        [*tool, kafka_cluster.bootstrap_controllers, "describe", "--status"], capture_output=True, text=True
    )
    assert "LeaderId:" in told.stdout and kafka_cluster.cluster_id in told.stdout, told.stderr


def test_configurations_reach_every_node(kafka_cluster_factory: ClusterFactory) -> None:
    cluster = kafka_cluster_factory(config={"num.partitions": 7, "auto.create.topics.enable": False})
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = admin_client(cluster.bootstrap_servers)
    entries = admin.describe_configs([resource])[resource].result(10)
    assert entries["num.partitions"].value == "7"
    assert entries["auto.create.topics.enable"].value == "false"


def test_roles_may_be_apart(kafka_cluster_factory: ClusterFactory) -> None:
    cluster = kafka_cluster_factory(controllers=1, brokers=2)
    assert (cluster.controller_ids, cluster.broker_ids) == ([1], [1, 2])
    assert len(cluster.bootstrap_servers.split(",")) == 2
    assert len(cluster.bootstrap_controllers.split(",")) == 1


def test_no_node_has_both_roles_if_they_are_separate(kafka_cluster_factory: ClusterFactory) -> None:
    original = kafka_cluster_factory(controllers=1, brokers=2, separate_roles=True)
    assert (original.controller_ids, original.broker_ids) == ([1], [2, 3])
    create(original, "copied", replicas=2)
    produce(original.bootstrap_servers, "copied", [b"a"], acks="all")
    original.stop()
    copy = kafka_cluster_factory(directory=original.directory)
    assert (copy.controller_ids, copy.broker_ids) == ([1], [2, 3])
    assert read(copy.bootstrap_servers, "copied", 1) == [b"a"]


def test_a_killed_node_refuses_connections_and_comes_back_where_it_was(
    kafka_cluster_factory: ClusterFactory,
) -> None:
    cluster = kafka_cluster_factory()
    create(cluster, "kept")
    produce(cluster.bootstrap_servers, "kept", [b"%d" % i for i in range(100)])
    before = cluster.bootstrap_servers
    host, port = before.split(":")
    cluster.kill(1)
    assert not cluster.is_running(1) and cluster.pid(1) is None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 5)
    with pytest.raises(OSError), socket.socket() as other:
        other.bind((host, int(port)))  # it stays reserved
    cluster.start(1)
    assert cluster.bootstrap_servers == before
    assert read(before, "kept", 100) == [b"%d" % i for i in range(100)]
    cluster.stop(1)
    assert not cluster.is_running(1)
    cluster.start()
    assert len(read(before, "kept", 100)) == 100


def test_a_frozen_node_keeps_its_connections_and_answers_nothing_until_it_is_thawed(
    kafka_cluster_factory: ClusterFactory,
) -> None:
    cluster = kafka_cluster_factory()
    create(cluster, "frozen")
    admin = admin_client(cluster.bootstrap_servers)
    admin.list_topics(timeout=10)
    cluster.freeze(1)
    assert cluster.is_running(1)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    cluster.thaw(1)
    assert "frozen" in admin.list_topics(timeout=20).topics


def test_faults_set_on_a_frozen_node_are_in_force_when_it_is_thawed(
    kafka_cluster_factory: ClusterFactory,
) -> None:
    cluster = kafka_cluster_factory()
    cluster.freeze(1)
    cluster.slow_disk(1, fsync_ms=400)
    cluster.thaw()
    started = time.monotonic()
    create(cluster, "late")
    assert time.monotonic() - started >= 0.4


def test_a_controller_that_is_cut_off_is_replaced_and_follows_when_healed(
    kafka_cluster_factory: ClusterFactory,
) -> None:
    cluster = kafka_cluster_factory(controllers=3, brokers=3)
    create(cluster, "before", replicas=3)
    old = controller_known_by(cluster, 1)
    others = [n for n in cluster.node_ids if n != old]
    cluster.cut(old)
    eventually("another active controller", lambda: controller_known_by(cluster, others[0]) in others)
    eventually("the cut node to leave the ISR", lambda: isr(cluster, others[0], "before") == others)
    # Connects only now: librdkafka sends a creation to the broker that its first Metadata response names.
    create_at = admin_client(",".join(server(cluster, n) for n in others))
    create_at.create_topics([NewTopic("meanwhile", 1, 2)])["meanwhile"].result(30)
    stale = topics_of(cluster, old)
    assert "before" in stale, "clients reach a node that is cut off from the others"
    assert "meanwhile" not in stale
    cluster.heal()
    eventually(
        "the healed node to catch up",
        lambda: "meanwhile" in topics_of(cluster, old),
    )
    eventually(
        "the healed node to be in the ISR", lambda: isr(cluster, others[0], "before") == cluster.node_ids
    )


def test_one_cut_link_leaves_the_others_alone(kafka_cluster_factory: ClusterFactory) -> None:
    cluster = kafka_cluster_factory(controllers=1, brokers=3, config={"replica.lag.time.max.ms": 1500})
    create(cluster, "linked", replicas=3)
    leader = (
        admin_client(cluster.bootstrap_servers)
        .list_topics("linked", timeout=10)
        .topics["linked"]
        .partitions[0]
        .leader
    )
    follower = max(n for n in cluster.broker_ids if n != leader)
    cluster.cut(leader, follower)
    produce(cluster.bootstrap_servers, "linked", [b"x"], acks="all")
    eventually("the follower to leave the ISR", lambda: follower not in isr(cluster, leader, "linked"))
    assert len(isr(cluster, leader, "linked")) == 2
    cluster.heal(leader, follower)
    eventually("it to return", lambda: isr(cluster, leader, "linked") == [1, 2, 3])


def test_a_node_that_starts_behind_a_cut_link_stays_cut_off(kafka_cluster_factory: ClusterFactory) -> None:
    cluster = kafka_cluster_factory(controllers=1, brokers=2)
    create(cluster, "there", replicas=2)
    cluster.stop(2)
    cluster.cut(1, 2)
    cluster.start(2, wait=False)
    with pytest.raises(ConnectionRefusedError):  # no listener before it is registered
        socket.create_connection(("127.0.0.1", int(server(cluster, 2).split(":")[1])), 5)
    eventually("it to look for the controller", lambda: "Quorate" in cluster.log_tail(2))
    assert isr(cluster, 1, "there") == [1]
    cluster.heal()
    eventually("it to return", lambda: isr(cluster, 1, "there") == [1, 2])


def test_a_slow_disk_delays_what_must_be_durable(kafka_cluster_factory: ClusterFactory) -> None:
    cluster = kafka_cluster_factory()
    cluster.slow_disk(1, fsync_ms=500)
    started = time.monotonic()
    create(cluster, "slow")
    assert time.monotonic() - started >= 0.5
    cluster.kill(1)
    cluster.start(1)
    started = time.monotonic()
    create(cluster, "slow-after-restart")
    assert time.monotonic() - started >= 0.5, "the fault belongs to the disk, not to the process"
    cluster.slow_disk(1)
    create(cluster, "last-slow-one")  # may wait for an fsync that began before
    started = time.monotonic()
    create(cluster, "fast")
    assert time.monotonic() - started < 0.5


def test_reads_from_a_slow_disk_wait(kafka_cluster_factory: ClusterFactory) -> None:
    cluster = kafka_cluster_factory()
    create(cluster, "cold")
    produce(cluster.bootstrap_servers, "cold", [bytes(1000) for _ in range(500)])
    cluster.slow_disk(1, read_ms=700)
    started = time.monotonic()
    assert len(read(cluster.bootstrap_servers, "cold", 500)) == 500
    assert time.monotonic() - started >= 0.7


def test_a_node_with_a_full_disk_ends_and_starts_again_when_there_is_room(
    kafka_cluster_factory: ClusterFactory,
) -> None:
    cluster = kafka_cluster_factory()
    create(cluster, "full")
    produce(cluster.bootstrap_servers, "full", [b"acknowledged"], acks="all")
    cluster.full_disk(1, free_bytes=10_000)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 5000, "acks": "all", **QUIET}
    )
    results: list[bool] = []
    for _ in range(30):
        producer.produce("full", bytes(1000), on_delivery=lambda error, _: results.append(error is None))
        producer.flush(10)
        if results and not results[-1]:
            break
    assert False in results
    eventually("the node to end", lambda: not cluster.is_running(1))
    assert "No space left on device" in cluster.log_file(1).read_text()
    cluster.full_disk(1)
    with pytest.raises(ClusterError, match="No space left on device"):
        cluster.start(1)
    cluster.free_disk(1)
    cluster.start(1)
    kept = read(cluster.bootstrap_servers, "full", 1 + results.count(True))
    assert len(kept) == 1 + results.count(True) and kept[0] == b"acknowledged"


def test_a_node_with_a_failing_disk_ends_and_starts_again_when_it_is_repaired(
    kafka_cluster_factory: ClusterFactory,
) -> None:
    cluster = kafka_cluster_factory()
    create(cluster, "failing")
    produce(cluster.bootstrap_servers, "failing", [b"acknowledged"], acks="all")
    cluster.fail_disk(1)
    eventually("the node to end", lambda: not cluster.is_running(1))
    assert "Input/output error" in cluster.log_file(1).read_text()
    cluster.repair_disk(1)
    cluster.start(1)
    assert read(cluster.bootstrap_servers, "failing", 1) == [b"acknowledged"]


@pytest.mark.parametrize("count", [1, 3])
def test_a_cluster_starts_from_a_copy_of_another_ones_directory(
    kafka_cluster_factory: ClusterFactory, tmp_path: Path, count: int
) -> None:
    original = kafka_cluster_factory(controllers=count, brokers=count)
    create(original, "copied", replicas=count)
    produce(original.bootstrap_servers, "copied", [b"%d" % i for i in range(100)], acks="all")
    with pytest.raises(ClusterError, match="stop the cluster"):
        kafka_cluster_factory(directory=original.directory)
    original.stop()
    copy = kafka_cluster_factory(directory=original.directory)
    assert copy.cluster_id == original.cluster_id and copy.node_ids == original.node_ids
    assert copy.bootstrap_servers != original.bootstrap_servers
    assert read(copy.bootstrap_servers, "copied", 100) == [b"%d" % i for i in range(100)]
    produce(copy.bootstrap_servers, "copied", [b"only in the copy"], acks="all")
    original.start()  # both run: neither finds the other's nodes
    assert end_offset(original.bootstrap_servers, "copied") == 100
    assert end_offset(copy.bootstrap_servers, "copied") == 101
    with pytest.raises(ClusterError, match="leave both numbers out"):
        kafka_cluster_factory(controllers=5, directory=original.directory)


def test_what_is_no_clusters_directory_is_named(
    kafka_cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    with pytest.raises(ClusterError, match="is not the folder of a cluster"):
        kafka_cluster_factory(directory=tmp_path)


def test_a_node_that_cannot_start_shows_its_log(kafka_cluster_factory: ClusterFactory) -> None:
    with pytest.raises(ClusterError, match=r"node 1 ended with status 1\n(.|\n)*authorizer"):
        kafka_cluster_factory(config={"authorizer.class.name": "org.example.NoSuchClass"})


def test_a_cluster_without_pytest_keeps_nothing() -> None:
    with KafkaCluster() as cluster:
        pid, folder = cluster.pid(1), cluster.directory
        assert folder.is_dir()
    assert pid is not None and not folder.exists()
    assert not Path(f"/proc/{pid}").exists()
    cluster.close()


def test_unknown_nodes_are_named(kafka_cluster: KafkaCluster) -> None:
    with pytest.raises(ClusterError, match="there is no node 9; the nodes are 1"):
        kafka_cluster.kill(9)
