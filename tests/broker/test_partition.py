"""Partition: roles, high watermarks, ISR changes, and waiting requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.replication.partition import Partition
from quorate.broker.replication.purgatory import DelayedAcks, DelayedFetch
from quorate.broker.replication.replica_manager import ReplicaManager
from quorate.log.partition.producer_state import AppendOrigin
from quorate.log.partition.results import AppendInfo
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.records.batch import build_batch

from .fakes import ME, TOPIC_ID, FakeClock, broker, cluster, manager, registration
from .world import Broker, image_of

Leading = Callable[..., tuple[Partition, ReplicaManager, FakeClock]]


@pytest.fixture
def leading(tmp_path: Path) -> Leading:
    """leading(config=..., **registration): a partition that this broker leads, with its replicas and
    clock."""

    def make(
        config: dict[str, Any] | None = None, **kwargs: Any
    ) -> tuple[Partition, ReplicaManager, FakeClock]:
        replicas, clock = manager(tmp_path / "data", **(config or {}))
        partition = Partition(replicas, "t", 0, TOPIC_ID)
        replicas.partitions["t", 0] = partition
        partition.make_leader(registration(**kwargs), clock.now())
        return partition, replicas, clock

    return make


def append(partition: Partition, count: int, acks: int = -1) -> AppendInfo:
    """One batch of `count` records."""
    batch = build_batch([(b"k", b"x", [], 1_000_000)] * count)
    return partition.append(batch, acks, 1_000_000, AppendOrigin.CLIENT)


def test_the_only_replica_commits_what_it_appends(leading):
    partition, _, _ = leading()
    append(partition, 3, -1)
    assert partition.log.high_watermark == 3


def test_a_new_leader_opens_no_log(leading):
    partition, _, _ = leading()
    assert not partition.has_log


def test_a_new_leader_records_its_epoch_at_the_end_of_its_log(leading):
    partition, replicas, clock = leading(leader_epoch=3)
    append(partition, 5)
    partition.make_follower(registration(leader=2, leader_epoch=4, partition_epoch=1))
    partition.make_leader(registration(leader_epoch=5, partition_epoch=2), clock.now())
    log = partition.log
    assert log is replicas.logs.get("t", 0)
    assert (log.epochs.entries(), partition.leader_epoch_start, log.high_watermark) == (
        [(3, 0), (5, 5)],
        5,
        5,
    )


def test_an_older_partition_epoch_is_skipped(leading):
    partition, _, clock = leading(leader_epoch=2, partition_epoch=7)
    assert not partition.make_leader(registration(leader_epoch=1, partition_epoch=6), clock.now())
    assert partition.leader_epoch == 2


def test_with_followers_the_slowest_of_the_isr_sets_the_watermark(leading):
    partition, _, clock = leading(replicas=(1, 2, 3))
    append(partition, 6, 1)
    assert partition.log.high_watermark == 0
    partition.follower_fetched(2, 200, 6, 0, 6, clock.now())
    partition.follower_fetched(3, 300, 4, 0, 6, clock.now())
    assert partition.log.high_watermark == 4


@pytest.mark.parametrize(("epoch", "committed"), [(1, 6), (2, 3)])
def test_what_followers_had_before_another_broker_led_does_not_count(leading, epoch, committed):
    """This broker may see two elections in one metadata delta. The leader in between may have had less than
    the others, which then truncated their logs."""
    partition, _, clock = leading(replicas=(1, 2, 3))
    append(partition, 3, 1)
    append(partition, 3, 1)
    partition.follower_fetched(2, 200, 6, 0, 6, clock.now())
    partition.follower_fetched(3, 300, 3, 0, 6, clock.now())
    in_sync = registration(replicas=(1, 2, 3), isr=(1, 2), leader_epoch=epoch, partition_epoch=2)
    partition.make_leader(in_sync, clock.now())
    assert partition.log.high_watermark == committed
    partition.follower_fetched(2, 200, 6, 0, 6, clock.now())
    assert partition.log.high_watermark == 6


def test_the_high_watermark_never_decreases(leading):
    partition, _, clock = leading(replicas=(1, 2))
    log = partition.log
    append(partition, 6, 1)
    partition.follower_fetched(2, 200, 6, 0, 6, clock.now())
    partition.follower_fetched(2, 200, 3, 0, 6, clock.now())
    assert log.high_watermark == 6


def test_the_watermark_waits_while_the_isr_is_too_small(leading):
    partition, _, _ = leading({"min_insync_replicas": 2}, replicas=(1, 2), isr=(1,))
    log = partition.log
    append(partition, 3, 1)
    assert log.high_watermark == 0


def test_acks_all_is_refused_while_the_isr_is_too_small(leading):
    partition, _, _ = leading({"min_insync_replicas": 2}, replicas=(1, 2), isr=(1,))
    with pytest.raises(KafkaError) as refused:
        append(partition, 3, -1)
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_min_isr_is_not_more_than_the_replicas(leading):
    partition, _, _ = leading({"min_insync_replicas": 3})
    log = partition.log
    append(partition, 3, -1)
    assert log.high_watermark == 3


def test_a_caught_up_follower_is_added_to_the_isr_and_counts_at_once(leading):
    partition, replicas, clock = leading(replicas=(1, 2), isr=(1,))
    log = partition.log
    append(partition, 3, 1)
    partition.follower_fetched(2, 200, 3, 0, 3, clock.now())
    (change,) = replicas.isr_sender.changes
    assert (change.isr, change.expands) == ((1, 2), True)
    append(partition, 2, 1)
    assert log.high_watermark == 3
    partition.isr_altered(change, (1, 2), 0, 1)
    assert (partition.isr, partition.partition_epoch, partition.pending_isr) == ((1, 2), 1, None)


def test_metadata_that_the_leader_knows_already_does_not_end_a_pending_isr_change(leading):
    """The response to an AlterPartition often arrives before the metadata that it has caused. A change that
    was sent in between may already be committed: the high watermark still waits for the new member."""
    partition, replicas, clock = leading(replicas=(1, 2, 3), isr=(1,))
    append(partition, 3, 1)
    partition.follower_fetched(2, 200, 3, 0, 3, clock.now())
    partition.isr_altered(replicas.isr_sender.changes[0], (1, 2), 0, 1)
    append(partition, 3, 1)
    partition.follower_fetched(3, 300, 3, 0, 6, clock.now())
    change = replicas.isr_sender.changes[1]
    assert (change.isr, partition.pending_isr is change) == ((1, 2, 3), True)
    partition.make_leader(registration(replicas=(1, 2, 3), isr=(1, 2), partition_epoch=1), clock.now())
    partition.follower_fetched(2, 200, 6, 0, 6, clock.now())
    assert partition.log.high_watermark == 3
    partition.isr_altered(change, (1, 2, 3), 0, 2)
    assert (partition.isr, partition.pending_isr) == ((1, 2, 3), None)


@pytest.mark.parametrize(
    ("follower", "broker_epoch"),
    [
        (broker(2, fenced=True), 200),
        (broker(2, shutting_down=True), 200),
        (broker(2, epoch=199), 200),
    ],
    ids=["fenced", "shutting down", "another incarnation"],
)
def test_an_ineligible_follower_is_not_proposed_for_the_isr(tmp_path, follower, broker_epoch):
    replicas, clock = manager(tmp_path / "data", cluster(broker(1), follower))
    partition = Partition(replicas, "t", 0, TOPIC_ID)
    partition.make_leader(registration(replicas=(1, 2), isr=(1,)), clock.now())
    partition.follower_fetched(2, broker_epoch, 0, 0, 0, clock.now())
    assert replicas.isr_sender.changes == []


def test_a_fetch_of_an_older_incarnation_is_refused(leading):
    partition, _, clock = leading(replicas=(1, 2))
    with pytest.raises(KafkaError) as refused:
        partition.follower_fetched(2, 199, 0, 0, 0, clock.now())
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_late_follower_is_removed_from_the_isr_and_counts_until_the_response(leading):
    partition, replicas, clock = leading(replicas=(1, 2))
    log = partition.log
    append(partition, 3, 1)
    clock.time_s += 31
    replicas.shrink_isrs()
    (change,) = replicas.isr_sender.changes
    assert (change.isr, change.expands, log.high_watermark) == ((1,), False, 0)
    partition.isr_altered(change, (1,), 0, 1)
    assert log.high_watermark == 3


def test_a_follower_at_the_end_of_the_log_is_never_late(leading):
    partition, replicas, clock = leading(replicas=(1, 2))
    partition.follower_fetched(2, 200, 0, 0, 0, clock.now())
    clock.time_s += 1000
    replicas.shrink_isrs()
    assert replicas.isr_sender.changes == []


@pytest.mark.parametrize(
    ("error", "again", "pending"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, False, False),
        (ErrorCode.INVALID_UPDATE_VERSION, False, True),
        (ErrorCode.FENCED_LEADER_EPOCH, False, True),
        (ErrorCode.NEW_LEADER_ELECTED, False, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True, True),
    ],
)
def test_a_rejected_isr_change_is_handled_by_its_error(leading, error, again, pending):
    partition, replicas, clock = leading(replicas=(1, 2), isr=(1,))
    partition.follower_fetched(2, 200, 0, 0, 0, clock.now())
    (change,) = replicas.isr_sender.changes
    assert partition.isr_rejected(change, error) is again
    assert (partition.pending_isr is change) is pending


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA], ids=["taken", "refused"])
def test_an_isr_change_that_is_answered_after_the_topic_was_deleted_creates_no_log(tmp_path, loop, error):
    """A topic of the same name would get it, with the id of the deleted one: the next start would set
    its records aside."""
    image = {"t": {0: registration(replicas=(1, 2), isr=(1,))}}
    world = Broker(tmp_path, image_of(image), loop=loop)
    partition = world.replicas.partition("t", 0)
    partition.follower_fetched(2, 200, 0, 0, 0, world.clock.now())
    (change,) = world.replicas.isr_sender.changes
    world.publish(image_of({}))
    if error == ErrorCode.NONE:
        partition.isr_altered(change, (1, 2), 0, 1)
    else:
        partition.isr_rejected(change, error)
    assert world.logs.get("t", 0) is None
    world.logs.close()


@pytest.mark.parametrize(
    ("epoch", "leader", "error"),
    [
        (-1, True, None),
        (3, True, None),
        (2, True, ErrorCode.FENCED_LEADER_EPOCH),
        (4, True, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (3, False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (2, False, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_a_readers_view_of_the_leader_is_checked(leading, epoch, leader, error):
    partition, _, _ = leading(leader_epoch=3)
    if not leader:
        partition.make_follower(registration(leader=2, leader_epoch=3, partition_epoch=1))
    if error is None:
        partition.check_leader(epoch)
    else:
        with pytest.raises(KafkaError) as refused:
            partition.check_leader(epoch)
        assert refused.value.code == error


@pytest.mark.parametrize(
    ("offset", "deletes", "error"),
    [
        (4, True, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, True, ErrorCode.OFFSET_OUT_OF_RANGE),
        (1, False, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_records_that_cannot_be_deleted(leading, offset, deletes, error):
    partition, _, _ = leading({"cleanup_policy": frozenset({"delete" if deletes else "compact"})})
    append(partition, 3, 1)
    with pytest.raises(KafkaError) as refused:
        partition.delete_records(offset)
    assert refused.value.code == error


def test_deleting_up_to_minus_one_means_the_high_watermark(leading):
    partition, _, _ = leading()
    append(partition, 3, 1)
    assert partition.delete_records(-1) == (3, 3)


# -- waiting


def waiting_append(partition, loop, count=3, timeout_s=5.0):
    info = append(partition, count)
    settled: list[ErrorCode] = []
    waiter = DelayedAcks(
        loop,
        [(partition, info.last_offset + 1)],
        timeout_s,
        lambda _i, error: settled.append(error),
        lambda: settled,
    )
    return waiter.future


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()


def test_acks_all_waits_for_the_watermark(leading, loop):
    partition, _, clock = leading(replicas=(1, 2))
    future = waiting_append(partition, loop)
    assert not future.done()
    partition.follower_fetched(2, 200, 3, 0, 3, clock.now())
    assert future.result() == [ErrorCode.NONE]


def test_acks_all_fails_when_the_isr_shrank_below_the_minimum_after_the_append(leading):
    partition, _, clock = leading({"min_insync_replicas": 2}, replicas=(1, 2))
    log = partition.log
    append(partition, 3, -1)
    partition.follower_fetched(2, 200, 3, 0, 3, clock.now())
    assert partition.ack_error(log) == ErrorCode.NONE
    partition.make_leader(registration(replicas=(1, 2), isr=(1,), partition_epoch=1), clock.now())
    assert (log.high_watermark, partition.ack_error(log)) == (3, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def alone(leading: Leading) -> tuple[Partition, Callable[[], bool]]:
    """A partition with an in-sync follower that does not fetch, and the change that removes the follower
    from the replicas in a new leader epoch."""
    partition, _, clock = leading(replicas=(1, 2))
    return partition, lambda: partition.make_leader(
        registration(leader_epoch=1, partition_epoch=1), clock.now()
    )


def test_acks_all_is_answered_when_the_leader_continues_alone_in_a_new_epoch(leading, loop):
    partition, go_on_alone = alone(leading)
    future = waiting_append(partition, loop)
    go_on_alone()
    assert partition.log.high_watermark == 3
    assert future.result() == [ErrorCode.NONE]


def test_a_coordinators_append_is_answered_when_the_leader_continues_alone(tmp_path, loop):
    replicas, clock = manager(tmp_path / "data", loop=loop)
    partition = replicas.partitions["t", 0] = Partition(replicas, "t", 0, TOPIC_ID)
    partition.make_leader(registration(replicas=(1, 2)), clock.now())
    future = replicas.append_internal("t", 0, build_batch([(b"k", b"x", [], 0)]))
    assert not future.done()
    partition.make_leader(registration(leader_epoch=1, partition_epoch=1), clock.now())
    assert future.result() == 0


def test_a_waiting_fetch_is_woken_when_the_leader_continues_alone(leading, loop):
    partition, go_on_alone = alone(leading)
    append(partition, 3, 1)
    high_watermark = partition.log.high_watermark
    waiter = DelayedFetch(
        loop, [partition], 10.0, lambda: partition.log.high_watermark > high_watermark, lambda: "answered"
    )
    go_on_alone()
    loop.run_until_complete(asyncio.sleep(0))
    assert waiter.future.result() == "answered"


def test_acks_all_is_answered_when_the_controller_refuses_the_follower_that_it_waits_for(leading, loop):
    """A pending addition to the ISR counts until the answer. After a rejection the committed ISR counts."""
    partition, replicas, clock = leading(replicas=(1, 2), isr=(1,))
    partition.follower_fetched(2, 200, 0, 0, 0, clock.now())
    (change,) = replicas.isr_sender.changes
    future = waiting_append(partition, loop)
    assert not future.done()
    replicas.metadata.image = cluster(broker(1), broker(2, fenced=True))
    assert not partition.isr_rejected(change, ErrorCode.INELIGIBLE_REPLICA)
    assert future.result() == [ErrorCode.NONE]


def test_acks_all_completes_when_a_caught_up_follower_outside_the_isr_is_fenced(leading, loop):
    """The high watermark waits for such a follower, because it may join. Its fencing does not change the
    partition."""
    partition, replicas, clock = leading(replicas=(1, 2), isr=(1,))
    partition.follower_fetched(2, 200, 0, 0, 0, clock.now())
    (change,) = replicas.isr_sender.changes
    partition.isr_rejected(change, ErrorCode.INELIGIBLE_REPLICA)
    future = waiting_append(partition, loop, timeout_s=60)
    assert not future.done()
    replicas.metadata.image = cluster(broker(1), broker(2, fenced=True))
    replicas.shrink_isrs()
    assert future.result() == [ErrorCode.NONE]


def test_acks_all_completes_when_the_directory_of_a_follower_outside_the_isr_failed(leading, loop):
    """Its broker is alive and the replica was caught up a moment ago, but it cannot join the ISR. The high
    watermark would wait for `replica.lag.time.max.ms`."""
    partition, replicas, clock = leading(replicas=(1, 2, 3), isr=(1, 2, 3))
    for follower in (2, 3):
        partition.follower_fetched(follower, follower * 100, 0, 0, 0, clock.now())
    future = waiting_append(partition, loop, timeout_s=60)
    partition.follower_fetched(2, 200, 3, 0, 3, clock.now())
    assert not future.done()
    shrunk = registration(replicas=(1, 2, 3), isr=(1, 2), partition_epoch=1)._replace(
        directories=tuple(bytes([replica]) * 16 for replica in (1, 2, 3))
    )
    another = replace(broker(3), log_dirs=(bytes([4]) * 16,))
    replicas.metadata.image = image_of({"t": {0: shrunk}}, (broker(1), broker(2), another))
    partition.make_leader(shrunk, clock.now())
    assert future.result() == [ErrorCode.NONE]


def test_a_deletion_is_answered_when_the_follower_that_it_waits_for_is_no_replica_any_more(leading, loop):
    partition, _, clock = leading(replicas=(1, 2))
    append(partition, 3, 1)
    partition.follower_fetched(2, 200, 3, 0, 3, clock.now())
    assert partition.delete_records(3) == (3, 0)
    settled: list[ErrorCode] = []
    waiter = DelayedAcks(loop, (), 5.0, lambda _i, error: settled.append(error), lambda: settled, 1)
    partition.delayed_operations.add_deletion(3, waiter, 0)
    partition.make_leader(registration(leader_epoch=1, partition_epoch=1), clock.now())
    assert waiter.future.result() == [ErrorCode.NONE]


def test_a_deletion_is_answered_when_the_follower_that_it_waits_for_died(leading, loop):
    partition, replicas, clock = leading(replicas=(1, 2))
    append(partition, 3, 1)
    partition.follower_fetched(2, 200, 3, 0, 3, clock.now())
    assert partition.delete_records(3) == (3, 0)
    settled: list[ErrorCode] = []
    waiter = DelayedAcks(loop, (), 5.0, lambda _i, error: settled.append(error), lambda: settled, 1)
    partition.delayed_operations.add_deletion(3, waiter, 0)
    replicas.metadata.image = cluster(broker(1), broker(2, fenced=True))
    partition.make_leader(registration(replicas=(1, 2), isr=(1,), partition_epoch=1), clock.now())
    assert waiter.future.result() == [ErrorCode.NONE]


def test_a_retry_of_an_earlier_batch_does_not_wait_for_later_ones(leading, loop):
    """The retry of an idempotent producer waits for the offsets of its first attempt, which are below
    those of later requests."""
    partition, _, clock = leading(replicas=(1, 2))
    first, second = (
        build_batch([(b"k", b"x", [], 0)], producer_id=9, producer_epoch=0, base_sequence=i) for i in (0, 1)
    )
    futures = []
    for batch in (first, second, first):
        info = partition.append(batch, -1, 0, AppendOrigin.CLIENT)
        waits = [(partition, info.last_offset + 1)]
        futures.append(DelayedAcks(loop, waits, 5.0, lambda _i, _error: None, lambda: None).future)
    assert info.duplicate
    partition.follower_fetched(2, 200, 1, 0, 2, clock.now())
    assert [future.done() for future in futures] == [True, False, True]


def test_waiting_requests_end_when_the_leadership_is_lost(leading, loop):
    partition, _, _ = leading(replicas=(1, 2))
    future = waiting_append(partition, loop)
    partition.make_follower(registration(replicas=(1, 2), leader=2, leader_epoch=1, partition_epoch=1))
    assert future.result() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_an_append_that_is_not_replicated_times_out(leading, loop):
    partition, _, _ = leading(replicas=(1, 2))
    future = waiting_append(partition, loop, timeout_s=0.01)
    assert loop.run_until_complete(future) == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_waiting_fetch_is_woken_once_for_many_appends(leading, loop):
    partition, _, _ = leading()
    looked: list[int] = []

    def ready() -> bool:
        looked.append(partition.log.high_watermark)
        return True

    waiter = DelayedFetch(loop, [partition], 10.0, ready, lambda: partition.log.high_watermark)
    append(partition, 1, 1)
    append(partition, 1, 1)
    assert loop.run_until_complete(waiter.future) == 2
    assert looked == [2]


def test_a_fetch_that_times_out_returns_the_available_bytes(leading, loop):
    partition, _, _ = leading()
    expired: list[int] = []
    waiter = DelayedFetch(
        loop, [partition], 0.01, lambda: False, lambda: "nothing", lambda: expired.append(1)
    )
    assert loop.run_until_complete(waiter.future) == "nothing"
    assert expired == [1]
    append(partition, 1, 1)  # nobody is left to wake


def test_a_cancelled_fetch_leaves_its_partitions(leading, loop):
    partition, _, _ = leading()
    waiter = DelayedFetch(loop, [partition], 10.0, lambda: True, lambda: "never")
    waiter.future.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    append(partition, 1, 1)
    loop.run_until_complete(asyncio.sleep(0))
    assert waiter.future.cancelled()


def test_the_fixture_leads(leading):
    partition, replicas, _ = leading()
    assert (replicas.node_id, partition.leader_id) == (ME, ME)
