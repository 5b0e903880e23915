"""A follower and its leader on real logs, without a network: copying, high watermarks, truncation."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from quorate.broker.handlers import BrokerHandlers
from quorate.broker.replication.fetch_session import FetchPartition, FetchSessionCache, FetchSessions
from quorate.broker.replication.fetcher.fetch_positions import FetchState
from quorate.broker.replication.fetcher.fetch_session_handler import FetchSessionHandler
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.partition.producer_state import AppendOrigin
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.list_offsets import ListOffsetsRequest
from quorate.records.batch import iter_batches, set_placement

from .pair import FOLLOWER, LEADER, Pair, placed, write
from .world import batch_of, topic_id_of


@pytest.fixture
def pair(tmp_path: Path):
    made = Pair(tmp_path)
    yield made
    made.close()


def test_batches_are_copied_unchanged(pair):
    write(pair, LEADER, b"a", b"b")
    write(pair, LEADER, b"c")
    pair.follow()
    pair.rounds()
    ours, theirs = pair.log(FOLLOWER), pair.log(LEADER)
    assert ours.read_bytes(0, 1 << 20) == theirs.read_bytes(0, 1 << 20)
    assert ours.epochs.entries() == theirs.epochs.entries() == [(0, 0)]


def test_the_watermark_follows_with_the_next_fetch(pair):
    write(pair, LEADER, b"a")
    pair.follow()
    pair.rounds()
    assert (pair.log(LEADER).high_watermark, pair.log(FOLLOWER).high_watermark) == (0, 0)
    pair.rounds(2)
    assert (pair.log(LEADER).high_watermark, pair.log(FOLLOWER).high_watermark) == (1, 1)


def test_a_caught_up_replica_outside_of_the_isr_is_proposed(tmp_path):
    pair = Pair(tmp_path, placed(isr=(1,)))
    write(pair, LEADER, b"a")
    pair.follow()
    pair.rounds(2)
    (change,) = pair.brokers[LEADER].replicas.isr_sender.changes
    assert change.isr == (1, 2)
    pair.close()


def test_later_requests_of_a_session_name_only_what_changed(pair):
    wire = pair.follow()
    pair.rounds(3)
    assert [len(request.topics) for request in wire.requests] == [1, 0, 0]
    write(pair, LEADER, b"a")
    pair.rounds(2)
    assert [len(request.topics) for request in wire.requests[3:]] == [0, 1]


def test_a_session_that_the_leader_lost_is_opened_again(pair):
    wire = pair.follow()
    pair.rounds(2)
    for session in list(pair.brokers[LEADER].services.sessions.cache):
        pair.brokers[LEADER].services.sessions.cache.remove(session.id)
    write(pair, LEADER, b"a")
    pair.rounds(2)
    assert pair.values(FOLLOWER) == [b"a"]
    assert (wire.requests[-1].session_epoch, len(wire.requests[-1].topics)) == (0, 1)


def test_uncommitted_records_of_the_old_leader_are_truncated(pair):
    """The old leader has records that were not replicated, the new one has a later epoch. The records of
    the old one must be truncated."""
    write(pair, LEADER, b"common")
    pair.follow()
    pair.rounds(2)
    write(pair, LEADER, b"lost1", b"lost2")
    pair.publish(placed(leader=2, epoch=1, partition_epoch=1))
    write(pair, FOLLOWER, b"won")
    pair.follow(leader=2, follower=1)
    pair.rounds(3)
    assert pair.values(1) == pair.values(2) == [b"common", b"won"]
    assert pair.log(1).epochs.entries() == pair.log(2).epochs.entries() == [(0, 0), (1, 1)]


def test_logs_that_diverge_more_than_once_become_equal(pair):
    write(pair, 1, b"e0")
    pair.follow()
    pair.rounds(2)
    write(pair, 1, b"only-1")
    for epoch, leader in ((1, 2), (2, 2), (3, 1), (4, 2)):
        pair.publish(placed(leader=leader, epoch=epoch, partition_epoch=epoch))
        write(pair, leader, b"e%d" % epoch)
    pair.follow(leader=2, follower=1)
    pair.rounds(6)
    assert pair.values(1) == pair.values(2)
    assert pair.log(1).read_bytes(0, 1 << 20) == pair.log(2).read_bytes(0, 1 << 20)


def test_a_follower_behind_the_log_start_of_the_leader_starts_over(pair):
    for value in (b"a", b"b", b"c"):
        write(pair, LEADER, value)
    log = pair.log(LEADER)
    log.high_watermark = 3
    log.increment_log_start_offset(2, "test")
    pair.follow()
    pair.rounds(4)
    assert (pair.log(FOLLOWER).log_start_offset, pair.log(FOLLOWER).log_end_offset) == (2, 3)


def test_the_leaders_log_start_is_followed(pair):
    write(pair, LEADER, b"a")
    write(pair, LEADER, b"b")
    pair.follow()
    pair.rounds(3)
    pair.log(LEADER).increment_log_start_offset(1, "retention")
    pair.brokers[LEADER].replicas.shrink_isrs()
    pair.rounds(2)
    assert pair.log(FOLLOWER).log_start_offset == 1


def test_a_log_start_at_a_new_high_watermark_is_followed(pair):
    """One response has both. The log start must not exceed the high watermark, which is therefore applied
    first."""
    write(pair, LEADER, b"a", b"b")
    pair.follow()
    pair.rounds()
    leader = pair.brokers[LEADER].replicas.partition("t", 0)
    leader.follower_fetched(FOLLOWER, 200, 2, 0, 2, pair.brokers[LEADER].clock.now())
    assert leader.delete_records(-1) == (2, 0)
    pair.rounds(2)
    log = pair.log(FOLLOWER)
    assert (log.high_watermark, log.log_start_offset, log.log_end_offset) == (2, 2, 2)
    assert leader.low_watermark() == 2


def test_a_log_start_within_records_that_are_not_committed_here_is_followed(pair):
    """The leader's log start is above the follower's high watermark and inside its log. The follower
    continues at the end of its log."""
    write(pair, LEADER, b"a", b"b", b"c")
    pair.follow()
    pair.rounds()
    leader = pair.log(LEADER)
    assert pair.log(FOLLOWER).high_watermark == 0
    leader.high_watermark = 3
    leader.increment_log_start_offset(2, "test")
    assert pair.fetcher is not None
    ((key, followed),) = pair.fetcher._states.items()
    pair.loop.run_until_complete(pair.fetcher._handle_out_of_range(key, followed))
    assert (followed.fetch_offset, pair.values(FOLLOWER)) == (3, [b"a", b"b", b"c"])
    pair.rounds(2)
    assert pair.log(FOLLOWER).log_start_offset == 2


def test_a_follower_copies_what_a_power_failure_has_lost_before_later_records(pair, tmp_path):
    """It lost the end of a segment, and kept the next one.

    The leader finds no divergence, because the epoch of the last record is its own. The follower left the
    ISR when it registered again.
    """
    pair.publish(placed(isr=(LEADER,), partition_epoch=1))
    for value in (b"a", b"b", b"c"):
        write(pair, LEADER, value)
    leader, files = pair.log(LEADER), pair.brokers[FOLLOWER].files
    batches = [bytes(batch) for _, batch in iter_batches(leader.read_bytes(0, 1 << 20))]
    written = PartitionLog.open(tmp_path / "t-0", leader.config, files=files)
    written.append_as_follower(batches[0] + batches[1])
    written.roll()
    written.append_as_follower(batches[2])
    os.truncate(written.segments[0].log_path, len(batches[0]))
    partition = pair.brokers[FOLLOWER].replicas.partition("t", 0)
    partition.use_log(PartitionLog.open(tmp_path / "t-0", leader.config, files=files))
    assert pair.values(FOLLOWER) == [b"a"]
    pair.follow()
    pair.rounds(3)
    assert pair.log(FOLLOWER).read_bytes(0, 1 << 20) == leader.read_bytes(0, 1 << 20)
    pair.follow()
    assert pair.log(FOLLOWER).log_end_offset == 3
    partition.log.close()


def test_a_log_that_moves_to_another_directory_meanwhile_is_truncated_with_its_checkpoints(
    pair, tmp_path, monkeypatch
):
    """The move ends while the fetcher waits for the offsets of the leader, whose log is shorter."""
    write(pair, LEADER, b"a")
    wire = pair.follow()
    pair.rounds(2)
    pair.publish(placed(epoch=1, partition_epoch=1))
    write(pair, LEADER, b"b", b"c")
    pair.follow()
    pair.rounds(2)
    pair.log(LEADER).truncate_to(1)
    partition, logs = pair.brokers[FOLLOWER].replicas.partition("t", 0), pair.brokers[FOLLOWER].logs
    old = partition.log
    moved = PartitionLog.open(tmp_path / "t-0", old.config, files=pair.brokers[FOLLOWER].files)
    moved.append_as_follower(old.read_bytes(0, 1 << 20))
    assert pair.fetcher is not None
    wire, lowered = pair.fetcher.wire, []
    call = wire.call

    async def finish_the_move(request, timeout_s):
        answer = await call(request, timeout_s)
        partition.use_log(moved)
        return answer

    monkeypatch.setattr(wire, "call", finish_the_move)
    monkeypatch.setattr(logs, "lower_checkpoints", lowered.extend)
    ((key, followed),) = pair.fetcher._states.items()
    pair.fetcher._out_of_range.append(key)
    pair.loop.run_until_complete(pair.fetcher._handle_out_of_range_partitions())
    assert lowered == [moved]
    assert (moved.log_end_offset, old.log_end_offset) == (1, 3)
    assert followed.position == (1, 0, 1, 0)
    moved.close()


def test_an_error_of_one_partition_makes_it_wait(pair):
    pair.follow()
    pair.brokers[LEADER].publish(placed(leader=2, epoch=1, partition_epoch=1))
    pair.rounds()
    assert pair.fetcher is not None
    (followed,) = pair.fetcher._states.values()
    assert followed.delayed_until > pair.loop.time()
    assert not pair.loop.run_until_complete(pair.fetcher._fetch_once())


def test_leaders_and_followers_swap_under_load_and_agree(pair):
    """A random history in which the leader appends and the follower copies a part. At the end both logs
    have the same bytes."""
    import random

    rng = random.Random(7)
    leader, epoch = 1, 0
    pair.follow()
    for step in range(60):
        for _ in range(rng.randint(0, 3)):
            partition = pair.brokers[leader].replicas.partition("t", 0)
            partition.append(batch_of(b"%d" % step), 1, 1000, AppendOrigin.CLIENT)
        pair.rounds(rng.randint(0, 2))
        if rng.random() < 0.3:
            leader, epoch = 3 - leader, epoch + 1
            pair.publish(placed(leader=leader, epoch=epoch, partition_epoch=epoch))
            pair.follow(leader=leader, follower=3 - leader)
    pair.rounds(20)
    assert pair.log(1).read_bytes(0, 1 << 20) == pair.log(2).read_bytes(0, 1 << 20)
    assert pair.log(1).log_end_offset == pair.log(2).log_end_offset > 0


def test_an_unexpected_error_of_one_partition_delays_no_other(tmp_path, monkeypatch):
    pair = Pair(tmp_path, placed(partitions=3))
    for partition in range(3):
        write(pair, LEADER, b"a", partition=partition)
    pair.follow()
    broken = pair.log(FOLLOWER, 0)
    append = PartitionLog.append_as_follower

    def failing(log, *args, **options):
        if log is broken:
            raise ZeroDivisionError("a fault of this broker")
        return append(log, *args, **options)

    monkeypatch.setattr(PartitionLog, "append_as_follower", failing)
    pair.rounds(2)
    assert [pair.log(FOLLOWER, partition).log_end_offset for partition in range(3)] == [0, 1, 1]
    assert [pair.log(LEADER, partition).high_watermark for partition in range(3)] == [0, 1, 1]
    monkeypatch.undo()
    fetcher = pair.fetcher
    assert fetcher is not None
    failed = fetcher._states[topic_id_of("t"), 0]
    assert (failed.failures, failed.delayed_until > pair.loop.time()) == (1, True)
    assert fetcher.failed_count == 1
    failed.delayed_until = 0.0
    pair.rounds(2)
    assert (pair.log(FOLLOWER, 0).log_end_offset, failed.failures) == (1, 0)
    assert fetcher.failed_count == 0
    pair.close()


def test_a_failed_log_directory_ends_only_the_copying_of_its_partitions(tmp_path):
    pair = Pair(tmp_path, placed(partitions=3))
    for partition in range(3):
        write(pair, LEADER, b"a", partition=partition)
    here = pair.brokers[FOLLOWER]
    pair.follow()
    here.replicas.fetchers = SimpleNamespace(stop_following=pair.fetcher.remove)
    here.replicas.storage_failed = lambda _failure: here.replicas.go_offline([("t", 0)])
    broken = here.logs.get_or_create("t", 0, topic_id_of("t"))
    broken.dir.parent.joinpath("t-0").write_bytes(b"a file where the log's directory should be")
    pair.rounds(2)
    assert [pair.log(FOLLOWER, partition).log_end_offset for partition in (1, 2)] == [1, 1]
    assert len(pair.fetcher._states) == 2
    pair.close()


def test_without_a_session_each_partition_has_its_turn(tmp_path):
    """The leader's response has room for one batch, and the first partition always has data."""
    pair = Pair(tmp_path, placed(partitions=3))
    leader = pair.brokers[LEADER].services
    leader.sessions = FetchSessions(FetchSessionCache(0, 1000, lambda: 1), leader.metadata.topic_name)
    broker = pair.brokers[LEADER]
    broker.handlers = BrokerHandlers(leader).routes | {int(ApiKey.PRODUCE): broker.produce_handler}
    wire = pair.follow()
    assert pair.fetcher is not None
    pair.fetcher._max_bytes = 1
    for partition in range(3):
        for i in range(20):
            write(pair, LEADER, b"%d" % i * 100, partition=partition)
    pair.rounds(9)
    assert {request.session_epoch for request in wire.requests} == {0}
    assert [pair.log(FOLLOWER, partition).log_end_offset for partition in range(3)] == [3, 3, 3]
    pair.close()


