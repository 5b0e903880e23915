"""Random histories of a cluster from a printed seed, with invariants that are checked after every event."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from quorate.controller.handlers.alter_partition import alter_partition
from quorate.controller.handlers.alter_partition_reassignments import alter_partition_reassignments
from quorate.controller.handlers.assign_replicas_to_dirs import assign_replicas_to_dirs
from quorate.controller.handlers.broker_heartbeat import broker_heartbeat
from quorate.controller.handlers.create_partitions import create_partitions
from quorate.controller.handlers.create_topics import create_topics
from quorate.controller.handlers.delete_topics import delete_topics
from quorate.controller.handlers.elect_leaders import elect_leaders
from quorate.controller.handlers.register_broker import register_broker
from quorate.controller.handlers.unregister_broker import unregister_broker
from quorate.controller.replication.fencing import fence_expired
from quorate.metadata.image import EMPTY
from quorate.metadata.image.builder import apply_records
from quorate.metadata.image.writer import image_records
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_partition import AlterPartitionRequest
from quorate.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from quorate.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.broker_registration import BrokerRegistrationRequest
from quorate.protocol.messages.create_partitions import CreatePartitionsRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest
from quorate.protocol.messages.elect_leaders import ElectLeadersRequest
from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest

from .support import CLUSTER, LATEST, Cluster, directory, uid

BROKERS = range(1, 6)


class World:
    """A cluster, and random events."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.level = self.rng.choice([11, 14, 20, LATEST])
        static = {
            "min.insync.replicas": str(self.rng.choice([1, 2])),
            "unclean.leader.election.enable": self.rng.choice(["true", "false"]),
        }
        self.cluster = Cluster(self.level, static=static, default_replication_factor=3)
        self.cluster.kraft_version = 0
        self.cluster.rng = self.rng
        if self.level == LATEST and self.rng.random() < 0.7:
            self.cluster.elr()
        self.incarnations = 0
        self.events: list[Callable[[], None]] = [
            self.register,
            self.register,
            self.heartbeat,
            self.heartbeat,
            self.heartbeat,
            self.expire,
            self.unregister,
            self.create,
            self.create,
            self.extend,
            self.delete,
            self.change_isr,
            self.change_isr,
            self.change_isr,
            self.elect,
            self.reassign,
            self.reassign,
            self.assign,
            self.assign,
        ]

    def step(self) -> None:
        self.cluster.now += self.rng.random()
        self.rng.choice(self.events)()

    # -- events

    def handle(self, handler: Any, request: Any) -> Any:
        try:
            result = self.cluster.run(handler, request)
        except KafkaError:
            return None
        broker_sessions, touch = self.cluster.broker_sessions, result.touch
        if touch is not None:
            broker_sessions.touch(touch.broker_id, touch.fenced, touch.metadata_offset)
            if touch.in_controlled_shutdown:
                broker_sessions.begin_shutdown(touch.broker_id, self.cluster.offset - 1)
        if result.registered is not None:
            broker_sessions.forget(result.registered)
        return result

    def some_topic(self) -> Any:
        topics = list(self.cluster.image.topics.by_name.values())
        return self.rng.choice(topics) if topics else None

    def register(self) -> None:
        broker_id = self.rng.choice(BROKERS)
        self.incarnations += 1
        known = self.cluster.image.cluster.brokers.get(broker_id)
        feature = BrokerRegistrationRequest.Feature
        names = ("metadata.version", "eligible.leader.replicas.version")
        self.handle(
            register_broker,
            BrokerRegistrationRequest(
                broker_id=broker_id,
                cluster_id=CLUSTER,
                incarnation_id=uid(self.incarnations),
                rack=f"r{broker_id % 2}",
                features=[
                    feature(name=name, min_supported_version=0, max_supported_version=LATEST)
                    for name in names
                ],
                log_dirs=[directory(broker_id, n) for n in range(2)],
                previous_broker_epoch=known.epoch if known and self.rng.random() < 0.5 else -1,
            ),
        )

    def heartbeat(self) -> None:
        broker_id = self.rng.choice(BROKERS)
        known = self.cluster.image.cluster.brokers.get(broker_id)
        if known is not None:
            offline = [directory(broker_id, 0)] if self.rng.random() < 0.1 else []
            self.handle(
                broker_heartbeat,
                BrokerHeartbeatRequest(
                    broker_id=broker_id,
                    broker_epoch=known.epoch,
                    current_metadata_offset=self.cluster.offset,
                    want_fence=self.rng.random() < 0.1,
                    want_shut_down=self.rng.random() < 0.15,
                    offline_log_dirs=offline if self.level >= 17 else [],
                ),
            )

    def expire(self) -> None:
        known = self.cluster.image.cluster.brokers.get(self.rng.choice(BROKERS))
        if known is not None:
            self.cluster.apply(fence_expired(self.cluster.view, [(known.id, known.epoch)])[0])
            self.cluster.broker_sessions.touch(known.id, True, 0)

    def unregister(self) -> None:
        if self.rng.random() < 0.2:
            self.handle(unregister_broker, UnregisterBrokerRequest(broker_id=self.rng.choice(BROKERS)))

    def create(self) -> None:
        make = CreateTopicsRequest.CreatableTopic
        wanted = make(
            name=f"t{self.rng.randrange(6)}",
            num_partitions=self.rng.randrange(1, 5),
            replication_factor=self.rng.randrange(1, 4),
        )
        self.handle(create_topics, CreateTopicsRequest(topics=[wanted]))

    def extend(self) -> None:
        topic = self.some_topic()
        if topic is not None:
            wanted = CreatePartitionsRequest.CreatePartitionsTopic(
                name=topic.name, count=len(topic.partitions) + 1, assignments=None
            )
            self.handle(create_partitions, CreatePartitionsRequest(topics=[wanted]))

    def delete(self) -> None:
        topic = self.some_topic()
        if topic is not None and self.rng.random() < 0.3:
            state = DeleteTopicsRequest.DeleteTopicState(topic_id=topic.id)
            self.handle(delete_topics, DeleteTopicsRequest(topics=[state]))

    def change_isr(self) -> None:
        """Changes an ISR as its leader could: to any eligible replicas and itself."""
        topic = self.some_topic()
        if topic is None:
            return
        index = self.rng.randrange(len(topic.partitions))
        partition = topic.partitions[index]
        leader = self.cluster.image.cluster.brokers.get(partition.leader)
        if leader is None:
            return
        others = [r for r in partition.replicas if r != partition.leader and self.cluster.view.is_active(r)]
        members = [partition.leader, *self.rng.sample(others, self.rng.randrange(len(others) + 1))]
        state = AlterPartitionRequest.BrokerState
        part = AlterPartitionRequest.PartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[state(broker_id=member) for member in members],
        )
        data = AlterPartitionRequest.TopicData(topic_id=topic.id, partitions=[part])
        request = AlterPartitionRequest(broker_id=leader.id, broker_epoch=leader.epoch, topics=[data])
        result = self.handle(alter_partition, request)
        answer = result.response.topics[0].partitions[0]
        after = self.cluster.image.topics.by_id[topic.id].partitions[index]
        if answer.error_code == ErrorCode.NONE:
            told = (answer.leader_id, answer.leader_epoch, tuple(answer.isr), answer.partition_epoch)
            assert told == (after.leader, after.leader_epoch, after.isr, after.partition_epoch)
        elif answer.error_code == ErrorCode.NEW_LEADER_ELECTED:
            assert after.leader != leader.id

    def elect(self) -> None:
        self.handle(
            elect_leaders, ElectLeadersRequest(election_type=self.rng.randrange(2), topic_partitions=None)
        )

    def reassign(self) -> None:
        topic = self.some_topic()
        if topic is None:
            return
        target: list[int] | None = self.rng.sample(BROKERS, self.rng.randrange(1, 4))
        if self.rng.random() < 0.3:
            target = None
        kind = AlterPartitionReassignmentsRequest
        part = kind.ReassignablePartition(
            partition_index=self.rng.randrange(len(topic.partitions)), replicas=target
        )
        self.handle(
            alter_partition_reassignments,
            kind(topics=[kind.ReassignableTopic(name=topic.name, partitions=[part])]),
        )

    def assign(self) -> None:
        """Reports the directory of a replica, which may have failed meanwhile."""
        topic = self.some_topic()
        if topic is None:
            return
        index = self.rng.randrange(len(topic.partitions))
        broker = self.cluster.image.cluster.brokers.get(self.rng.choice(topic.partitions[index].replicas))
        if broker is None:
            return
        kind = AssignReplicasToDirsRequest
        part = kind.TopicData(topic_id=topic.id, partitions=[kind.PartitionData(partition_index=index)])
        place = kind.DirectoryData(id=directory(broker.id, self.rng.randrange(2)), topics=[part])
        self.handle(
            assign_replicas_to_dirs,
            kind(broker_id=broker.id, broker_epoch=broker.epoch, directories=[place]),
        )

    # -- what must hold

    def check(self, before: Any) -> None:
        image = self.cluster.image
        for topic in image.topics.by_name.values():
            old_topic = before.topics.by_id.get(topic.id)
            for index, partition in topic.partitions.items():
                replicas = set(partition.replicas)
                assert len(replicas) == len(partition.replicas) > 0
                assert len(partition.directories) == len(partition.replicas)
                assert set(partition.isr) <= replicas
                assert set(partition.elr) <= replicas
                assert not set(partition.isr) & set(partition.elr)
                assert set(partition.adding_replicas) | set(partition.removing_replicas) <= replicas
                assert partition.isr or self.cluster.view.elr_enabled
                if partition.leader >= 0:
                    assert partition.leader in partition.isr
                    assert not image.cluster.brokers[partition.leader].fenced
                    assert self.cluster.view.has_online_directory(
                        partition.leader, partition.directory(partition.leader)
                    )
                    assert not partition.last_known_elr
                old = old_topic.partitions.get(index) if old_topic is not None else None
                if old is not None and old is not partition:
                    assert partition.partition_epoch > old.partition_epoch
                    assert (partition.leader_epoch > old.leader_epoch) or (
                        partition.leader == old.leader and set(old.replicas) <= set(partition.replicas)
                    )
        for broker_id, registration in image.cluster.brokers.items():
            assert not registration.fenced or not image.topics.leads_any(broker_id)


@pytest.mark.parametrize("seed", range(60))
def test_a_random_history(seed: int) -> None:
    world = World(seed)
    for number in range(120):
        before = world.cluster.image
        world.step()
        try:
            world.check(before)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, event {number}") from error
    again = apply_records(EMPTY, list(image_records(world.cluster.image)), offset=0, epoch=1, timestamp_ms=0)
    assert again.topics == world.cluster.image.topics
