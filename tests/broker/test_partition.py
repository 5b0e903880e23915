"""Partition: roles, watermarks, ISR changes, and who is woken."""

from __future__ import annotations

import asyncio

import pytest

from quorate.broker.delayed import DelayedAcks, DelayedFetch
from quorate.broker.partition import Partition
from quorate.protocol.errors import ErrorCode, KafkaError

from .fakes import ME, TOPIC_ID, FakeLog, broker, cluster, manager, registration


def leading(log: FakeLog, **kwargs):
    replicas, clock = manager(log)
    partition = Partition(replicas, "t", 0, TOPIC_ID)
    partition.make_leader(registration(**kwargs), clock.now())
    return partition, replicas, clock


def test_the_only_replica_commits_what_it_appends():
    partition, _, _ = leading(FakeLog())
    partition.append(b"abc", -1, 0, None)
    assert partition.log.high_watermark == 3


def test_becoming_leader_touches_no_log():
    partition, _, _ = leading(FakeLog())
    assert not partition.has_log


def test_a_new_leader_notes_its_epoch_at_the_end_of_its_log():
    log = FakeLog(log_end_offset=5)
    partition, _, _ = leading(log, leader_epoch=4)
    assert partition.log is log
    assert (log.epochs, partition.leader_epoch_start, log.high_watermark) == ([(4, 5)], 5, 5)


def test_an_older_partition_epoch_is_skipped():
    partition, _, clock = leading(FakeLog(), leader_epoch=2, partition_epoch=7)
    assert not partition.make_leader(registration(leader_epoch=1, partition_epoch=6), clock.now())
    assert partition.leader_epoch == 2


def test_with_followers_the_slowest_of_the_isr_sets_the_watermark():
    partition, _, clock = leading(FakeLog(), replicas=(1, 2, 3))
    partition.append(b"abcdef", 1, 0, None)
    assert partition.log.high_watermark == 0
    partition.follower_fetched(2, 200, 6, 0, 6, clock.now())
    partition.follower_fetched(3, 300, 4, 0, 6, clock.now())
    assert partition.log.high_watermark == 4


def test_the_watermark_never_falls():
    log = FakeLog()
    partition, _, clock = leading(log, replicas=(1, 2))
    partition.append(b"abcdef", 1, 0, None)
    partition.follower_fetched(2, 200, 6, 0, 6, clock.now())
    partition.follower_fetched(2, 200, 3, 0, 6, clock.now())
    assert log.high_watermark == 6


def test_the_watermark_waits_while_the_isr_is_too_small():
    log = FakeLog(min_isr=2)
    partition, _, _ = leading(log, replicas=(1, 2), isr=(1,))
    partition.append(b"abc", 1, 0, None)
    assert log.high_watermark == 0


def test_acks_all_is_refused_while_the_isr_is_too_small():
    partition, _, _ = leading(FakeLog(min_isr=2), replicas=(1, 2), isr=(1,))
    with pytest.raises(KafkaError) as refused:
        partition.append(b"abc", -1, 0, None)
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_min_isr_is_not_more_than_the_replicas():
    log = FakeLog(min_isr=3)
    partition, _, _ = leading(log)
    partition.append(b"abc", -1, 0, None)
    assert log.high_watermark == 3


def test_a_follower_that_caught_up_is_asked_into_the_isr_and_counts_at_once():
    log = FakeLog()
    partition, replicas, clock = leading(log, replicas=(1, 2), isr=(1,))
    partition.append(b"abc", 1, 0, None)
    partition.follower_fetched(2, 200, 3, 0, 3, clock.now())
    (change,) = replicas.isr_sender.changes
    assert (change.isr, change.expands) == ((1, 2), True)
    partition.append(b"de", 1, 0, None)
    assert log.high_watermark == 3
    partition.isr_altered(change, (1, 2), 0, 1)
    assert (partition.isr, partition.partition_epoch, partition.pending_isr) == ((1, 2), 1, None)


@pytest.mark.parametrize(
    ("follower", "broker_epoch"),
    [
        (broker(2, fenced=True), 200),
        (broker(2, shutting_down=True), 200),
        (broker(2, epoch=199), 200),
    ],
    ids=["fenced", "shutting down", "another incarnation"],
)
def test_a_follower_that_may_not_be_in_sync_is_not_asked_in(follower, broker_epoch):
    replicas, clock = manager(FakeLog(), cluster(broker(1), follower))
    partition = Partition(replicas, "t", 0, TOPIC_ID)
    partition.make_leader(registration(replicas=(1, 2), isr=(1,)), clock.now())
    partition.follower_fetched(2, broker_epoch, 0, 0, 0, clock.now())
    assert replicas.isr_sender.changes == []


def test_a_fetch_of_an_older_incarnation_is_refused():
    partition, _, clock = leading(FakeLog(), replicas=(1, 2))
    with pytest.raises(KafkaError) as refused:
        partition.follower_fetched(2, 199, 0, 0, 0, clock.now())
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_that_lags_is_asked_out_and_still_counts_until_the_answer():
    log = FakeLog()
    partition, replicas, clock = leading(log, replicas=(1, 2))
    partition.append(b"abc", 1, 0, None)
    clock.time_s += 31
    replicas.partitions["t", 0] = partition
    replicas.shrink_isrs()
    (change,) = replicas.isr_sender.changes
    assert (change.isr, change.expands, log.high_watermark) == ((1,), False, 0)
    partition.isr_altered(change, (1,), 0, 1)
    assert log.high_watermark == 3


