"""The driver over a replica in memory: activation, what waits for commits, loss of leadership, the clock, snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from quorate.controller.activation import ActivationError, activation_records
from quorate.metadata.bootstrap import bootstrap_records
from quorate.metadata.framing import encode_record
from quorate.metadata.image import EMPTY
from quorate.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from quorate.metadata.snapshot import SnapshotId, frame_batches, image_from_snapshot
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_partition import AlterPartitionRequest
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.broker_registration import BrokerRegistrationRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest
from quorate.protocol.messages.update_features import UpdateFeaturesRequest
from quorate.raft.types import OffsetEpoch

from .support import CLUSTER, LATEST, FakeLog, FakeRaft, Harness, directory, make_config, uid


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def registration(broker_id: int = 1, incarnation: int = 5) -> BrokerRegistrationRequest:
    feature = BrokerRegistrationRequest.Feature
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER,
        incarnation_id=uid(incarnation * 1000 + broker_id),
        features=[
            feature(name="metadata.version", min_supported_version=7, max_supported_version=LATEST),
            feature(name="kraft.version", min_supported_version=0, max_supported_version=1),
        ],
        log_dirs=[directory(broker_id)],
    )


async def broker(h: Harness, broker_id: int = 1) -> int:
    """A registered and unfenced broker; its broker epoch."""
    epoch: int = (await h.call(registration(broker_id))).broker_epoch
    await beat(h, broker_id, epoch)
    return epoch


async def beat(h: Harness, broker_id: int, epoch: int, **wants: bool) -> Any:
    return await h.call(
        BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=h.raft.log.end, **wants)
    )


def topics(*names: str, **changes: Any) -> CreateTopicsRequest:
    make = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(topics=[make(name=name, num_partitions=1, replication_factor=1) for name in names], **changes)


# -- activation


def test_an_empty_log_gets_the_bootstrap_records_in_a_transaction() -> None:
    async def test() -> None:
        h = await Harness(
            bootstrap=bootstrap_records({"metadata.version": LATEST, "eligible.leader.replicas.version": 1})
        ).start()
        assert [type(record) for record in h.records] == [
            BeginTransactionRecord,
            FeatureLevelRecord,
            FeatureLevelRecord,
            ConfigRecord,  # min.insync.replicas, which eligible leader replicas need
            EndTransactionRecord,
            RegisterControllerRecord,
        ]
        assert h.controller.image.features.metadata_version == LATEST
        assert h.controller.image.configs.cluster_default()["min.insync.replicas"] == "1"

    run(test())


@pytest.mark.parametrize(("level", "atomic"), [(12, True), (13, False)])
def test_before_transactions_the_bootstrap_records_are_one_batch(level: int, atomic: bool) -> None:
    records, is_atomic, _ = activation_records(EMPTY, bootstrap_records({"metadata.version": level}), 1)
    assert is_atomic is atomic
    assert isinstance(records[0], FeatureLevelRecord) is atomic


def test_a_log_with_a_metadata_version_is_taken_over_as_it_is() -> None:
    image = EMPTY.apply([FeatureLevelRecord(name="metadata.version", feature_level=20)], offset=0, epoch=1, timestamp_ms=0)
    assert activation_records(image, [], 1)[0] == []


def test_a_transaction_that_a_predecessor_left_open_is_aborted() -> None:
    image = EMPTY.apply(
        [BeginTransactionRecord(name="x"), TopicRecord(name="t", topic_id=uid(9))], offset=1, epoch=1, timestamp_ms=0
    )
    records, _, _ = activation_records(image, bootstrap_records({"metadata.version": LATEST}), 1)
    assert [type(record) for record in records] == [
        AbortTransactionRecord,
        BeginTransactionRecord,
        FeatureLevelRecord,
        EndTransactionRecord,
    ]


@pytest.mark.parametrize("bootstrap", [[], bootstrap_records({"group.version": 1, "metadata.version": 8})])
def test_a_log_that_no_controller_can_go_on_from_is_fatal(bootstrap: list[Any]) -> None:
    image = EMPTY if not bootstrap else EMPTY.apply([BeginTransactionRecord()], offset=0, epoch=1, timestamp_ms=0)
    with pytest.raises(ActivationError):
        activation_records(image, bootstrap, 1)

    async def test() -> None:
        h = Harness(bootstrap=[])
        await h.start()
        assert isinstance(h.fatal[0], ActivationError)
        assert not h.controller.is_active

    run(test())


def test_only_the_controllers_own_incarnation_is_registered_anew() -> None:
    async def test() -> None:
        h = await Harness().start()
        assert h.controller.image.cluster.controllers[1].incarnation_id == uid(0xC1)
        count = len(h.records)
        await broker(h)
        assert not any(isinstance(record, RegisterControllerRecord) for record in h.records[count:])

    run(test())


# -- answers and commits


def test_nothing_uncommitted_is_told() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        created = h.send(topics("a"))
        again = h.send(topics("a"))  # sees the first one, which is not committed
        unknown = h.send(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="zzz")]))
        await asyncio.sleep(0)
        assert not created.done()
        assert not again.done()
        assert not unknown.done()
        assert h.controller.image.topics.get("a") is None
        assert h.controller.next_image.topics.get("a") is not None
        h.raft.commit()
        assert (await created).topics[0].error_code == ErrorCode.NONE
        assert (await again).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert (await unknown).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert h.controller.image.topics.get("a") is not None

    run(test())


def test_without_uncommitted_state_a_refusal_is_told_at_once() -> None:
    async def test() -> None:
        h = await Harness().start()
        response = h.send(topics("a"))  # no broker
        assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR

    run(test())


def test_many_writes_are_in_flight_and_answered_as_far_as_the_log_is_committed() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        start = h.raft.log.end
        futures = [h.send(topics(f"t{index}")) for index in range(5)]
        h.raft.commit(start + 4)  # two topics of two records each
        await asyncio.sleep(0)
        assert [future.done() for future in futures] == [True, True, False, False, False]
        assert set(h.controller.image.topics.by_name) == {"t0", "t1"}
        assert h.controller.image.provenance.offset == start + 3
        h.raft.commit()
        assert len(h.controller.image.topics.by_name) == 5

    run(test())


def test_the_active_controllers_image_equals_that_of_a_standby() -> None:
    async def test() -> None:
        log = FakeLog()
        h = await Harness(FakeRaft(1, log, (1, 2))).start()
        await broker(h)
        await h.call(topics("a", "b"))
        standby = await Harness(FakeRaft(2, log, (1, 2)), node_id=2, listeners=[]).start(lead=False)
        standby.raft.commit()
        assert standby.controller.image == h.controller.image
        assert standby.controller.image.provenance.offset == h.controller.image.provenance.offset

    run(test())


def test_a_standby_answers_not_controller_and_reads() -> None:
    async def test() -> None:
        h = await Harness().start(lead=False)
        h.raft.follow(2, 5)
        with pytest.raises(KafkaError) as raised:
            h.send(topics("a"))
        assert raised.value.code == ErrorCode.NOT_CONTROLLER
        assert "node 2" in (raised.value.message or "")
        with pytest.raises(KafkaError) as raised:  # it has heard nothing of the leader yet
            h.send(DescribeClusterRequest(endpoint_type=2))
        assert (raised.value.code, "no metadata yet" in (raised.value.message or "")) == (ErrorCode.NOT_CONTROLLER, True)

    run(test())


def test_losing_the_leadership_fails_what_is_pending_and_reverts() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        future = h.send(topics("a"))
        committed = h.controller.image
        h.raft.follow(2, 2)
        with pytest.raises(KafkaError) as raised:
            await future
        assert raised.value.code == ErrorCode.NOT_CONTROLLER
        assert h.controller.image is committed
        assert h.controller.next_image is committed
        h.raft.log.truncate(h.raft.delivered)
        h.raft.become_leader(3)
        assert (await h.call(topics("a"))).topics[0].error_code == ErrorCode.NONE

    run(test())


def test_a_write_that_raft_refuses_leaves_no_trace() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        h.raft.refuse = True
        with pytest.raises(KafkaError) as raised:
            h.send(topics("a"))
        assert raised.value.code == ErrorCode.NOT_CONTROLLER
        assert not h.controller.is_active
        assert h.controller.image.topics.get("a") is None

    run(test())


def test_the_same_leader_in_a_new_epoch_begins_a_new_term() -> None:
    async def test() -> None:
        h = await Harness().start()
        h.raft.become_leader(7)
        assert (h.controller.is_active, h.controller.epoch) == (True, 7)

    run(test())


def test_a_request_whose_time_is_up_is_told_so() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        quick, patient = h.send(topics("a", timeout_ms=500)), h.send(topics("b", timeout_ms=60_000))
        h.advance(1.2)
        with pytest.raises(KafkaError) as raised:
            await quick
        assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert not patient.done()
        h.raft.commit()
        assert (await patient).topics[0].error_code == ErrorCode.NONE

    run(test())


def test_closing_fails_what_is_pending() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        future = h.send(topics("a"))
        await h.controller.close()
        with pytest.raises(KafkaError):
            await future

    run(test())


def test_a_record_that_cannot_be_replayed_is_fatal_on_a_standby() -> None:
    async def test() -> None:
        h = await Harness().start(lead=False)
        h.raft.log.add(1, [encode_record(TopicRecord(name="t", topic_id=uid(1000)), 0)] * 2)
        h.raft.commit()
        assert "offset 1" in str(h.fatal[0])
        assert h.controller.image is EMPTY

    run(test())


def test_an_unforeseen_error_of_a_handler_changes_nothing() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        request = AlterPartitionRequest(broker_id=1, broker_epoch=None)  # type: ignore[arg-type]
        with pytest.raises(KafkaError):
            h.send(request)
        assert (await h.call(topics("a"))).topics[0].error_code == ErrorCode.NONE

    run(test())


# -- brokers and the clock


def test_silence_fences_a_broker() -> None:
    async def test() -> None:
        h = await Harness().start()
        epoch = await broker(h)
        await h.call(topics("a"))
        for _ in range(5):
            h.advance(8.9)
            await beat(h, 1, epoch)
        assert not h.controller.image.cluster.brokers[1].fenced
        h.advance(8.9)
        h.raft.commit()
        assert not h.controller.image.cluster.brokers[1].fenced
        h.advance(0.2)
        h.raft.commit()
        assert h.controller.image.cluster.brokers[1].fenced
        partition = h.controller.image.topics.partition_of("a", 0)
        assert partition is not None
        assert partition.leader == -1

    run(test())


def test_brokers_that_fall_silent_together_are_fenced_one_after_the_other() -> None:
    async def test() -> None:
        h = await Harness().start()
        for broker_id in (1, 2, 3):
            await broker(h, broker_id)
        make = CreateTopicsRequest.CreatableTopic
        await h.call(CreateTopicsRequest(topics=[make(name="a", num_partitions=3, replication_factor=3)]))
        h.advance(10)
        h.raft.commit()
        assert all(registered.fenced for registered in h.controller.image.cluster.brokers.values())
        topic = h.controller.image.topics.by_name["a"]
        assert all(partition.leader == -1 and len(partition.isr) == 1 for partition in topic.partitions)

    run(test())


def test_a_new_active_controller_gives_every_broker_a_whole_session() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        h.advance(8)
        h.raft.follow(2, 2)
        h.advance(8)
        h.raft.become_leader(3)
        h.advance(8.9)
        h.raft.commit()
        assert not h.controller.image.cluster.brokers[1].fenced
        h.advance(0.2)
        h.raft.commit()
        assert h.controller.image.cluster.brokers[1].fenced

    run(test())


@pytest.mark.parametrize(("combined", "code"), [(False, ErrorCode.DUPLICATE_BROKER_REGISTRATION), (True, ErrorCode.NONE)])
def test_the_broker_in_the_same_process_may_come_back_at_once(combined: bool, code: ErrorCode) -> None:
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
        assert again.controller.image.cluster.brokers[1].fenced

    run(test())


def test_controlled_shutdown_waits_until_the_others_know() -> None:
    async def test() -> None:
        h = await Harness().start()
        first, second = await broker(h, 1), await broker(h, 2)
        make = CreateTopicsRequest.CreatableTopic
        await h.call(CreateTopicsRequest(topics=[make(name="a", num_partitions=2, replication_factor=2)]))
        response = await beat(h, 1, first, want_shut_down=True)
        assert not response.should_shut_down
        assert h.controller.image.cluster.brokers[1].in_controlled_shutdown
        assert all(partition.leader == 2 for partition in h.controller.image.topics.by_name["a"].partitions)
        assert not (await beat(h, 1, first, want_shut_down=True)).should_shut_down
        await beat(h, 2, second)
        assert (await beat(h, 1, first, want_shut_down=True)).should_shut_down
        assert h.controller.image.cluster.brokers[1].fenced

    run(test())


def test_a_broker_that_has_left_in_good_order_may_come_back_at_once() -> None:
    async def test() -> None:
        h = await Harness().start()
        epoch = await broker(h)
        assert (await beat(h, 1, epoch, want_shut_down=True)).should_shut_down
        assert (await h.call(registration(incarnation=6))).broker_epoch > epoch

    run(test())


class Connection:
    """As much of a server's connection as the controller uses."""

    def __init__(self) -> None:
        self.callbacks: list[Any] = []

    def on_close(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def lose(self) -> None:
        for callback in self.callbacks:
            callback()


def beat_over(connection: Connection, h: Harness, epoch: int) -> Any:
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=h.raft.log.end)
    return h.send(request, connection=connection)