@pytest.mark.parametrize("asked", [1, 2], ids=["for the leader's end", "for the leader's start"])
def test_a_response_about_offsets_truncates_no_log_that_is_no_longer_followed(pair, asked):
    """After a request for the leader's log bounds, this broker becomes the leader, in the same epoch or
    in another one. The response must not truncate its log."""
    for _ in range(3):
        write(pair, LEADER, b"a")
    pair.follow()
    pair.rounds(2)
    fetcher = pair.fetcher
    assert fetcher is not None
    leader, follower = pair.log(LEADER), pair.brokers[FOLLOWER].replicas.partition("t", 0)
    if asked == 1:
        pair.brokers[LEADER].replicas.partition("t", 0).truncate_to(1)
        leader.epochs.clear()  # or the answer would be a diverging epoch
    else:
        write(pair, LEADER, *[b"b"] * 5)
        leader.high_watermark = 8
        leader.increment_log_start_offset(6, "test")
    answered = 0
    call = fetcher.wire.call

    async def overtaken(request, timeout_s):
        nonlocal answered
        answer = await call(request, timeout_s)
        if isinstance(request, ListOffsetsRequest):
            answered += 1
            if answered == asked:
                fetcher.remove(follower)
                fetcher.add(follower)
        return answer

    fetcher.wire.call = overtaken
    pair.rounds()
    assert answered == asked
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (0, 3)


