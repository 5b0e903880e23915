"""Atomic changes of more than 10,000 records, which are written in metadata transactions (KIP-868)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from quorate.controller.config import MAX_RECORDS_PER_USER_OP
from quorate.controller.requests import atomic_changes
from quorate.controller.requests.atomic_changes import MAX_PARTS_IN_FLIGHT, PART_RECORDS
from quorate.metadata.image import MetadataImage
from quorate.metadata.loader import apply_committed
from quorate.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from quorate.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from quorate.protocol.messages.create_partitions import CreatePartitionsRequest
from quorate.protocol.messages.create_topics import CreateTopicsRequest

from .requests import beat, broker, run, topics
from .support import FakeLog, FakeRaft, Harness

LIMIT = 100_000
MANY = 10 * PART_RECORDS + 7


def large(name: str = "large", partitions: int = MANY, **changes: Any) -> CreateTopicsRequest:
    make = CreateTopicsRequest.CreatableTopic
    topic = make(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], **changes)


async def started(**config: Any) -> Harness:
    h = await Harness(max_records_per_op=LIMIT, **config).start()
    await broker(h)
    return h


async def until(condition: Callable[[], object], *, each_turn: Callable[[], object] = lambda: None) -> None:
    """Lets the event loop run until the condition holds."""
    for _ in range(20_000):
        if condition():
            return
        each_turn()
        await asyncio.sleep(0)
    raise AssertionError("the condition was not reached")


async def answered(h: Harness, answer: Any) -> Any:
    """Commits all that is written, until the answer arrives."""
    await until(answer.done, each_turn=h.raft.commit)
    return await answer


async def begun(h: Harness, parts: int = 1) -> None:
    """Waits until so many parts of a transaction are written. All but the last one are committed."""
    first = len(h.raft.log.batches)
    await until(
        lambda: len(h.raft.log.batches) >= first + parts,
        each_turn=lambda: h.raft.commit(h.raft.log.batches[-1].base_offset),
    )


def written_since(h: Harness, offset: int) -> list[Any]:
    """The types of the records from an offset on, each run of the same type once."""
    types: list[Any] = []
    for record in h.records_from(offset):
        if not types or types[-1] is not type(record):
            types.append(type(record))
    return types


def test_a_change_of_more_records_than_a_batch_may_have_is_one_transaction() -> None:
    async def test() -> None:
        h = await started()
        end = h.raft.log.end
        response = await answered(h, h.send(large(partitions=MAX_RECORDS_PER_USER_OP + 5)))
        assert (response.topics[0].error_code, response.topics[0].num_partitions) == (0, 10_005)
        assert written_since(h, end) == [
            BeginTransactionRecord,
            TopicRecord,
            PartitionRecord,
            EndTransactionRecord,
        ]
        begin = h.records_from(end)[0]
        assert isinstance(begin, BeginTransactionRecord)
        assert begin.name == "CREATE_TOPICS"
        assert h.raft.log.end - end == 10_005 + 3
        assert len(h.controller.state.image.topics.by_name["large"].partitions) == 10_005

    run(test())


@pytest.mark.parametrize("partitions", [1, 150, PART_RECORDS - 1])
def test_a_small_change_takes_no_transaction(partitions: int) -> None:
    async def test() -> None:
        h = await started()
        end = h.raft.log.end
        await answered(h, asyncio.ensure_future(h.call(large(partitions=partitions))))
        assert written_since(h, end) == [TopicRecord, PartitionRecord]
        assert len(h.raft.log.batches[-1].values) == 1 + partitions

    run(test())


def test_a_change_that_was_prepared_before_a_downgrade_takes_no_transaction() -> None:
    async def test() -> None:
        h = await started()
        end = h.raft.log.end
        answer = h.send(large())
        await asyncio.sleep(0)
        h.controller.state.write([FeatureLevelRecord(name="metadata.version", feature_level=12)])
        assert (await answered(h, answer)).topics[0].error_code == ErrorCode.NONE
        assert written_since(h, end) == [FeatureLevelRecord, TopicRecord, PartitionRecord]
        assert len(h.raft.log.batches[-1].values) == 1 + MANY

    run(test())


@pytest.mark.parametrize("level", [12, 13])
def test_the_limit_is_that_of_kafka_below_the_metadata_version_of_transactions(level: int) -> None:
    async def test() -> None:
        h = await started()
        h.controller.state.write([FeatureLevelRecord(name="metadata.version", feature_level=level)])
        answer = None
        try:
            answer = h.send(large(partitions=MAX_RECORDS_PER_USER_OP + 1))
        except KafkaError as error:
            assert (level, error.code) == (12, ErrorCode.POLICY_VIOLATION)
            return
        assert level == 13
        assert (await answered(h, answer)).topics[0].error_code == ErrorCode.NONE

    run(test())


def test_the_limit_is_that_of_kafka_unless_configured() -> None:
    async def test() -> None:
        h = await Harness().start()
        await broker(h)
        with pytest.raises(KafkaError) as raised:
            h.send(large(partitions=MAX_RECORDS_PER_USER_OP + 1))
        assert raised.value.code == ErrorCode.POLICY_VIOLATION
        end = h.raft.log.end
        await h.call(large(partitions=MAX_RECORDS_PER_USER_OP - 1))
        assert written_since(h, end) == [TopicRecord, PartitionRecord]

    run(test())


def test_a_configured_limit_is_a_limit() -> None:
    async def test() -> None:
        h = await started()
        with pytest.raises(KafkaError) as raised:
            await h.send(large(partitions=LIMIT + 1))
        assert raised.value.code == ErrorCode.POLICY_VIOLATION

    run(test())


def test_no_part_of_a_transaction_is_visible_before_its_end() -> None:
    async def test() -> None:
        h = await started()
        visible: list[int] = []

        def see(image: MetadataImage) -> None:
            topic = image.topics.by_name.get("large")
            visible.append(0 if topic is None else len(topic.partitions))

        h.controller.add_image_listener(see)
        await answered(h, h.send(large()))
        assert set(visible) == {0, MANY}
        assert visible.count(0) >= 10

    run(test())


def test_the_response_waits_until_the_end_is_committed() -> None:
    async def test() -> None:
        h = await started()
        answer = h.send(large())

        def end_is_written() -> bool:
            records = h.records_from(h.raft.log.batches[-1].base_offset)
            return bool(records) and isinstance(records[-1], EndTransactionRecord)

        await until(end_is_written, each_turn=lambda: h.raft.commit(h.raft.log.batches[-1].base_offset))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not answer.done()
        h.raft.commit()
        assert (await answer).topics[0].error_code == ErrorCode.NONE

    run(test())


def test_the_uncommitted_parts_are_limited() -> None:
    async def test() -> None:
        h = await started()
        parts = len(h.raft.log.batches)
        answer = h.send(large(partitions=3 * MAX_PARTS_IN_FLIGHT * PART_RECORDS))
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(h.raft.log.batches) == parts + MAX_PARTS_IN_FLIGHT
        await answered(h, answer)

    run(test())


# -- other requests


def test_other_changes_wait_for_the_end_of_a_transaction() -> None:
    async def test() -> None:
        h = await started()
        answer = h.send(large())
        await begun(h)
        end = h.raft.log.end
        same, other = h.send(topics("large")), h.send(topics("other"))
        assert h.raft.log.end == end
        assert (await answered(h, answer)).topics[0].error_code == ErrorCode.NONE
        assert (await answered(h, same)).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert (await answered(h, other)).topics[0].error_code == ErrorCode.NONE
        assert written_since(h, end) == [PartitionRecord, EndTransactionRecord, TopicRecord, PartitionRecord]

    run(test())


def test_other_changes_are_made_while_a_change_is_prepared() -> None:
    async def test() -> None:
        h = await started()
        end = h.raft.log.end
        answer = h.send(large())
        await asyncio.sleep(0)
        other = h.send(topics("other"))
        await answered(h, other)
        assert not answer.done()
        assert written_since(h, end) == [TopicRecord, PartitionRecord]
        await answered(h, answer)

    run(test())


def test_a_heartbeat_is_answered_within_a_transaction() -> None:
    async def test() -> None:
        h = await started()
        epoch = next(iter(h.controller.state.image.cluster.brokers.values())).epoch
        answer = h.send(large())
        await begun(h)
        response = h.send(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=99))
        if isinstance(response, asyncio.Future):
            response = await asyncio.wait_for(response, 1)
        assert not response.is_fenced
        assert not answer.done()
        await answered(h, answer)

    run(test())


def test_a_heartbeat_that_changes_the_broker_waits_and_extends_the_session() -> None:
    async def test() -> None:
        h = await started()
        epoch = next(iter(h.controller.state.image.cluster.brokers.values())).epoch
        answer = h.send(large())
        await begun(h)
        h.clock.seconds += 5
        waiting = h.send(
            BrokerHeartbeatRequest(
                broker_id=1, broker_epoch=epoch, current_metadata_offset=99, want_shut_down=True
            )
        )
        assert h.controller.state.broker_sessions.contacts[1, epoch] == h.clock.seconds
        assert not waiting.done()
        await answered(h, answer)
        assert not (await answered(h, waiting)).should_shut_down
        assert h.controller.state.image.cluster.brokers[1].in_controlled_shutdown

    run(test())


def test_periodic_tasks_write_nothing_within_a_transaction() -> None:
    async def test() -> None:
        h = await started(max_idle_interval_s=0.5)
        answer = h.send(large())
        await begun(h)
        end = h.raft.log.end
        h.advance(20)  # the session expires, and a NoOpRecord would be written
        assert h.raft.log.end == end
        await answered(h, answer)
        assert not h.controller.state.image.cluster.brokers[1].fenced

        def go_on() -> None:
            h.advance(0.01)
            h.raft.commit()

        await until(lambda: h.controller.state.image.cluster.brokers[1].fenced, each_turn=go_on)
        h.advance(1)
        assert isinstance(h.records[-1], NoOpRecord)

    run(test())


def test_the_records_are_computed_again_if_a_broker_is_fenced_meanwhile() -> None:
    async def test() -> None:
        h = await started()
        second = await broker(h, 2)
        answer = h.send(large())
        await asyncio.sleep(0)
        await h.call(BrokerHeartbeatRequest(broker_id=2, broker_epoch=second, want_fence=True))
        await answered(h, answer)
        partitions = h.controller.state.image.topics.by_name["large"].partitions
        assert {partition.leader for partition in partitions} == {1}

    run(test())


def test_a_topic_of_the_same_name_that_is_created_meanwhile_wins() -> None:
    async def test() -> None:
        h = await started()
        end = h.raft.log.end
        answer = h.send(large())
        await asyncio.sleep(0)
        await answered(h, h.send(topics("large")))
        assert (await answered(h, answer)).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert written_since(h, end) == [TopicRecord, PartitionRecord]

    run(test())


def test_a_change_completes_although_brokers_change_all_the_time() -> None:
    async def test() -> None:
        h = await started()
        await broker(h, 2)
        answer = h.send(large())
        second = h.controller.state.image.cluster.brokers[2].epoch
        fence, changes = True, 0
        while not answer.done():
            want = BrokerHeartbeatRequest(
                broker_id=2, broker_epoch=second, current_metadata_offset=h.raft.log.end, want_fence=fence
            )
            outcome = h.send(want)
            if not (isinstance(outcome, asyncio.Future) and h.controller.state.exclusive):
                fence, changes = not fence, changes + 1
            h.raft.commit()
            await asyncio.sleep(0)
        assert (await answer).topics[0].error_code == ErrorCode.NONE
        assert changes > 2

    run(test())


def test_large_changes_are_made_one_after_the_other() -> None:
    async def test() -> None:
        h = await started()
        first, second = h.send(large("a")), h.send(large("b"))
        await answered(h, second)
        assert first.done()
        markers = [
            type(record)
            for record in h.records
            if isinstance(record, BeginTransactionRecord | EndTransactionRecord)
        ]
        assert markers == [BeginTransactionRecord, EndTransactionRecord] * (len(markers) // 2)
        assert set(h.controller.state.image.topics.by_name) == {"a", "b"}

    run(test())


# -- failures


def replica(log: FakeLog, node_id: int) -> Harness:
    return Harness(FakeRaft(node_id, log, voters=(1, 2, 3)), node_id=node_id, max_records_per_op=LIMIT)


@pytest.mark.parametrize("parts", range(1, 12))
def test_the_next_leader_aborts_what_the_dead_one_has_not_ended(parts: int) -> None:
    """The leader dies after each part. All replicas show the whole topic or none of it."""

    async def test() -> None:
        log = FakeLog()
        one, two, three = [replica(log, node_id) for node_id in (1, 2, 3)]
        for follower in (two, three):
            await follower.start(lead=False)
        await one.start()
        await broker(one)
        answer = one.send(large())
        await begun(one, parts)
        assert log.batches[-1].values
        two.raft.commit()
        three.raft.commit()
        ended = two.controller.state.image.transaction is None
        assert ended == (parts == 11)
        one.raft.follow(2, 2)
        two.raft.become_leader(2)
        two.raft.commit()
        for each in (one, three):
            each.raft.commit()
        with pytest.raises(KafkaError) as raised:
            await answer
        assert raised.value.code == ErrorCode.NOT_CONTROLLER
        images = [each.controller.state.image for each in (one, two, three)]
        assert [image.transaction for image in images] == [None] * 3
        assert [set(image.topics.by_name) for image in images] == [{"large"} if ended else set()] * 3
        assert images[0] == images[1] == images[2]
        from_the_log = apply_committed(MetadataImage(), log.batches)
        assert from_the_log.topics == images[0].topics
        aborts = [record for record in two.records if isinstance(record, AbortTransactionRecord)]
        assert [record.reason for record in aborts] == ([] if ended else ["Controller failover"])
        assert not one.controller.state.exclusive
        assert [each.fatal for each in (one, two, three)] == [[], [], []]

    run(test())


def test_requests_that_waited_for_a_transaction_fail_with_its_leader() -> None:
    async def test() -> None:
        h = await started()
        answer = h.send(large())
        await begun(h)
        waiting = h.send(topics("other"))
        h.raft.follow(2, 2)
        for each in (answer, waiting):
            with pytest.raises(KafkaError) as raised:
                await each
            assert raised.value.code == ErrorCode.NOT_CONTROLLER

    run(test())


def test_a_controller_that_leads_again_aborts_its_own_transaction() -> None:
    async def test() -> None:
        h = await started()
        answer = h.send(large())
        await begun(h, 3)
        h.raft.follow(2, 2)
        h.raft.become_leader(3)
        h.raft.commit()
        with pytest.raises(KafkaError):
            await answer
        assert isinstance(h.records[-1], AbortTransactionRecord)
        await h.call(topics("other"))
        assert set(h.controller.state.image.topics.by_name) == {"other"}

    run(test())


def test_a_transaction_that_takes_too_long_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        h = await started()
        monkeypatch.setattr(atomic_changes, "LONGEST_S", 0.05)
        answer = h.send(large())
        await until(lambda: h.controller.state.exclusive)
        other = h.send(topics("other"))
        with pytest.raises(KafkaError) as raised:
            await answer
        assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT
        await answered(h, other)
        assert set(h.controller.state.image.topics.by_name) == {"other"}
        assert AbortTransactionRecord in map(type, h.records)

    run(test())


def test_a_change_whose_request_times_out_while_it_is_prepared_is_not_made() -> None:
    async def test() -> None:
        h = await started()
        end = h.raft.log.end
        with pytest.raises(KafkaError) as raised:
            await h.send(large(timeout_ms=1))
        assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert h.raft.log.end == end
        assert not h.controller.state.exclusive

    run(test())


def test_no_snapshot_is_written_within_a_transaction() -> None:
    async def test() -> None:
        h = await started(snapshot_bytes=1)
        await h.controller.snapshots.settled()
        before = len(h.raft.snapshots)
        answer = h.send(large())
        await begun(h)
        inside = h.raft.log.end
        await answered(h, answer)
        await h.controller.snapshots.settled()
        ends = [end for end, *_ in h.raft.snapshots[before:]]
        assert ends
        assert all(end > inside for end in ends)
        assert h.controller.state.image.transaction is None

    run(test())


# -- the other requests that can be large


def test_many_partitions_are_added_in_a_transaction() -> None:
    async def test() -> None:
        h = await started()
        await answered(h, h.send(topics("a", "b")))
        end = h.raft.log.end
        make = CreatePartitionsRequest.CreatePartitionsTopic
        request = CreatePartitionsRequest(
            topics=[make(name=name, count=1_001, assignments=None) for name in ("a", "b")]
        )
        response = await answered(h, h.send(request))
        assert {result.error_code for result in response.results} == {ErrorCode.NONE}
        assert written_since(h, end) == [BeginTransactionRecord, PartitionRecord, EndTransactionRecord]
        by_name = h.controller.state.image.topics.by_name
        assert [len(by_name[name].partitions) for name in ("a", "b")] == [1_001, 1_001]

    run(test())


def reassignment(name: str, count: int, to: int) -> AlterPartitionReassignmentsRequest:
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition
    moved = [partition(partition_index=index, replicas=[to]) for index in range(count)]
    return AlterPartitionReassignmentsRequest(topics=[topic(name=name, partitions=moved)])


def test_many_partitions_are_reassigned_in_a_transaction() -> None:
    async def test() -> None:
        h = await started()
        await answered(h, h.send(large(partitions=1_000)))
        await broker(h, 2)
        end = h.raft.log.end
        response = await answered(h, h.send(reassignment("large", 1_000, 2)))
        assert {p.error_code for p in response.responses[0].partitions} == {ErrorCode.NONE}
        assert written_since(h, end) == [BeginTransactionRecord, PartitionChangeRecord, EndTransactionRecord]
        partitions = h.controller.state.image.topics.by_name["large"].partitions
        assert {partition.adding_replicas for partition in partitions} == {(2,)}

    run(test())


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_large_change_that_writes_nothing_is_answered(validate_only: bool) -> None:
    async def test() -> None:
        h = await started()
        request = large(validate_only=validate_only)
        if not validate_only:
            request.topics[0].replication_factor = 5
            request.topics.append(
                CreateTopicsRequest.CreatableTopic(name="b", num_partitions=5_000, replication_factor=1)
            )
            request.validate_only = True
        end = h.raft.log.end
        response = await answered(h, h.send(request))
        codes = [topic.error_code for topic in response.topics]
        assert codes == (
            [ErrorCode.NONE] if validate_only else [ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NONE]
        )
        assert h.raft.log.end == end

    run(test())


def test_a_heartbeat_after_a_transaction_is_answered() -> None:
    async def test() -> None:
        h = await started()
        await answered(h, h.send(large()))
        epoch = h.controller.state.image.cluster.brokers[1].epoch
        assert not (await beat(h, 1, epoch)).is_fenced

    run(test())