def test_a_broker_whose_connection_breaks_has_less_time_to_come_back() -> None:
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
        beat_over(second, h, epoch)
        second.lose()
        h.advance(3.1)
        h.raft.commit()
        assert h.controller.image.cluster.brokers[1].fenced

    run(test())


@pytest.mark.parametrize(
    ("lost", "log_dir", "code"),
    [
        (True, directory(1), ErrorCode.NONE),
        (True, uid(0xDDDD0000), ErrorCode.DUPLICATE_BROKER_REGISTRATION),
        (False, directory(1), ErrorCode.DUPLICATE_BROKER_REGISTRATION),
    ],
)
def test_a_killed_brokers_successor_on_the_same_disks_need_not_wait(lost: bool, log_dir: bytes, code: ErrorCode) -> None:
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


def test_leaderships_go_back_to_preferred_replicas() -> None:
    async def test() -> None:
        h = await Harness().start()
        first, second = await broker(h, 1), await broker(h, 2)
        make, assignment = CreateTopicsRequest.CreatableTopic, CreateTopicsRequest.CreatableReplicaAssignment
        wanted = make(
            name="a", num_partitions=-1, replication_factor=-1, assignments=[assignment(partition_index=0, broker_ids=[1, 2])]
        )
        await h.call(CreateTopicsRequest(topics=[wanted]))
        await beat(h, 1, first, want_fence=True)
        await beat(h, 1, first)
        part = AlterPartitionRequest.PartitionData(
            partition_index=0,
            leader_epoch=1,
            partition_epoch=1,
            new_isr_with_epochs=[AlterPartitionRequest.BrokerState(broker_id=broker_id) for broker_id in (1, 2)],
        )
        topic_id = h.controller.image.topics.by_name["a"].id
        data = AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[part])
        response = await h.call(AlterPartitionRequest(broker_id=2, broker_epoch=second, topics=[data]))
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        for _ in range(60):
            h.advance(5)
            await beat(h, 1, first)
            await beat(h, 2, second)
        partition = h.controller.image.topics.partition_of("a", 0)
        assert partition is not None
        assert partition.leader == 1

    run(test())


