"""Brokers of Apache Kafka and ours in one ISR, each leading, under three controllers of either.

All tests of a cluster share it, and a load with acks=all and idempotence that never ends. Each test
ends with `check`: nothing acknowledged is lost, doubled or reordered, and all logs have the same
bytes up to the high watermark. A test that does something to only one broker takes the one whose
implementation is in the minority. So both kinds have their turn under each kind of controllers.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from quorate.admin.errors import KafkaError
from quorate.admin.operations.configs import Resource
from quorate.admin.sync import AdminClient
from quorate.admin.types import ConfigOp, NewTopic, PartitionDescription, TopicPartitionReplica
from quorate.protocol.config_resource import ConfigResourceType
from tests.support import java
from tests.support.cluster import BIN, wait_for
from tests.support.ledger import QUIET, Ledger, read_partition
from tests.support.mixed import MixedNode
from tests.support.mixed_brokers import BROKERS, PARTITIONS, TOPIC, MixedBrokers, rotated
from tests.support.numbered_load import NumberedReader

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

OLD, NEW = java.VERSIONS
CLUSTERS = [
    pytest.param(("qqq", "qjq", OLD), id="qqq-qjq-4.1"),
    pytest.param(("jjj", "jqj", NEW), id="jjj-jqj"),
    pytest.param(("qqq", "jqj", NEW), id="qqq-jqj"),
    pytest.param(("jjj", "qjq", NEW), id="jjj-qjq"),
]
"""The implementations of the controllers and of the brokers, and the release of Java's."""

LEVELS_4_1 = {"metadata.version": 27}
LEVELS_4_4 = {
    "metadata.version": 33,
    "share.version": 2,
    "streams.version": 1,
    "group.version": 1,
    "eligible.leader.replicas.version": 1,
}
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="module", params=CLUSTERS)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedBrokers]:
    controllers, brokers, kafka = request.param
    base = tmp_path_factory.mktemp(f"{controllers}-{brokers}")
    cluster = MixedBrokers(base, controllers, brokers_of=brokers, kafka=kafka, release="4.1")
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


@pytest.fixture
def cluster(shared: MixedBrokers) -> Iterator[MixedBrokers]:
    """The cluster with all nodes running, also after a test that failed."""
    shared.restart([node for node in shared.nodes if not node.running])
    assert shared.load is not None
    shared.load.resume()
    try:
        yield shared
    except BaseException:
        print(*(f"--- {n.node_id} {n.impl}\n{n.log_tail(60)}" for n in shared.nodes), sep="\n")
        raise


def one_of_each(cluster: MixedBrokers) -> dict[str, MixedNode]:
    return {broker.impl: broker for broker in cluster.brokers}


def levels(cluster: MixedBrokers) -> dict[str, int]:
    with cluster.admin() as admin:
        return dict(admin.describe_features().finalized)


def upgrade(cluster: MixedBrokers) -> subprocess.CompletedProcess[str]:
    words = ["--bootstrap-server", cluster.servers, "upgrade", "--release-version", "4.4"]
    return subprocess.run(
        [str(BIN / "kafka-features"), *words], capture_output=True, text=True, timeout=60, check=False
    )


def upgraded(cluster: MixedBrokers) -> None:
    """Upgrades the features.

    Tries again after an election: a new leader of Java's refuses kraft.version 1 until each voter
    has sent it an UpdateRaftVoter.
    """
    said: list[str] = []

    def done() -> bool:
        ran = upgrade(cluster)
        said.append(ran.stdout + ran.stderr)
        return ran.returncode == 0

    try:
        wait_for("the upgrade", done, 60, 1)
    except AssertionError as e:
        raise AssertionError(f"{e}\n{said[-1]}") from None
    wait_for("the levels of 4.4", lambda: levels(cluster).items() >= LEVELS_4_4.items(), 30, 0.1)


def without(broker: MixedNode) -> Callable[[list[PartitionDescription]], bool]:
    """Whether all partitions are led by others and have the others in sync, without this broker."""

    def holds(partitions: list[PartitionDescription]) -> bool:
        rest = [each for each in BROKERS if each != broker.node_id]
        return all(p.leader in rest and sorted(p.isr) == rest for p in partitions)

    return holds