@pytest.mark.parametrize("leaders", ["quorate", "kafka"])
def test_offsets_in_a_response_that_a_new_epoch_overtook_are_sent_again(pair, leaders, monkeypatch):
    """The leader stays and the log does not grow, so nothing else would bring the high watermark and the
    log start offset. A deletion of records waits for the latter. The session of one of Kafka's leaders keeps
    the offsets that it has sent."""
    if leaders == "kafka":
        update = FetchPartition.update

        def keeping(part: FetchPartition, other: FetchPartition) -> None:
            sent = part.sent_high_watermark, part.sent_log_start_offset
            update(part, other)
            part.sent_high_watermark, part.sent_log_start_offset = sent

        monkeypatch.setattr(FetchPartition, "update", keeping)
    write(pair, LEADER, b"a", b"b")
    pair.follow()
    pair.rounds()
    fetcher, follower = pair.fetcher, pair.brokers[FOLLOWER].replicas.partition("t", 0)
    assert fetcher is not None
    call = fetcher.wire.call

    async def overtaken(request, timeout_s):
        answer = await call(request, timeout_s)
        pair.publish(placed(epoch=1, partition_epoch=1))
        fetcher.remove(follower)
        fetcher.add(follower)
        fetcher.wire.call = call
        return answer

    fetcher.wire.call = overtaken
    pair.rounds()
    leader = pair.brokers[LEADER].replicas.partition("t", 0)
    assert (follower.log.high_watermark, leader.log.high_watermark) == (0, 2)
    pair.rounds(2)
    assert follower.log.high_watermark == 2


