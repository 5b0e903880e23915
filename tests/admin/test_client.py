"""The admin client, asynchronous and plain, against a real node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psutil
import pytest
from confluent_kafka import Consumer, Producer

from quorate.admin import sync
from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, KafkaError, RequestTimedOut
from quorate.admin.operations.topics import EARLIEST, LATEST
from quorate.admin.types import (
    ConfigOp,
    FeatureUpgrade,
    ListedOffset,
    NewTopic,
    OffsetAndMetadata,
    TopicPartition,
)
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.uuids import ZERO_UUID
from quorate.testing import KafkaCluster
from tests.support.cluster import free_ports, wait_for

T = TypeVar("T")


def with_admin(
    cluster: KafkaCluster, work: Callable[[AdminClient], Awaitable[T]], *, controllers: bool = False
) -> T:
    async def run() -> T:
        client = (
            AdminClient(bootstrap_controllers=cluster.bootstrap_controllers)
            if controllers
            else AdminClient(cluster.bootstrap_servers)
        )
        async with client as admin:
            return await asyncio.wait_for(work(admin), 30)

    return asyncio.run(run())


@pytest.fixture
def topic(kafka_cluster: KafkaCluster, request: pytest.FixtureRequest) -> str:
    name = f"t-{abs(hash(request.node.nodeid)) % 10**8}"

    async def create(admin: AdminClient) -> None:
        assert await admin.create_topics([NewTopic(name, 3, 1)]) == {name: None}

    with_admin(kafka_cluster, create)
    return name


def produce(kafka_cluster: KafkaCluster, topic: str, values: list[bytes]) -> None:
    """Into partition 0."""
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(10) == 0


def test_topics_come_and_go(kafka_cluster: KafkaCluster) -> None:
    async def work(admin: AdminClient) -> None:
        new = NewTopic("come", configs={"retention.ms": "1000"}, assignment={0: [1], 1: [1]})
        assert await admin.create_topics([new], validate_only=True) == {"come": None}
        assert "come" not in {t.name for t in await admin.list_topics()}
        assert await admin.create_topics([new]) == {"come": None}
        again = (await admin.create_topics([new]))["come"]
        assert again is not None and again.code is ErrorCode.TOPIC_ALREADY_EXISTS
        described = (await admin.describe_topics(["come"]))["come"]
        assert described.topic_id != ZERO_UUID
        assert [(p.partition, p.leader, p.replicas, p.isr, p.elr) for p in described.partitions] == [
            (0, 1, (1,), (1,), ()),
            (1, 1, (1,), (1,), ()),
        ]
        assert await admin.create_partitions({"come": 3}) == {"come": None}
        fewer = (await admin.create_partitions({"come": 2}))["come"]
        assert fewer is not None and fewer.code is ErrorCode.INVALID_PARTITIONS
        assert len((await admin.describe_topics(["come"]))["come"].partitions) == 3
        assert await admin.list_partition_reassignments() == {}
        assert await admin.delete_topics(["come"]) == {"come": None}
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await admin.describe_topics(["come"])

    with_admin(kafka_cluster, work)


def test_many_partitions_are_described_in_pages(kafka_cluster: KafkaCluster) -> None:
    async def work(admin: AdminClient) -> None:
        await admin.create_topics([NewTopic("pages-a", 7), NewTopic("pages-b", 5)])
        described = await admin.describe_topics(["pages-b", "pages-a"], partition_limit=3)
        assert {name: [p.partition for p in t.partitions] for name, t in described.items()} == {
            "pages-a": list(range(7)),
            "pages-b": list(range(5)),
        }

    with_admin(kafka_cluster, work)


def test_configs_of_a_topic(kafka_cluster: KafkaCluster, topic: str) -> None:
    resource = (ConfigResourceType.TOPIC, topic)

    async def own(admin: AdminClient) -> dict[str, str | None]:
        found = (await admin.describe_configs([resource]))[resource]
        assert not isinstance(found, KafkaError)
        return {e.name: e.value for e in found if e.source.name == "DYNAMIC_TOPIC_CONFIG"}

    async def work(admin: AdminClient) -> None:
        before = await own(admin)
        changes = [(ConfigOp.SET, "retention.ms", "5"), (ConfigOp.APPEND, "cleanup.policy", "compact")]
        assert await admin.incremental_alter_configs({resource: changes}) == {resource: None}
        assert await own(admin) == before | {"retention.ms": "5", "cleanup.policy": "delete,compact"}
        assert await admin.incremental_alter_configs(
            {resource: [(ConfigOp.DELETE, "cleanup.policy", None)]}
        ) == {resource: None}
        wrong = await admin.incremental_alter_configs({resource: [(ConfigOp.SET, "retention.ms", "x")]})
        assert wrong[resource] is not None and wrong[resource].code is ErrorCode.INVALID_CONFIG
        assert await own(admin) == before | {"retention.ms": "5"}
        missing = (ConfigResourceType.TOPIC, "missing")
        assert isinstance((await admin.describe_configs([missing]))[missing], KafkaError)

    with_admin(kafka_cluster, work)


def test_configs_of_the_broker(kafka_cluster: KafkaCluster) -> None:
    async def work(admin: AdminClient) -> None:
        resource = (ConfigResourceType.BROKER, "1")
        found = (await admin.describe_configs([resource], synonyms=True))[resource]
        assert not isinstance(found, KafkaError)
        by_name = {e.name: e for e in found}
        assert by_name["node.id"].value == "1" and by_name["node.id"].read_only

    with_admin(kafka_cluster, work)


@pytest.mark.parametrize("controllers", [False, True])
def test_cluster_and_quorum(kafka_cluster: KafkaCluster, controllers: bool) -> None:
    async def work(admin: AdminClient) -> None:
        cluster = await admin.describe_cluster()
        assert cluster.cluster_id == kafka_cluster.cluster_id
        servers = kafka_cluster.bootstrap_controllers if controllers else kafka_cluster.bootstrap_servers
        assert [(n.id, f"{n.host}:{n.port}") for n in cluster.nodes] == [(1, servers)]
        if not controllers:
            tests_began = psutil.Process().create_time()
            assert tests_began <= cluster.nodes[0].start_time_ms / 1000 <= time.time()
        quorum = await admin.describe_quorum()
        assert (quorum.leader_id, [v.replica_id for v in quorum.voters]) == (1, [1])
        assert quorum.voters[0].log_end_offset >= quorum.high_watermark > 0
        ((listener, host, port),) = quorum.endpoints[1]
        assert (listener, f"{host}:{port}") == ("CONTROLLER", kafka_cluster.bootstrap_controllers)
        features = await admin.describe_features()
        assert features.finalized["metadata.version"] == 33
        refused = await admin.update_features(
            {"metadata.version": (7, FeatureUpgrade.UPGRADE)}, validate_only=True
        )
        assert refused["metadata.version"] is not None
        with pytest.raises(KafkaError, match="BROKER_ID_NOT_REGISTERED"):
            await admin.unregister_broker(99)

    with_admin(kafka_cluster, work, controllers=controllers)


def test_offsets_by_time_and_deleted_records(kafka_cluster: KafkaCluster, topic: str) -> None:
    tp, other = TopicPartition(topic, 0), TopicPartition(topic, 99)

    async def at(admin: AdminClient, when: int) -> int:
        found = (await admin.list_offsets({tp: when}))[tp]
        assert isinstance(found, ListedOffset)
        return found.offset

    async def work(admin: AdminClient) -> None:
        before_ms = time.time_ns() // 1_000_000
        produce(kafka_cluster, topic, [b"a", b"b", b"c"])
        assert (await at(admin, EARLIEST), await at(admin, LATEST)) == (0, 3)
        assert await at(admin, before_ms) == 0
        assert await at(admin, before_ms + 10**7) == -1
        deleted = await admin.delete_records({tp: 2, other: 0})
        assert deleted[tp] == 2
        assert isinstance(deleted[other], KafkaError)
        assert await at(admin, EARLIEST) == 2
        dirs = await admin.describe_log_dirs(topics={topic})
        assert sum(r.size for d in dirs[1] for r in d.replicas.values()) > 0

    with_admin(kafka_cluster, work)


def test_a_group_with_members_is_described(kafka_cluster: KafkaCluster, topic: str) -> None:
    group_id = f"g-{topic}"
    settings = {"bootstrap.servers": kafka_cluster.bootstrap_servers, "group.id": group_id, "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "range", "heartbeat.interval.ms": 100, "log_level": 0}  # fmt: skip
    consumers = [Consumer(settings) for _ in range(2)]

    def shared() -> bool:
        for consumer in consumers:
            assert consumer.poll(0.02) is None
        return sorted(len(consumer.assignment()) for consumer in consumers) == [1, 2]

    async def work(admin: AdminClient) -> None:
        described = (await admin.describe_groups([group_id]))[group_id]
        assert not isinstance(described, KafkaError)
        assert (described.state, described.assignor, len(described.members)) == ("Stable", "range", 2)
        assert sorted(tp for m in described.members for tp in m.assignment) == [
            TopicPartition(topic, p) for p in range(3)
        ]

    try:
        for consumer in consumers:
            consumer.subscribe([topic])
        wait_for("both members to have partitions", shared)
        with_admin(kafka_cluster, work)
    finally:
        for consumer in consumers:
            consumer.close()


def test_groups_and_their_offsets_are_administered(kafka_cluster: KafkaCluster, topic: str) -> None:
    tp, nowhere = TopicPartition(topic, 0), TopicPartition("nowhere", 0)

    async def work(admin: AdminClient) -> None:
        altered = await admin.alter_group_offsets(
            "adm", {tp: OffsetAndMetadata(5, metadata="m"), nowhere: OffsetAndMetadata(1)}
        )
        assert altered[tp] is None
        assert altered[nowhere] is not None and altered[nowhere].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await admin.list_group_offsets("adm") == {tp: OffsetAndMetadata(5, -1, "m")}
        assert await admin.list_group_offsets("adm", [TopicPartition(topic, 1)]) == {}
        listed = {g.group_id: g for g in await admin.list_groups()}
        assert (listed["adm"].state, listed["adm"].group_type) == ("Empty", "classic")
        assert "adm" not in {g.group_id for g in await admin.list_groups(states=["Stable"])}
        assert await admin.delete_group_offsets("adm", [tp]) == {tp: None}
        results = await admin.delete_groups(["adm", "never-was"])
        assert results["adm"] is None
        assert results["never-was"] is not None and results["never-was"].code is ErrorCode.GROUP_ID_NOT_FOUND
        unknown = (await admin.describe_groups(["never-was"]))["never-was"]
        assert isinstance(unknown, KafkaError) and unknown.code is ErrorCode.GROUP_ID_NOT_FOUND

    with_admin(kafka_cluster, work)


def test_offsets_of_a_deleted_topic_are_gone(kafka_cluster: KafkaCluster) -> None:
    async def work(admin: AdminClient) -> None:
        await admin.create_topics([NewTopic("short-lived")])
        tp = TopicPartition("short-lived", 0)
        await admin.alter_group_offsets("outlives", {tp: OffsetAndMetadata(1)})
        await admin.delete_topics(["short-lived"])
        for _ in range(100):
            if not await admin.list_group_offsets("outlives"):
                break
            await asyncio.sleep(0.01)
        assert await admin.list_group_offsets("outlives") == {}

    with_admin(kafka_cluster, work)


def test_quotas_and_credentials(kafka_cluster: KafkaCluster) -> None:
    async def work(admin: AdminClient) -> None:
        entity = (("user", "ann"),)
        with pytest.raises(KafkaError, match="not enforced"):
            await admin.alter_client_quotas(entity, {"producer_byte_rate": 1024.0})
        await admin.alter_client_quotas(entity, {"producer_byte_rate": None})
        assert await admin.describe_client_quotas([("user", 0, "ann")]) == {}
        others = await admin.describe_scram()
        await admin.alter_scram(upserts=[("ann", 1, 4096, b"salt" * 8, b"p" * 32)])
        assert await admin.describe_scram() == others | {"ann": [(1, 4096)]}
        await admin.alter_scram(deletions=[("ann", 1)])
        assert await admin.describe_scram() == others

    with_admin(kafka_cluster, work)


def test_the_plain_face(kafka_cluster: KafkaCluster) -> None:
    with sync.AdminClient(kafka_cluster.bootstrap_servers) as admin:
        assert admin.create_topics([NewTopic("plain-face")]) == {"plain-face": None}
        assert "plain-face" in {t.name for t in admin.list_topics()}
        with pytest.raises(KafkaError):
            admin.describe_topics(["missing"])
        admin.close()


def test_the_plain_face_refuses_nonsense_at_once() -> None:
    with pytest.raises(ValueError, match="bootstrap"):
        sync.AdminClient("nonsense")


def test_nobody_there_is_told_with_the_reason() -> None:
    (port,) = free_ports(1)

    async def run() -> None:
        async with AdminClient(f"127.0.0.1:{port}", api_timeout_s=0.4) as admin:
            await admin.list_topics()

    with pytest.raises(RequestTimedOut, match=f"cannot connect to 127.0.0.1:{port}"):
        asyncio.run(run())


def test_a_live_bootstrap_server_among_dead_ones_is_found(kafka_cluster: KafkaCluster) -> None:
    (port,) = free_ports(1)

    async def run() -> None:
        async with AdminClient(f"127.0.0.1:{port},{kafka_cluster.bootstrap_servers}") as admin:
            assert (await admin.describe_cluster()).controller_id == 1

    asyncio.run(run())