def test_the_levels_go_from_those_of_4_1_to_those_of_4_4(cluster: MixedBrokers) -> None:
    """Nodes of 4.1 refuse the levels of 4.4."""
    assert levels(cluster).items() >= LEVELS_4_1.items()
    if cluster.kafka == OLD:
        done = upgrade(cluster)
        assert done.returncode == 1, done.stdout + done.stderr
        assert f"Broker {cluster.rare.node_id} only supports versions" in done.stdout + done.stderr
        assert levels(cluster)["metadata.version"] == LEVELS_4_1["metadata.version"]
    else:
        upgraded(cluster)
    cluster.check()


def test_topics_are_created_through_brokers_of_each_kind(cluster: MixedBrokers) -> None:
    for impl, broker in one_of_each(cluster).items():
        name = f"through-{impl}"
        with AdminClient(broker.bootstrap) as admin:
            assert admin.create_topics([NewTopic(name, 3, 3)]) == {name: None}
        cluster.in_sync(name)
        ids = set()
        for each in cluster.brokers:
            with AdminClient(each.bootstrap) as admin:
                ids.add(admin.describe_topics([name])[name].topic_id)
        assert len(ids) == 1
    cluster.check()


def test_brokers_of_each_kind_lead_and_follow_in_one_isr(cluster: MixedBrokers) -> None:
    assert cluster.load is not None
    cluster.elect_preferred()
    assert {p.leader for p in cluster.partitions()} == set(BROKERS)
    assert all(set(p.isr) == set(BROKERS) for p in cluster.partitions())
    cluster.load.flows()
    cluster.check()