def test_batches_of_a_later_epoch_than_the_fetch_are_not_appended(pair):
    """The leader loses its role between its answer and the moment in which the records are sent from its
    file. Meanwhile it has truncated its log and copied records of the next leader to the same place. With
    these this follower would miss the first records of the new epoch for good (KAFKA-18723)."""
    write(pair, LEADER, b"common")
    write(pair, LEADER, b"old-1")
    pair.follow()
    pair.rounds(2)
    write(pair, LEADER, b"old-2")
    fetcher, leader = pair.fetcher, pair.log(LEADER)
    assert fetcher is not None
    call = fetcher.wire.call

    async def sent_late(request, timeout_s):
        answer = await call(request, timeout_s)
        leader.truncate_to(1)
        for offset, value in enumerate((b"new-1", b"new-2"), 1):
            batch = bytearray(batch_of(value))
            set_placement(batch, offset, 1)
            leader.append_as_follower(batch)
        answer.responses[0].partitions[0].records = leader.read_bytes(2, 1 << 20)
        return answer

    fetcher.wire.call = sent_late
    pair.rounds()
    assert pair.values(FOLLOWER) == [b"common", b"old-1"]
    assert pair.log(FOLLOWER).epochs.entries() == [(0, 0)]


def test_a_log_without_epochs_is_truncated_to_its_high_watermark(pair):
    """Records above the high watermark may be from a former leader. Without epochs the divergence cannot
    be found."""
    write(pair, LEADER, b"a")
    write(pair, LEADER, b"b")
    pair.log(FOLLOWER).append_as_follower(pair.log(LEADER).read_bytes(0, 1))
    stale = bytearray(batch_of(b"stale", b"stale"))
    set_placement(stale, 1, -1)
    log = pair.log(FOLLOWER)
    log.append_as_follower(bytes(stale))
    log.high_watermark = 1
    log.epochs.clear()
    pair.follow()
    pair.rounds(2)
    assert pair.values(FOLLOWER) == [b"a", b"b"]
    assert log.epochs.entries() == [(0, 1)]