def test_expired_tokens_are_removed() -> None:
    async def test() -> None:
        h = await Harness(token_secret="s").start()
        now_ms = h.clock.now_ms()
        record = DelegationTokenRecord(owner="User:a", token_id="x", max_timestamp=now_ms + 1, expiration_timestamp=now_ms + 1)
        h.controller.write([record])
        h.raft.commit()
        h.advance(3601)
        h.raft.commit()
        assert len(h.controller.image.delegation_tokens.tokens) == 0

    run(test())


# -- kraft.version


@pytest.mark.parametrize("failing", [False, True])
def test_an_upgrade_of_kraft_version_goes_through_raft_first(failing: bool) -> None:
    async def test() -> None:
        h = await Harness().start()
        h.raft.kraft_version = h.raft.kraft_version_finalised = 0
        if failing:
            h.raft.upgrade_error = KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "voter 3 has not said what it supports")
        key = UpdateFeaturesRequest.FeatureUpdateKey
        request = UpdateFeaturesRequest(feature_updates=[key(feature="kraft.version", max_version_level=1)])
        before = len(h.records)
        response = await h.call(request)
        if failing:
            assert (response.error_code, len(h.records)) == (ErrorCode.INVALID_UPDATE_VERSION, before)
            assert "voter 3" in response.error_message
        else:
            assert (response.error_code, h.raft.upgrades) == (ErrorCode.NONE, [(1, False)])
            assert isinstance(h.records[-1], NoOpRecord)

    run(test())