def test_our_broker_keeps_a_throttle_as_leader_and_as_follower_of_the_other_kind(
    cluster: MixedBrokers,
) -> None:
    """Only our broker has a limit. One response, of a megabyte at most, may be ahead of it.

    No test before this one may move replicas under a throttle: the quiet seconds after it, 11 at
    most, would count for the rate, as in Kafka.
    """
    kinds = one_of_each(cluster)
    ours, theirs = kinds["quorate"].node_id, kinds["java"].node_id
    rate, size = 500_000, 3_000_000
    limited = (ConfigResourceType.BROKER, str(ours))
    with cluster.admin() as admin:
        for side, old, new in (("leader", ours, theirs), ("follower", theirs, ours)):
            topic = f"slow-{side}"
            cluster.create_topic(topic, {0: [old]}, min_insync_replicas="1")
            cluster.in_sync(topic)
            producer = Producer({"bootstrap.servers": cluster.servers, "acks": "all", **QUIET})
            for _ in range(size // 50_000):
                producer.produce(topic, b"x" * 50_000, partition=0)
            assert producer.flush(60) == 0
            replicas = (ConfigOp.SET, f"{side}.replication.throttled.replicas", f"0:{ours}")
            limit = (ConfigOp.SET, f"{side}.replication.throttled.rate", str(rate))
            # One after the other: a broker that knows the limit has replayed which replicas it is for.
            for resource, change in (((ConfigResourceType.TOPIC, topic), replicas), (limited, limit)):
                assert not any(admin.incremental_alter_configs({resource: [change]}).values())

            def known(key: str = f"{side}.replication.throttled.rate") -> bool:
                entries = admin.describe_configs([limited])[limited]
                assert not isinstance(entries, KafkaError), entries
                return any((entry.name, entry.value) == (key, str(rate)) for entry in entries)

            wait_for("our broker to know the limit", known)
            started = time.monotonic()
            cluster.reassign(topic, {0: [new]})
            cluster.wait_for_partitions("the move", topic, lambda ps, new=new: [*ps[0].isr] == [new])  # type: ignore[misc]
            assert time.monotonic() - started >= (size - 1_100_000) / rate
            removed: dict[Resource, list[tuple[ConfigOp, str, str | None]]] = {
                limited: [(ConfigOp.DELETE, f"{side}.replication.throttled.rate", None)]
            }
            assert not any(admin.incremental_alter_configs(removed).values())
    cluster.check()


def test_a_partition_moves_to_the_other_kind_under_a_throttle(cluster: MixedBrokers, tmp_path: Path) -> None:
    kinds = one_of_each(cluster)
    ours, theirs = kinds["quorate"].node_id, kinds["java"].node_id
    before, after = {0: [ours], 1: [theirs]}, {0: [theirs], 1: [ours]}
    cluster.create_topic("moved", before, min_insync_replicas="1")
    cluster.in_sync("moved")
    ledger = Ledger(partitions={"moved": 2})
    ledger.produce(cluster.servers, "moved", 4000, "m", acks="all", **{"enable.idempotence": True})
    plan = tmp_path / "plan.json"
    moves = [{"topic": "moved", "partition": p, "replicas": replicas} for p, replicas in after.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    words = ["--bootstrap-server", cluster.servers, "--reassignment-json-file", plan]

    java.run(REASSIGN, *words, "--execute", "--throttle", 20_000_000, version=NEW)

    cluster.wait_for_partitions(
        "the move",
        "moved",
        lambda ps: [[*p.isr] for p in ps] == [*after.values()] and all(p.leader > 0 for p in ps),
    )
    done = java.run(REASSIGN, *words, "--verify", version=NEW)
    assert done.count("is completed") == 2, done
    assert "Clearing broker-level throttles" in done
    assert "Clearing topic-level throttles on topic moved" in done
    for partition, replicas in after.items():
        assert read_partition(cluster.servers, "moved", partition) == ledger.records["moved", partition]
        old = cluster.broker_of(before[partition][0])
        gone = [directory / f"moved-{partition}" for directory in cluster.directories(old)]
        wait_for(f"the log to leave {old.node_id}", lambda gone=gone: not any(f.exists() for f in gone))
        assert replicas != before[partition]
    cluster.check()


def test_replicas_of_each_kind_move_to_the_other_directory_under_load(cluster: MixedBrokers) -> None:
    """As leader and as follower. Their logs keep the bytes of the others."""
    assert cluster.load is not None
    cluster.elect_preferred()
    with cluster.admin() as admin:
        for broker in one_of_each(cluster).values():
            led = next(p.partition for p in cluster.partitions() if p.leader == broker.node_id)
            followed = next(p.partition for p in cluster.partitions() if p.leader != broker.node_id)
            first, second = cluster.directories(broker)
            moves = {}
            for partition in (led, followed):
                there = (first / f"{TOPIC}-{partition}").is_dir()
                target = second if there else first
                moves[TopicPartitionReplica(TOPIC, partition, broker.node_id)] = str(target)
            assert not any(admin.alter_replica_log_dirs(moves).values())

            def moved(moves: dict[TopicPartitionReplica, str] = moves) -> bool:
                found = admin.describe_replica_log_dirs(moves)
                return all(
                    found[r].current_path == path and found[r].future_path is None
                    for r, path in moves.items()
                )

            wait_for(f"the moves within broker {broker.node_id}", moved, 60, 0.1)
            cluster.load.flows()
    cluster.check()


def test_a_preferred_election_moves_the_lead_to_each_kind(cluster: MixedBrokers) -> None:
    cluster.elect_preferred()
    cluster.reassign(TOPIC, {p: rotated(p + 1) for p in range(PARTITIONS)})
    cluster.wait_for_partitions(
        "the new order",
        TOPIC,
        lambda ps: [[*p.replicas] for p in ps] == [rotated(p + 1) for p in range(PARTITIONS)],
    )
    assert all(p.leader == rotated(p.partition)[0] for p in cluster.partitions())
    cluster.elect_preferred()
    assert all(p.leader == rotated(p.partition + 1)[0] for p in cluster.partitions())
    cluster.check()


def test_consumers_read_from_the_replica_in_their_rack(cluster: MixedBrokers) -> None:
    """From followers of each kind, and sent there by leaders of each kind."""
    assert cluster.load is not None
    cluster.elect_preferred()
    readers = [
        NumberedReader(cluster.servers, TOPIC, PARTITIONS, cluster.rack(broker)) for broker in cluster.brokers
    ]
    try:
        for broker, reader in zip(cluster.brokers, readers, strict=True):
            wait_for(
                f"all partitions to be read from {broker.node_id}",
                lambda reader=reader, broker=broker: reader.read_from == [broker.node_id] * PARTITIONS,
            )
        cluster.load.flows()
        cluster.load.pause()
        for reader in readers:
            reader.reaches([p.produced for p in cluster.load.partitions])
    finally:
        for reader in readers:
            reader.stop()
    cluster.check()


def test_a_controlled_shutdown_hands_the_leadership_over(cluster: MixedBrokers) -> None:
    assert cluster.load is not None
    cluster.elect_preferred()
    broker = cluster.rare
    assert broker.stop() in (0, 143)
    # All was handed over before the process ended, so nothing needs to be awaited. (`describe` asks a broker
    # that may be a moment behind.)
    cluster.wait_for_partitions("the others to lead", TOPIC, without(broker), 2)
    cluster.load.flows()
    cluster.restart([broker])
    cluster.check()


def test_a_broker_that_is_killed_is_fenced_and_comes_back(cluster: MixedBrokers) -> None:
    assert cluster.load is not None
    for broker in one_of_each(cluster).values():
        cluster.elect_preferred()
        broker.kill()
        cluster.wait_for_fenced(broker)
        cluster.wait_for_partitions("the others to lead", TOPIC, without(broker))
        cluster.load.flows()
        cluster.restart([broker])
        assert cluster.registered() == dict.fromkeys(BROKERS, False)
    cluster.check()


def test_a_broker_is_unregistered_and_registers_again(cluster: MixedBrokers) -> None:
    assert cluster.load is not None
    broker = cluster.rare
    assert broker.stop() in (0, 143)
    with cluster.admin() as admin:
        admin.unregister_broker(broker.node_id)
    wait_for("it to be gone", lambda: broker.node_id not in cluster.registered())
    cluster.load.flows()
    assert all(broker.node_id in p.replicas for p in cluster.partitions())
    cluster.restart([broker])
    assert cluster.registered() == dict.fromkeys(BROKERS, False)
    cluster.check()


def test_one_of_two_log_directories_fails(cluster: MixedBrokers) -> None:
    """The replicas in it leave the ISR, those in the other one stay."""
    assert cluster.load is not None
    broker = cluster.rare
    cluster.elect_preferred()
    good, bad = cluster.directories(broker)
    names = [path.name.rpartition("-")[2] for path in bad.glob(f"{TOPIC}-*")]
    lost = {int(name) for name in names if name.isdigit()}  # without those that wait for their deletion
    assert lost
    assert lost < set(range(PARTITIONS))
    moved = bad.rename(bad.with_name("pulled-out"))
    bad.touch()  # a file: checkpoints and new segments fail from now on

    def left(partitions: list[PartitionDescription]) -> bool:
        return all((broker.node_id in p.isr) != (p.partition in lost) for p in partitions) and all(
            p.leader > 0 and not (p.partition in lost and p.leader == broker.node_id) for p in partitions
        )

    try:
        cluster.wait_for_partitions("the replicas of the failed directory to leave", TOPIC, left)
        cluster.load.flows()
        with cluster.admin() as admin:
            found = {d.path: d.error for d in admin.describe_log_dirs([broker.node_id])[broker.node_id]}
        assert found == {str(good): None, str(bad): "KAFKA_STORAGE_ERROR"}
    finally:
        broker.stop()
        bad.unlink()
        moved.rename(bad)
    cluster.restart([broker])
    cluster.check()


@pytest.mark.parametrize("shared", CLUSTERS[:2], indirect=True)  # the other two would take another minute
def test_all_nodes_are_restarted_one_after_the_other(cluster: MixedBrokers) -> None:
    """A controller and a broker at a time. Nodes of 4.1 come back as 4.4, and then get its levels."""
    assert cluster.load is not None
    for controller, broker in zip(cluster.controllers, cluster.brokers, strict=True):
        for node in (controller, broker):
            assert node.stop() in (0, 143)
            node.kafka = NEW
        cluster.load.flows()
        cluster.restart([controller, broker])
        cluster.whole()
    upgraded(cluster)
    cluster.check()