def test_checkpoints_are_lowered_before_anything_is_appended_after_a_truncation(pair):
    write(pair, LEADER, b"common")
    pair.follow()
    pair.rounds(2)
    for _ in range(5):
        write(pair, LEADER, b"lost")
    logs = pair.brokers[LEADER].logs
    pair.log(LEADER).flush()
    for _slice in logs.checkpoint_recovery_points():
        pass
    pair.publish(placed(leader=2, epoch=1, partition_epoch=1))
    write(pair, FOLLOWER, b"won")
    pair.follow(leader=2, follower=1)
    pair.rounds(1)
    assert pair.log(1).log_end_offset == 1
    checkpoint = pair.log(1).dir.parent / "recovery-point-offset-checkpoint"
    assert checkpoint.read_text() == "0\n1\nt 0 1\n"
    pair.rounds(2)
    assert pair.values(1) == [b"common", b"won"]


# -- the fetcher's half of a session


def test_a_refused_session_sends_a_full_request():
    session = FetchSessionHandler()
    wanted = {(b"t", 0): (0, 0, 0, -1), (b"t", 1): (0, 0, 0, -1)}
    assert session.next(wanted) == (wanted, [])
    assert session.handle_response(0, 5)
    assert (session.session_id, session.epoch) == (5, 1)
    assert session.next({(b"t", 0): (1, 0, 0, -1)}) == ({(b"t", 0): (1, 0, 0, -1)}, [(b"t", 1)])
    assert not session.handle_response(int(ErrorCode.INVALID_FETCH_SESSION_EPOCH), 5)
    assert session.next(wanted) == (wanted, [])
    assert (session.session_id, session.epoch) == (0, 0)