# -- snapshots


def test_a_snapshot_is_written_by_bytes_and_gives_the_image_again() -> None:
    async def test() -> None:
        h = await Harness(snapshot_bytes=1000).start()
        await broker(h)
        for index in range(20):
            await h.call(topics(f"t{index}"))
            await h.controller.snapshots.settled()
        assert len(h.raft.snapshots) >= 2
        end, epoch, timestamp_ms, batches = h.raft.snapshots[-1]
        whole = b"".join(
            frame_batches(batches, epoch=epoch, last_contained_timestamp_ms=timestamp_ms, kraft_version=0, voters=None, now_ms=0)
        )
        loaded = image_from_snapshot(whole, SnapshotId(end, epoch))
        assert loaded.cluster.brokers[1].epoch == h.controller.image.cluster.brokers[1].epoch
        assert set(loaded.topics.by_name) <= set(h.controller.image.topics.by_name)
        assert loaded.provenance.offset == end - 1

    run(test())


def test_a_snapshot_is_written_by_time_only_when_something_changed() -> None:
    async def test() -> None:
        h = await Harness(snapshot_interval_s=3600.0).start()
        h.advance(3601)
        await h.controller.snapshots.settled()
        assert h.raft.snapshots == []
        await broker(h)
        await h.controller.snapshots.settled()
        assert len(h.raft.snapshots) == 1

    run(test())


