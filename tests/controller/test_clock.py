"""The driver on a replica in memory: broker sessions and periodic tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quorate.config.kafka_config import KafkaConfig
from quorate.controller.config import ControllerConfig
from quorate.metadata.records import (
    DelegationTokenRecord,
    NoOpRecord,
)
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_partition import AlterPartitionRequest
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest

from .requests import beat, broker, registration, run, topics
from .support import Connection, FakeLog, FakeRaft, Harness, directory, uid


def test_a_broker_without_heartbeats_is_fenced() -> None:
    async def test() -> None:
        h = await Harness().start()
        epoch = await broker(h)
        await h.call(topics("a"))
        for _ in range(5):
            h.advance(8.9)
            await beat(h, 1, epoch)
        assert not h.controller.state.image.cluster.brokers[1].fenced
        h.advance(8.9)
        h.raft.commit()
        assert not h.controller.state.image.cluster.brokers[1].fenced
        h.advance(0.2)
        h.raft.commit()
        assert h.controller.state.image.cluster.brokers[1].fenced
        partition = h.controller.state.image.topics.partition_of("a", 0)
        assert partition is not None
        assert partition.leader == -1

    run(test())


def test_brokers_that_fall_silent_together_are_fenced_together() -> None:
    async def test() -> None:
        h = await Harness().start()
        for broker_id in (1, 2, 3):
            await broker(h, broker_id)
        make = CreateTopicsRequest.CreatableTopic
        await h.call(CreateTopicsRequest(topics=[make(name="a", num_partitions=3, replication_factor=3)]))
        h.advance(10)
        h.raft.commit()
        assert all(registered.fenced for registered in h.controller.state.image.cluster.brokers.values())
        topic = h.controller.state.image.topics.by_name["a"]
        changed_once = [(p.leader, len(p.isr), p.partition_epoch) for p in topic.partitions]
        assert changed_once == [(-1, 3, 1)] * 3, "each of them has every committed record"

    run(test())


def test_a_new_active_controller_gives_every_broker_a_full_session() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        h.advance(8)
        h.raft.follow(2, 2)
        h.advance(8)
        h.raft.become_leader(3)
        h.advance(8.9)
        h.raft.commit()
        assert not h.controller.state.image.cluster.brokers[1].fenced
        h.advance(0.2)
        h.raft.commit()
        assert h.controller.state.image.cluster.brokers[1].fenced

    run(test())


@pytest.mark.parametrize(
    ("combined", "code"), [(False, ErrorCode.DUPLICATE_BROKER_REGISTRATION), (True, ErrorCode.NONE)]
)
def test_the_broker_in_the_same_process_may_return_at_once(combined: bool, code: ErrorCode) -> None:
    async def test() -> None:
        log = FakeLog()
        first = await Harness(FakeRaft(1, log), is_broker_too=combined).start()
        await broker(first)
        second = Harness(FakeRaft(1, log), is_broker_too=combined)  # the process was killed and started again
        await second.start(lead=False)
        second.raft.commit()
        second.raft.become_leader(2)
        try:
            await second.call(registration(incarnation=6))
            found = ErrorCode.NONE
        except KafkaError as error:
            found = error.code
        assert found == code

    run(test())


def test_a_predecessor_of_the_broker_in_the_same_process_is_fenced_when_no_successor_comes() -> None:
    async def test() -> None:
        log = FakeLog()
        await broker(await Harness(FakeRaft(1, log), is_broker_too=True).start())
        again = Harness(FakeRaft(1, log), is_broker_too=True)
        await again.start(lead=False)
        again.raft.commit()
        again.raft.become_leader(2)
        again.advance(9.1)
        again.raft.commit()
        assert again.controller.state.image.cluster.brokers[1].fenced

    run(test())


def test_controlled_shutdown_waits_until_other_brokers_have_applied_it() -> None:
    async def test() -> None:
        h = await Harness().start()
        first, second = await broker(h, 1), await broker(h, 2)
        make = CreateTopicsRequest.CreatableTopic
        await h.call(CreateTopicsRequest(topics=[make(name="a", num_partitions=2, replication_factor=2)]))
        response = await beat(h, 1, first, want_shut_down=True)
        assert not response.should_shut_down
        assert h.controller.state.image.cluster.brokers[1].in_controlled_shutdown
        assert all(
            partition.leader == 2 for partition in h.controller.state.image.topics.by_name["a"].partitions
        )
        assert not (await beat(h, 1, first, want_shut_down=True)).should_shut_down
        await beat(h, 2, second)
        assert (await beat(h, 1, first, want_shut_down=True)).should_shut_down
        assert h.controller.state.image.cluster.brokers[1].fenced

    run(test())


def test_a_broker_may_return_at_once_after_a_controlled_shutdown() -> None:
    async def test() -> None:
        h = await Harness().start()
        epoch = await broker(h)
        assert (await beat(h, 1, epoch, want_shut_down=True)).should_shut_down
        assert (await h.call(registration(incarnation=6))).broker_epoch > epoch

    run(test())


def beat_over(connection: Connection, h: Harness, epoch: int) -> Any:
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=h.raft.log.end)
    return h.send(request, connection=connection)


def test_a_broker_that_loses_its_connection_has_less_time_to_return() -> None:
    async def test() -> None:
        h = await Harness().start()
        epoch, first, second = await broker(h), Connection(), Connection()
        beat_over(first, h, epoch)
        beat_over(first, h, epoch)
        assert len(first.callbacks) == 1
        first.lose()
        h.advance(2.9)
        beat_over(second, h, epoch)  # it is back in time
        h.advance(8.9)
        beat_over(second, h, epoch)
        first.lose()
        h.advance(3.1)
        for _ in range(9):  # as a broker sends them
            beat_over(second, h, epoch)
            h.advance(2.0)
        second.lose()
        h.advance(3.1)
        h.raft.commit()
        assert h.controller.state.image.cluster.brokers[1].fenced

    run(test())


@pytest.mark.parametrize("heard", [False, True])
def test_a_stall_of_the_controller_extends_the_sessions(
    heard: bool,
) -> None:
    async def test() -> None:
        h = Harness()
        await h.controller.start()  # with timers
        h.raft.become_leader(1)
        h.raft.commit()
        epoch = await broker(h)
        beat_over(Connection(), h, epoch)
        began = h.controller.tasks.next_due()
        h.clock.seconds += 60.0  # nothing has run meanwhile
        if heard:  # its socket was read before the clock was looked at
            beat_over(Connection(), h, epoch)
        async with asyncio.timeout(10):
            while h.controller.tasks.next_due() == began:
                await asyncio.sleep(0.01)  # the timer
        h.raft.commit()
        assert not h.controller.state.image.cluster.brokers[1].fenced
        h.advance(8.0)
        h.raft.commit()
        assert not h.controller.state.image.cluster.brokers[1].fenced
        h.advance(1.5)  # silence while the controller was running
        h.raft.commit()
        assert h.controller.state.image.cluster.brokers[1].fenced
        await h.controller.close()

    run(test())


@pytest.mark.parametrize(("configured_s", "seen_s"), [(2.0, 5.0), (5.0, 5.0), (2.0, 8.5)])
def test_a_broker_that_loses_its_connection_has_time_until_its_next_heartbeat(
    configured_s: float, seen_s: float
) -> None:
    """The time depends on the interval of its heartbeats, but is not longer than its session. Additional
    early heartbeats do not change the interval."""

    async def test() -> None:
        h = await Harness(lost_connection_grace_s=max(3.0, 1.5 * configured_s)).start()
        epoch, connection = await broker(h), Connection()
        for _ in range(2):
            beat_over(connection, h, epoch)
            h.advance(seen_s)
        for _ in range(5):
            beat_over(connection, h, epoch)
            h.advance(0.01)
        connection.lose()
        h.advance(seen_s)
        h.raft.commit()
        assert not h.controller.state.image.cluster.brokers[1].fenced
        h.advance(min(0.5 * seen_s, 9.0 - seen_s) + 0.1)
        h.raft.commit()
        assert h.controller.state.image.cluster.brokers[1].fenced

    run(test())


def test_a_new_controller_uses_the_configured_heartbeat_interval() -> None:
    async def test() -> None:
        h = await Harness(lost_connection_grace_s=7.5).start()
        epoch, connection = await broker(h), Connection()
        h.raft.follow(2, 2)
        h.raft.become_leader(3)
        beat_over(connection, h, epoch)
        connection.lose()
        h.advance(7.4)
        h.raft.commit()
        assert not h.controller.state.image.cluster.brokers[1].fenced
        h.advance(0.2)
        h.raft.commit()
        assert h.controller.state.image.cluster.brokers[1].fenced

    run(test())


def test_the_grace_depends_on_the_configured_heartbeat_interval() -> None:
    def grace_s(text: dict[str, str]) -> float:
        given = {
            "process.roles": "controller",
            "node.id": "1",
            "listeners": "CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "log.dirs": "/tmp/any",
        }
        config = KafkaConfig.from_properties(given | text)
        made = ControllerConfig.from_kafka_config(config, cluster_id="c", incarnation_id=uid(1), bootstrap=[])
        return made.lost_connection_grace_s

    assert grace_s({}) == 3.0
    assert grace_s({"broker.heartbeat.interval.ms": "6000"}) == 9.0


@pytest.mark.parametrize(
    ("lost", "log_dir", "code"),
    [
        (True, directory(1), ErrorCode.NONE),
        (True, uid(0xDDDD0000), ErrorCode.DUPLICATE_BROKER_REGISTRATION),
        (False, directory(1), ErrorCode.DUPLICATE_BROKER_REGISTRATION),
    ],
)
def test_a_killed_brokers_successor_on_the_same_disks_need_not_wait(
    lost: bool, log_dir: bytes, code: ErrorCode
) -> None:
    async def test() -> None:
        h = await Harness().start()
        connection = Connection()
        beat_over(connection, h, await broker(h))
        if lost:
            connection.lose()
        request = registration(incarnation=6)
        request.log_dirs = [log_dir]
        try:
            await h.call(request)
            found = ErrorCode.NONE
        except KafkaError as error:
            found = error.code
        assert found == code

    run(test())


def test_an_idle_log_gets_noop_records() -> None:
    async def test() -> None:
        h = await Harness(max_idle_interval_s=0.5).start()
        await broker(h)
        h.advance(0.4)
        await h.call(topics("a"))  # not idle
        h.advance(0.45)
        assert not any(isinstance(record, NoOpRecord) for record in h.records)
        h.advance(0.9)
        assert sum(isinstance(record, NoOpRecord) for record in h.records) == 2

    run(test())


def test_leaderships_return_to_preferred_replicas() -> None:
    async def test() -> None:
        h = await Harness().start()
        first, second = await broker(h, 1), await broker(h, 2)
        make, assignment = CreateTopicsRequest.CreatableTopic, CreateTopicsRequest.CreatableReplicaAssignment
        wanted = make(
            name="a",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[assignment(partition_index=0, broker_ids=[1, 2])],
        )
        await h.call(CreateTopicsRequest(topics=[wanted]))
        await beat(h, 1, first, want_fence=True)
        await beat(h, 1, first)
        part = AlterPartitionRequest.PartitionData(
            partition_index=0,
            leader_epoch=1,
            partition_epoch=1,
            new_isr_with_epochs=[
                AlterPartitionRequest.BrokerState(broker_id=broker_id) for broker_id in (1, 2)
            ],
        )
        topic_id = h.controller.state.image.topics.by_name["a"].id
        data = AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[part])
        response = await h.call(AlterPartitionRequest(broker_id=2, broker_epoch=second, topics=[data]))
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        for _ in range(60):
            h.advance(5)
            await beat(h, 1, first)
            await beat(h, 2, second)
        partition = h.controller.state.image.topics.partition_of("a", 0)
        assert partition is not None
        assert partition.leader == 1

    run(test())


def test_expired_tokens_are_removed() -> None:
    async def test() -> None:
        h = await Harness(token_secret="s").start()
        now_ms = h.clock.now_ms()
        record = DelegationTokenRecord(
            owner="User:a", token_id="x", max_timestamp=now_ms + 1, expiration_timestamp=now_ms + 1
        )
        h.controller.state.write([record])
        h.raft.commit()
        h.advance(3601)
        h.raft.commit()
        assert len(h.controller.state.image.delegation_tokens.tokens) == 0

    run(test())


def test_a_lost_connection_does_not_hide_that_the_process_was_suspended() -> None:
    """A thawed process may read its sockets, and learn that a connection is gone, before its timers run."""

    async def test() -> None:
        h = Harness()
        await h.controller.start()
        h.raft.become_leader(1)
        h.raft.commit()
        h.raft.commit()
        sessions = [(broker_id, await broker(h, broker_id)) for broker_id in (1, 2)]
        h.controller.connection_lost((3, 0))  # sets the timer to the first session's end
        h.clock.seconds += 20  # nothing runs
        h.controller.connection_lost(sessions[0])
        for _ in range(5):
            await asyncio.sleep(0.005)
            h.raft.commit()
        brokers = h.controller.state.image.cluster.brokers
        fenced = [broker_id for broker_id, _ in sessions if brokers[broker_id].fenced]
        await h.controller.close()
        assert 2 not in fenced

    run(test())