def test_a_leader_with_a_full_session_cache_gets_full_requests():
    session = FetchSessionHandler()
    wanted = {(b"t", 0): (0, 0, 0, -1)}
    session.next(wanted)
    assert session.handle_response(0, 0)
    assert session.next(wanted) == (wanted, [])


def test_a_fetch_names_the_replica_and_its_epoch(pair):
    wire = pair.follow()
    pair.rounds()
    request: FetchRequest = wire.requests[0]
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 200)


def test_a_session_is_sent_only_the_partitions_that_may_have_changed():
    session = FetchSessionHandler()
    session.next({(b"t", i): (0, 0, 0, -1) for i in range(4)})
    assert session.handle_response(0, 5) and not session.is_full
    changes = {
        (b"t", 0): (0, 0, 0, -1),  # is as it was sent
        (b"t", 1): (7, 0, 0, -1),  # has changed
        (b"t", 2): None,  # is no longer wanted
        (b"t", 8): None,  # was never wanted
        (b"t", 9): (0, 0, 0, -1),  # is new
    }
    assert session.next_changes(changes) == (
        {(b"t", 1): (7, 0, 0, -1), (b"t", 9): (0, 0, 0, -1)},
        [(b"t", 2)],
    )
    assert session.next_changes(changes) == ({}, [])


def test_an_idle_fetch_looks_at_no_partition(pair, monkeypatch):
    pair.follow()
    pair.rounds(2)
    looks: list[int] = []
    position = FetchState.position.fget
    monkeypatch.setattr(FetchState, "position", property(lambda state: looks.append(1) or position(state)))
    pair.rounds(5)
    assert looks == []
    write(pair, LEADER, b"a")
    pair.rounds(2)
    assert looks and pair.values(FOLLOWER) == [b"a"]


def test_a_delayed_partition_is_fetched_again_after_its_delay(pair):
    wire = pair.follow()
    pair.rounds(2)
    ((key, state),) = pair.fetcher._states.items()
    pair.fetcher._delay(state, 0.05)
    pair.rounds()  # only partition: nothing is sent
    sent = len(wire.requests)
    write(pair, LEADER, b"a")
    pair.loop.run_until_complete(asyncio.sleep(0.06))
    pair.rounds()
    assert len(wire.requests) == sent + 1
    assert pair.values(FOLLOWER) == [b"a"] and key in pair.fetcher._positions.sent


def test_a_log_start_that_retention_raised_here_is_sent_later(pair, monkeypatch):
    write(pair, LEADER, b"a", b"b")
    write(pair, LEADER, b"c")
    wire = pair.follow()
    pair.rounds(3)
    pair.log(FOLLOWER).increment_log_start_offset(2, "retention")
    pair.rounds()
    assert wire.requests[-1].topics == []
    pair.fetcher._positions._compare_all_at = 0.0
    pair.rounds()
    assert [part.log_start_offset for part in wire.requests[-1].topics[0].partitions] == [2]