def test_a_snapshot_replaces_the_state_of_a_standby() -> None:
    async def test() -> None:
        h = await Harness(snapshot_bytes=100).start()
        await broker(h)
        await h.call(topics("a"))
        await h.controller.snapshots.settled()
        end, epoch, timestamp_ms, batches = h.raft.snapshots[-1]
        whole = b"".join(
            frame_batches(batches, epoch=epoch, last_contained_timestamp_ms=timestamp_ms, kraft_version=0, voters=None, now_ms=0)
        )
        from quorate.metadata.snapshot import read_snapshot

        standby = await Harness(FakeRaft(2), node_id=2, listeners=[]).start(lead=False)
        for _ in standby.controller.on_snapshot(OffsetEpoch(end, epoch), iter(read_snapshot(whole).batches)):
            pass
        assert standby.controller.committed_offset == end - 1
        assert set(standby.controller.image.cluster.brokers) == {1}

    run(test())


def test_what_is_told_of_features() -> None:
    async def test() -> None:
        h = await Harness().start()
        state = h.controller.features()
        assert ("metadata.version", LATEST) in state.finalized
        assert ("kraft.version", 1) in state.finalized
        assert ("metadata.version", 7, LATEST) in state.supported
        assert state.epoch == h.raft.delivered - 1
        assert make_config().features["group.version"] == (0, 1)

    run(test())
