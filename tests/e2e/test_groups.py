"""Consumer groups of unmodified clients on a real node: members join, die and return, and no acknowledged
offset is lost."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from quorate.testing import ClusterFactory, KafkaCluster
from tests.support.ledger import QUIET, admin_client

TIMES = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 100, "auto.commit.interval.ms": 100}


@pytest.fixture
def servers(kafka_cluster: KafkaCluster) -> str:
    return kafka_cluster.bootstrap_servers


def make(servers: str, topic: str, partitions: int, records: int) -> list[bytes]:
    admin = admin_client(servers)
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(10)
    return produce(servers, topic, range(records))


def produce(servers: str, topic: str, numbers: range) -> list[bytes]:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **QUIET})
    values = [b"%d" % i for i in numbers]
    for value in values:
        producer.produce(topic, value, key=value)
    assert producer.flush(20) == 0
    return values


class Member(threading.Thread):
    """A librdkafka consumer in a thread; `close` leaves the group."""

    def __init__(self, servers: str, topic: str, group: str, seen: list[bytes], **conf: object) -> None:
        super().__init__(daemon=True)
        self.assigned = 0
        self.rebalances = 0
        self._seen = seen
        self._ended = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                **TIMES,
                **QUIET,
                **conf,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign)
        self.start()

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1

    def run(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                value = message.value()
                assert value is not None
                self._seen.append(value)
            self.assigned = len(self._consumer.assignment())
        self._consumer.close()

    def close(self) -> None:
        self._ended.set()
        self.join(20)


def wait(what: str, ready: object, timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not ready():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.01)  # polls what another thread does


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_partitions_and_hand_them_over(servers: str, strategy: str) -> None:
    topic, group = f"share-{strategy}", f"share-{strategy}-group"
    values = make(servers, topic, 6, 600)
    seen: list[bytes] = []
    conf = {"partition.assignment.strategy": strategy}
    first = Member(servers, topic, group, seen, **conf)
    wait("the first member to read all", lambda: len(seen) >= 600)
    second = Member(servers, topic, group, seen, **conf)
    wait("both to have partitions", lambda: second.assigned == 3)
    values += produce(servers, topic, range(600, 1200))
    wait("the rest", lambda: len(set(seen)) == 1200)
    first.close()
    values += produce(servers, topic, range(1200, 1500))
    wait("the one that is left to read everything", lambda: len(set(seen)) == 1500)
    second.close()
    assert sorted(seen) == sorted(values), "every record once"
    assert sum(p.offset for p in committed(servers, group)) == 1500


def committed(servers: str, group: str) -> list[TopicPartition]:
    request = [ConsumerGroupTopicPartitions(group)]
    admin = admin_client(servers)
    (future,) = admin.list_consumer_group_offsets(request).values()
    return list(future.result(10).topic_partitions)


def test_a_member_that_vanishes_is_replaced_after_its_session(servers: str) -> None:
    topic, group = "vanish", "vanish-group"
    make(servers, topic, 2, 10)
    seen: list[bytes] = []
    gone = Consumer(
        {"bootstrap.servers": servers, "group.id": group, **TIMES, **QUIET, "max.poll.interval.ms": 6000}
    )
    gone.subscribe([topic])
    gone.poll(1.0)
    wait("the first member", lambda: bool(gone.assignment()) or gone.poll(0.1) is not None)
    # It never polls again: librdkafka stops its heartbeats after max.poll.interval.ms.
    heir = Member(servers, topic, group, seen)
    wait("the heir to have it all", lambda: heir.assigned == 2, 30)
    heir.close()
    gone.close()


def test_a_static_member_that_returns_keeps_its_partitions(servers: str) -> None:
    topic, group = "static", "static-group"
    make(servers, topic, 4, 40)
    seen: list[bytes] = []
    stays = Member(servers, topic, group, seen, **{"group.instance.id": "stays"})
    leaves = Member(servers, topic, group, seen, **{"group.instance.id": "leaves"})
    wait("both to have partitions", lambda: stays.assigned == leaves.assigned == 2)
    wait("all records", lambda: len(set(seen)) == 40)
    before = stays.rebalances
    leaves.close()  # a static member does not leave the group by closing
    back = Member(servers, topic, group, seen, **{"group.instance.id": "leaves"})
    wait("it to be back", lambda: back.assigned == 2)
    produce(servers, topic, range(40, 80))
    wait("the rest", lambda: len(set(seen)) == 80)
    assert stays.rebalances == before, "the others notice nothing"
    back.close()
    stays.close()


def test_offsets_and_members_survive_a_kill(kafka_cluster_factory: ClusterFactory) -> None:
    cluster = kafka_cluster_factory()
    servers = cluster.bootstrap_servers
    topic, group = "killed", "killed-group"
    make(servers, topic, 3, 300)
    seen: list[bytes] = []
    member = Member(servers, topic, group, seen)
    wait("all records", lambda: len(seen) == 300)
    wait("their offsets", lambda: sum(p.offset for p in committed(servers, group) if p.offset > 0) == 300)
    for round_ in range(3):
        cluster.kill(1)
        cluster.start(1)
        start = 300 + round_ * 100
        produce(servers, topic, range(start, start + 100))
        wait("the new records", lambda end=start + 100: len(set(seen)) == end, 30)
    wait("their offsets", lambda: sum(p.offset for p in committed(servers, group)) == 600)
    member.close()
    assert len(seen) == len(set(seen)) == 600, "nothing twice: the positions were kept"


def test_groups_are_administered_by_librdkafka(servers: str) -> None:
    make(servers, "administered", 1, 5)
    seen: list[bytes] = []
    member = Member(servers, "administered", "administered-group", seen)
    wait("its records", lambda: len(seen) == 5)
    admin = admin_client(servers)
    described = admin.describe_consumer_groups(["administered-group"])["administered-group"].result(10)
    assert described.state.name == "STABLE"
    assert [p.topic for m in described.members for p in m.assignment.topic_partitions] == ["administered"]
    assert described.members[0].host == "/127.0.0.1"
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["administered-group"])["administered-group"].result(10)
    member.close()
    listed = admin.list_consumer_groups().result(10)
    assert not listed.errors
    assert "administered-group" in {g.group_id for g in listed.valid}
    moved = ConsumerGroupTopicPartitions("administered-group", [TopicPartition("administered", 0, 2)])
    admin.alter_consumer_group_offsets([moved])["administered-group"].result(10)
    assert [p.offset for p in committed(servers, "administered-group")] == [2]
    admin.delete_consumer_groups(["administered-group"])["administered-group"].result(10)
    assert "administered-group" not in {g.group_id for g in admin.list_consumer_groups().result(10).valid}


def test_kafka_python_commits_and_rejoins(servers: str) -> None:
    from kafka import KafkaConsumer

    make(servers, "kp", 2, 100)

    def read(limit: int) -> list[bytes]:
        consumer = KafkaConsumer(
            "kp", bootstrap_servers=servers, group_id="kp-group", auto_offset_reset="earliest", consumer_timeout_ms=3000,
            enable_auto_commit=False, max_poll_records=10,
        )  # fmt: skip
        got = []
        for record in consumer:
            got.append(record.value)
            if len(got) == limit:
                break
        consumer.commit()
        consumer.close(autocommit=False)
        return got

    first = read(40)
    assert len(first) == 40
    rest = read(60)
    assert sorted(first + rest) == sorted(b"%d" % i for i in range(100))


def test_aiokafka_members_rebalance(servers: str) -> None:
    from aiokafka import AIOKafkaConsumer

    make(servers, "ai", 4, 200)

    async def run() -> None:
        seen: list[bytes] = []
        conf = {"bootstrap_servers": servers, "group_id": "ai-group", "auto_offset_reset": "earliest",
                "heartbeat_interval_ms": 100, "auto_commit_interval_ms": 100}  # fmt: skip
        consumers = [AIOKafkaConsumer("ai", **conf) for _ in range(2)]

        async def read(consumer: AIOKafkaConsumer) -> None:
            while True:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    seen.extend(r.value for r in records)

        for consumer in consumers:
            await consumer.start()
        tasks = [asyncio.ensure_future(read(c)) for c in consumers]
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if len(set(seen)) == 200 and [len(c.assignment()) for c in consumers] == [2, 2]:
                break
            await asyncio.sleep(0.02)
        assert sorted(set(seen)) == sorted(b"%d" % i for i in range(200))
        assert [len(c.assignment()) for c in consumers] == [2, 2]
        for task in tasks:
            task.cancel()
        for consumer in consumers:
            await consumer.stop()

    asyncio.run(run())


def test_a_transactional_producer_fails_at_once_because_transactions_are_not_supported(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "tx", **QUIET})
    started = time.monotonic()
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(20)
    assert caught.value.args[0].fatal()
    assert time.monotonic() - started < 10