def test_a_follower_at_the_end_is_not_late_however_long_it_is_silent():
    partition, replicas, clock = leading(FakeLog(), replicas=(1, 2))
    partition.follower_fetched(2, 200, 0, 0, 0, clock.now())
    clock.time_s += 1000
    replicas.partitions["t", 0] = partition
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
def test_a_refused_isr_change_ends_as_its_error_says(error, again, pending):
    partition, replicas, clock = leading(FakeLog(), replicas=(1, 2), isr=(1,))
    partition.follower_fetched(2, 200, 0, 0, 0, clock.now())
    (change,) = replicas.isr_sender.changes
    assert partition.isr_refused(change, error) is again
    assert (partition.pending_isr is change) is pending


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
def test_a_readers_view_of_the_leader_is_checked(epoch, leader, error):
    partition, _, _ = leading(FakeLog(), leader_epoch=3)
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
def test_records_that_cannot_be_deleted(offset, deletes, error):
    partition, _, _ = leading(FakeLog(deletes=deletes))
    partition.append(b"abc", 1, 0, None)
    with pytest.raises(KafkaError) as refused:
        partition.delete_records(offset)
    assert refused.value.code == error


def test_deleting_up_to_minus_one_means_the_high_watermark():
    partition, _, _ = leading(FakeLog())
    partition.append(b"abc", 1, 0, None)
    assert partition.delete_records(-1) == (3, 3)


# -- waiting


def waiting_append(partition, replicas, loop, records=b"abc", timeout_s=5.0):
    info = partition.append(records, -1, 0, None)
    settled: list[ErrorCode] = []
    waiter = DelayedAcks(
        loop, [(partition, info.last_offset + 1)], timeout_s, lambda _i, error: settled.append(error), lambda: settled
    )
    return waiter.future


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()


def test_acks_all_waits_for_the_watermark(loop):
    partition, replicas, clock = leading(FakeLog(), replicas=(1, 2))
    future = waiting_append(partition, replicas, loop)
    assert not future.done()
    partition.follower_fetched(2, 200, 3, 0, 3, clock.now())
    assert future.result() == [ErrorCode.NONE]


def test_acks_all_says_so_when_the_isr_shrank_below_the_minimum_after_the_append():
    log = FakeLog(min_isr=2)
    partition, _, clock = leading(log, replicas=(1, 2))
    partition.append(b"abc", -1, 0, None)
    partition.follower_fetched(2, 200, 3, 0, 3, clock.now())
    assert partition.ack_error(log) == ErrorCode.NONE
    partition.make_leader(registration(replicas=(1, 2), isr=(1,), partition_epoch=1), clock.now())
    assert (log.high_watermark, partition.ack_error(log)) == (3, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def test_losing_the_leadership_ends_what_waits(loop):
    partition, replicas, _ = leading(FakeLog(), replicas=(1, 2))
    future = waiting_append(partition, replicas, loop)
    partition.make_follower(registration(replicas=(1, 2), leader=2, leader_epoch=1, partition_epoch=1))
    assert future.result() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_an_append_that_nobody_copies_times_out(loop):
    partition, replicas, _ = leading(FakeLog(), replicas=(1, 2))
    future = waiting_append(partition, replicas, loop, timeout_s=0.01)
    assert loop.run_until_complete(future) == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_waiting_fetch_is_woken_once_for_many_appends(loop):
    partition, _, _ = leading(FakeLog())
    looked: list[int] = []

    def ready() -> bool:
        looked.append(partition.log.high_watermark)
        return True

    waiter = DelayedFetch(loop, [partition], 10.0, ready, lambda: partition.log.high_watermark)
    partition.append(b"a", 1, 0, None)
    partition.append(b"b", 1, 0, None)
    assert loop.run_until_complete(waiter.future) == 2
    assert looked == [2]


def test_a_fetch_that_waited_long_enough_takes_what_there_is(loop):
    partition, _, _ = leading(FakeLog())
    waiter = DelayedFetch(loop, [partition], 0.01, lambda: False, lambda: "nothing")
    assert loop.run_until_complete(waiter.future) == "nothing"
    partition.append(b"a", 1, 0, None)  # nobody is left to wake


def test_a_cancelled_fetch_leaves_its_partitions(loop):
    partition, _, _ = leading(FakeLog())
    waiter = DelayedFetch(loop, [partition], 10.0, lambda: True, lambda: "never")
    waiter.future.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    partition.append(b"a", 1, 0, None)
    loop.run_until_complete(asyncio.sleep(0))
    assert waiter.future.cancelled()


def test_me_is_the_leader():
    partition, replicas, _ = leading(FakeLog())
    assert (replicas.node_id, partition.leader_id) == (ME, ME)
