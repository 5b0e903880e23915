"""Moves of replicas between the log directories of a broker: what is copied, when the controller is
asked, and what interrupts a move. KIP-113, KIP-858."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.alter_log_dirs import move
from quorate.broker.alter_log_dirs.move import LogDirMove
from quorate.log.errors import LogDirFailure
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.delete_records import DeleteRecordsRequest
from quorate.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from quorate.records.batch import build_batch, iter_batches
from quorate.threads import in_thread

from .moves import RECORDS, A, B, C, Moves
from .world import batch_of, image_of, produce


@pytest.fixture
def moves(tmp_path: Path) -> Iterator[Moves]:
    made = Moves(tmp_path)
    yield made
    if not made.world.loop.is_closed():
        made.shut_down()


def begin(moves: Moves) -> None:
    """A move to the second directory that waits for the controller."""
    assert moves.alter(moves.second) == ErrorCode.NONE
    moves.until(lambda: moves.told == [B])


# -- a move


def test_a_replica_moves_when_the_controller_has_its_new_directory(moves: Moves) -> None:
    begin(moves)
    assert moves.current.dir == moves.first / "t-0"
    assert moves.future is not None and moves.future.log_end_offset == len(RECORDS)
    moves.world.ask(produce("t", (0, batch_of(b"while the controller is asked")), acks=1))
    moves.assign(B)
    moves.until(lambda: moves.current.dir == moves.second / "t-0")
    moves.world.ask(produce("t", (0, batch_of(b"after")), acks=1))
    assert moves.values == [*RECORDS, b"while the controller is asked", b"after"]
    assert (moves.current.log_start_offset, moves.current.high_watermark) == (0, len(RECORDS) + 2)
    assert moves.told == [B] and moves.future is None and len(moves.world.moves) == 0
    moves.world.logs.scheduler.wait_idle()
    assert not (moves.first / "t-0").exists() and moves.futures_on_disk() == []


def test_a_reported_directory_is_not_replaced_by_the_old_one(moves: Moves) -> None:
    """The disk of the replica was replaced, and metadata from before the report still has its old directory.
    A newer report replaces an older one in the queue, so the controller would not learn of the move."""
    begin(moves)
    moves.until(lambda: moves.told == [B])
    moves.assign(bytes([99]) * 16)
    assert moves.told == [B]
    moves.assign(B)
    moves.until(lambda: moves.current.log_dir == moves.second)


def test_the_metadata_without_directories_asks_no_controller(tmp_path: Path) -> None:
    moves = Moves(tmp_path)
    moves.world.replicas.directories.assign = None
    assert moves.alter(moves.second) == ErrorCode.NONE
    moves.until(lambda: moves.current.dir.parent == moves.second)
    assert moves.values == RECORDS
    moves.shut_down()


def test_a_replica_that_is_written_without_a_pause_moves(tmp_path: Path) -> None:
    """A thread copies most records. What was written meanwhile is copied in one turn of the event loop."""
    moves = Moves(tmp_path, replica_fetch_max_bytes="1000000")
    written = 0

    async def write_and_wait() -> None:
        nonlocal written
        while moves.current.dir.parent != moves.second:
            moves.world.ask(produce("t", (0, batch_of(b"more" * 20)), acks=1))
            written += 1
            await asyncio.sleep(0)
            if B in moves.told and moves.assigned != B:
                moves.assign(B)

    assert moves.alter(moves.second) == ErrorCode.NONE
    moves.run(write_and_wait())
    assert moves.values == RECORDS + [b"more" * 20] * written
    moves.shut_down()


def test_an_empty_replica_moves(tmp_path: Path) -> None:
    moves = Moves(tmp_path, records=[])
    begin(moves)
    moves.assign(B)
    moves.until(lambda: moves.current.dir == moves.second / "t-0")
    moves.world.ask(produce("t", (0, batch_of(b"first")), acks=1))
    assert moves.values == [b"first"]
    moves.shut_down()


def test_a_move_is_described_with_its_lag(tmp_path: Path) -> None:
    moves = Moves(tmp_path)
    moves.world.replicas.quotas.alter_log_dirs.set_limit(1)
    assert moves.alter(moves.second) == ErrorCode.NONE
    moves.until(lambda: moves.future is not None and moves.future.log_end_offset > 0)
    found = {
        Path(directory.log_dir): [
            (part.is_future_key, part.offset_lag) for topic in directory.topics for part in topic.partitions
        ]
        for directory in moves.world.ask(DescribeLogDirsRequest(topics=None)).results
    }
    assert moves.future is not None
    lag = len(RECORDS) - moves.future.log_end_offset
    assert lag > 0
    assert found == {moves.first: [(False, 0)], moves.second: [(True, lag)], moves.third: []}
    moves.shut_down()


def test_the_throttle_holds_a_move_until_time_has_passed(tmp_path: Path) -> None:
    moves = Moves(tmp_path)
    quota = moves.world.replicas.quotas.alter_log_dirs
    quota.set_limit(1000)
    clock, began = moves.world.clock, moves.world.clock.now()
    assert moves.alter(moves.second) == ErrorCode.NONE
    sizes = [0]
    for _ in range(3):
        moves.until(lambda: moves.future is not None and moves.future.size_bytes > sizes[-1])
        moves.until(lambda: quota.is_exceeded(clock.now()))
        moves.run(asyncio.sleep(0.05))  # five times the backoff
        assert moves.future is not None
        sizes.append(copied := moves.future.size_bytes)
        assert copied <= 1000 * max(1.0, clock.now() - began) + 500  # one copy may be ahead of the limit
        assert copied < moves.current.size_bytes
        clock.time_s += quota.delay_s(clock.now()) + 0.001
    quota.set_limit(1 << 40)
    moves.until(lambda: moves.told == [B])
    moves.shut_down()


# -- requests


def test_a_request_for_another_directory_replaces_the_move(moves: Moves) -> None:
    begin(moves)
    assert moves.alter(moves.third) == ErrorCode.NONE
    moves.until(lambda: moves.told == [B, A, C])  # the directory that the controller may have is taken back
    assert moves.futures_on_disk() == [moves.third.name]
    moves.assign(C)
    moves.until(lambda: moves.current.dir.parent == moves.third)
    assert moves.values == RECORDS


def test_a_request_for_the_current_directory_cancels_the_move(moves: Moves) -> None:
    begin(moves)
    assert moves.alter(moves.first) == ErrorCode.NONE
    moves.until(lambda: len(moves.world.moves) == 0)
    assert moves.told == [B, A] and moves.future is None and moves.futures_on_disk() == []
    assert moves.current.dir.parent == moves.first and moves.values == RECORDS


def test_the_same_request_again_changes_nothing(moves: Moves) -> None:
    begin(moves)
    before = moves.future
    assert moves.alter(moves.second) == ErrorCode.NONE
    assert moves.future is before and moves.told == [B]


@pytest.mark.parametrize(
    ("path", "topic", "partition", "expected"),
    [
        ("nowhere", "t", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("data1b", "t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("data1b", "other", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("data1b", "x" * 249, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("data1", "t", 0, ErrorCode.NONE),
    ],
)
def test_the_error_of_a_move(
    moves: Moves, path: str, topic: str, partition: int, expected: ErrorCode
) -> None:
    assert moves.alter(moves.tmp_path / path, topic, partition) == expected
    assert len(moves.world.moves) == 0


def test_refusals_of_many_moves_let_the_event_loop_run(moves: Moves) -> None:
    """Each is logged, which takes longer than to refuse it."""
    wanted = [("t", 0, moves.tmp_path / "nowhere")] * 1000

    async def turns() -> int:
        request = asyncio.ensure_future(moves.world.moves.alter(wanted))
        count = 0
        while not request.done():
            count += 1
            await asyncio.sleep(0)
        assert request.result() == [ErrorCode.LOG_DIR_NOT_FOUND] * 1000
        return count

    assert moves.world.loop.run_until_complete(turns()) > 50


def test_no_move_begins_to_a_cordoned_or_while_a_directory_is_offline(moves: Moves) -> None:
    moves.world.logs.cordoned = frozenset([moves.second])
    assert moves.alter(moves.second) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    moves.world.logs.mark_offline(moves.third)
    assert moves.alter(moves.third) == ErrorCode.KAFKA_STORAGE_ERROR
    moves.world.logs.cordoned = frozenset()
    assert moves.alter(moves.second) == ErrorCode.KAFKA_STORAGE_ERROR
    assert moves.futures_on_disk() == []


def test_a_replica_that_this_broker_gets_later_is_created_in_the_directory_of_the_request(
    moves: Moves,
) -> None:
    moves.publish(replicas=(2,), leader=2, partition_epoch=1)
    assert moves.alter(moves.third) == ErrorCode.REPLICA_NOT_AVAILABLE
    moves.publish(replicas=(1,), leader=1, leader_epoch=1, partition_epoch=2)
    moves.world.ask(produce("t", (0, batch_of(b"new")), acks=1))
    assert moves.current.dir == moves.third / "t-0" and moves.told == [C]


# -- what happens during a move


def test_deleted_records_are_not_copied_and_deletions_wait_for_the_future_log(moves: Moves) -> None:
    begin(moves)
    partition = moves.world.replicas.partition("t", 0)
    assert partition.delete_records(7) == (7, 0)
    moves.until(lambda: partition.low_watermark() == 7)
    moves.assign(B)
    moves.until(lambda: moves.current.dir.parent == moves.second)
    assert (moves.current.log_start_offset, moves.current.high_watermark) == (7, len(RECORDS))


def test_a_log_whose_start_has_passed_the_copy_is_copied_from_there(tmp_path: Path) -> None:
    moves = Moves(tmp_path)
    quota = moves.world.replicas.quotas.alter_log_dirs
    quota.set_limit(1)
    assert moves.alter(moves.second) == ErrorCode.NONE
    moves.until(lambda: quota.is_exceeded(moves.world.clock.now()))
    moves.world.replicas.partition("t", 0).delete_records(30)
    quota.set_limit(1 << 40)
    moves.until(lambda: moves.told == [B])
    assert moves.future is not None and moves.future.log_start_offset == 30
    moves.assign(B)
    moves.until(lambda: moves.current.dir.parent == moves.second)
    assert moves.values == RECORDS[30:]
    moves.shut_down()


def delete_records(moves: Moves, offset: int) -> Any:
    """The future response to a DeleteRecords that waits for a move."""
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])
    answer = moves.world.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=60_000))
    assert asyncio.isfuture(answer) or asyncio.iscoroutine(answer)
    return answer


def deleted(moves: Moves, answer: Any) -> tuple[ErrorCode, int]:
    """The error and the low watermark in the response."""
    partition = moves.run(answer).topics[0].partitions[0]
    return ErrorCode.of(partition.error_code), partition.low_watermark


def test_a_deletion_beyond_the_end_of_the_copy_is_answered(tmp_path: Path) -> None:
    moves = Moves(tmp_path)
    quota = moves.world.replicas.quotas.alter_log_dirs
    quota.set_limit(1)
    assert moves.alter(moves.second) == ErrorCode.NONE
    moves.until(lambda: quota.is_exceeded(moves.world.clock.now()))
    answer = delete_records(moves, 30)
    assert deleted(moves, answer) == (ErrorCode.NONE, 30)
    moves.shut_down()


def test_a_deletion_does_not_wait_for_a_move_that_waits_for_others(tmp_path: Path) -> None:
    moves = Moves(tmp_path, num_replica_alter_log_dirs_threads="1")
    slots = moves.world.moves._slots
    moves.run(slots.acquire())
    assert moves.alter(moves.second) == ErrorCode.NONE
    assert deleted(moves, delete_records(moves, 30)) == (ErrorCode.NONE, 30)
    slots.release()
    moves.until(lambda: moves.told == [B])
    moves.assign(B)
    moves.until(lambda: moves.current.dir.parent == moves.second)
    assert moves.values == RECORDS[30:]
    moves.shut_down()


@pytest.mark.parametrize("end", ["cancelled", "directory failed"])
def test_a_deletion_does_not_wait_for_a_move_that_has_ended(moves: Moves, end: str) -> None:
    begin(moves)
    answer = delete_records(moves, 30)
    if end == "cancelled":
        assert moves.alter(moves.first) == ErrorCode.NONE
    else:
        moves._storage_failed(LogDirFailure(str(moves.second), "a disk error"))
    assert deleted(moves, answer) == (ErrorCode.NONE, 30)


@pytest.mark.parametrize("when", ["before", "during"])
def test_deleted_records_do_not_come_back_when_the_broker_is_killed_after_a_move(
    tmp_path: Path, when: str
) -> None:
    """Batches of ten records: the log start offset is inside of one."""
    moves = Moves(tmp_path, records=[])
    for at in range(0, len(RECORDS), 10):
        moves.world.ask(produce("t", (0, batch_of(*RECORDS[at : at + 10])), acks=1))
    if when == "before":
        moves.world.replicas.partition("t", 0).delete_records(7)
    begin(moves)
    if when == "during":
        assert deleted(moves, delete_records(moves, 7)) == (ErrorCode.NONE, 7)
    moves.assign(B)
    moves.until(lambda: moves.current.dir.parent == moves.second)
    moves.world.logs.scheduler.wait_idle()
    moves.kill()
    moves.start()
    assert moves.current.dir.parent == moves.second
    assert (moves.current.log_start_offset, moves.current.log_end_offset) == (7, len(RECORDS))
    moves.shut_down()


def follow(moves: Moves, leader_epoch: int) -> None:
    moves.publish(
        replicas=(1, 2), leader=2, leader_epoch=leader_epoch, partition_epoch=leader_epoch, isr=(1, 2)
    )


def replicated(base: int, epoch: int, *values: bytes) -> bytes:
    return build_batch(
        [(None, value, [], 1_000_000) for value in values], base_offset=base, leader_epoch=epoch
    )


@pytest.mark.parametrize("offset", [0, 5, 39])
def test_a_follower_that_truncates_its_log_truncates_the_copy(moves: Moves, offset: int) -> None:
    """The records that it copies from the new leader have the same offsets."""
    begin(moves)
    follow(moves, 1)
    partition = moves.world.replicas.partition("t", 0)
    partition.truncate_to(offset)
    for n in range(offset, len(RECORDS)):
        moves.current.append_as_follower(replicated(n, 1, b"from the new leader"))
    moves.assigned = B
    follow(moves, 2)
    moves.until(lambda: moves.current.dir.parent == moves.second)
    assert moves.values == RECORDS[:offset] + [b"from the new leader"] * (len(RECORDS) - offset)
    assert moves.current.epochs.entries() == ([(0, 0)] if offset else []) + [(1, offset)]


def test_a_follower_that_begins_again_at_a_later_offset_takes_the_copy_along(moves: Moves) -> None:
    begin(moves)
    follow(moves, 1)
    moves.world.replicas.partition("t", 0).truncate_fully_and_start_at(100)
    moves.current.append_as_follower(replicated(100, 1, b"a", b"b"))
    moves.assigned = B
    follow(moves, 2)
    moves.until(lambda: moves.current.dir.parent == moves.second)
    assert (moves.current.log_start_offset, moves.current.log_end_offset) == (100, 102)


def test_a_change_of_the_leader_does_not_interrupt_a_move(moves: Moves) -> None:
    begin(moves)
    follow(moves, 1)
    moves.current.append_as_follower(replicated(len(RECORDS), 1, b"of broker 2"))
    moves.publish(leader=1, leader_epoch=2, partition_epoch=2)
    moves.world.ask(produce("t", (0, batch_of(b"of broker 1")), acks=1))
    moves.assigned = B
    moves.publish(partition_epoch=3)
    moves.until(lambda: moves.current.dir.parent == moves.second)
    assert moves.values == [*RECORDS, b"of broker 2", b"of broker 1"]
    assert moves.current.epochs.entries() == [(0, 0), (1, 40), (2, 41)]


def test_a_deleted_topic_ends_its_move(moves: Moves) -> None:
    begin(moves)
    moves.world.publish(image_of({}))
    moves.until(lambda: len(moves.world.moves) == 0)
    assert moves.world.logs.get("t", 0) is None and moves.futures_on_disk() == []


def test_a_failure_of_the_target_leaves_the_replica_where_it_is(moves: Moves) -> None:
    begin(moves)
    moves._storage_failed(LogDirFailure(str(moves.second), "Input/output error"))
    moves.until(lambda: len(moves.world.moves) == 0)
    assert moves.told == [B, A]
    moves.world.ask(produce("t", (0, batch_of(b"served")), acks=1))
    assert moves.values == [*RECORDS, b"served"] and moves.current.dir.parent == moves.first


def test_a_target_that_cannot_be_written_fails_and_the_replica_is_served(
    moves: Moves, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise LogDirFailure(str(moves.second), "Input/output error")

    monkeypatch.setattr(LogDirMove, "_append", refuse)
    moves.alter(moves.second)
    moves.until(lambda: moves.failed == [moves.second.name] and len(moves.world.moves) == 0)
    assert moves.told == [] and moves.current.dir.parent == moves.first and moves.values == RECORDS


def test_a_failure_of_the_source_takes_the_replica_offline_and_its_directory_back(moves: Moves) -> None:
    """The controller may have the new directory, and would count the replica as online."""
    begin(moves)
    moves.assign(B)
    moves._storage_failed(LogDirFailure(str(moves.first), "Input/output error"))
    moves.until(lambda: len(moves.world.moves) == 0)
    assert moves.told == [B, A]
    assert moves.futures_on_disk() == [moves.second.name]
    answer = moves.world.ask(produce("t", (0, batch_of(b"x")), acks=1))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("in_segment", ["active", "rolled"])
def test_a_source_that_is_not_readable_fails(
    moves: Moves, monkeypatch: pytest.MonkeyPatch, in_segment: str
) -> None:
    """Only for a rolled segment, the first access asks whether its pages are in memory."""

    def bad_sector(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    if in_segment == "rolled":
        moves.current.roll()
    monkeypatch.setattr("quorate.log.segment.segment.resident_bytes", bad_sector)
    monkeypatch.setattr("quorate.protocol.file_region.FileRegion.read", bad_sector)
    moves.alter(moves.second)
    moves.until(lambda: moves.failed == [moves.first.name])


# -- restarts


@pytest.mark.parametrize("stop", ["shut_down", "kill"])
@pytest.mark.parametrize("accepted", [False, True])
def test_a_restart_continues_the_move(tmp_path: Path, stop: str, accepted: bool) -> None:
    moves = Moves(tmp_path)
    begin(moves)
    moves.world.ask(produce("t", (0, batch_of(b"not copied yet")), acks=1))
    if accepted:
        moves.assigned = B  # the broker stops before it applies that
    getattr(moves, stop)()
    moves.start()
    assert moves.current.dir.parent == moves.first
    moves.world.moves.resume()
    if not accepted:
        moves.until(lambda: moves.told == [B])
        moves.assign(B)
    moves.until(lambda: moves.current.dir.parent == moves.second)
    assert moves.told == ([] if accepted else [B])
    assert moves.values == [*RECORDS, b"not copied yet"]
    moves.shut_down()


def test_a_copy_that_has_more_than_the_recovered_log_is_truncated(tmp_path: Path) -> None:
    """A crash has lost the last records of the log, and the new leader epoch has written others."""
    moves = Moves(tmp_path)
    begin(moves)
    moves.shut_down()
    moves.start()
    moves.current.truncate_to(35)
    moves.publish(leader_epoch=5, partition_epoch=1)
    for _ in range(8):
        moves.world.ask(produce("t", (0, batch_of(b"later")), acks=1))
    moves.world.moves.resume()
    moves.assign(B)
    moves.until(lambda: moves.current.dir.parent == moves.second)
    assert moves.values == RECORDS[:35] + [b"later"] * 8
    moves.shut_down()


@pytest.mark.parametrize("step", range(1, 12))
def test_a_broker_that_is_killed_at_any_step_of_a_move_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Each step is disk work in a thread: the creation of the files, a copy, the flush before the report."""
    moves = Moves(tmp_path, replica_fetch_max_bytes="800")
    left = step

    async def until_killed(work: Callable[..., Any], *args: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise asyncio.CancelledError
        return await in_thread(work, *args)

    monkeypatch.setattr(move, "in_thread", until_killed)
    asked = moves.world.moves.alter([("t", 0, moves.second)])
    task = moves.world.loop.create_task(asked)
    moves.until(lambda: left <= 0 or moves.told == [B])
    assert left <= 0 or step > 8
    task.cancel()
    moves.kill()
    monkeypatch.undo()
    moves.start()
    moves.world.moves.resume()
    if moves.future is None:  # killed before the files were created
        assert step == 1 and moves.alter(moves.second) == ErrorCode.NONE
    moves.until(lambda: B in moves.told)
    moves.assign(B)
    moves.until(lambda: moves.current.dir.parent == moves.second)
    assert moves.values == RECORDS
    moves.shut_down()


def lose_last_batch(segment: Path) -> None:
    """A power failure has lost the end of a segment that was not synced yet."""
    *_, (_, last) = iter_batches(segment.read_bytes())
    os.truncate(segment, segment.stat().st_size - len(last))


def test_a_copy_with_a_gap_is_copied_again_from_there(tmp_path: Path) -> None:
    moves = Moves(tmp_path)
    begin(moves)
    for value in (b"a", b"b"):
        moves.world.ask(produce("t", (0, batch_of(value)), acks=1))
    moves.until(lambda: moves.future is not None and moves.future.log_end_offset == 42)
    assert moves.future is not None
    moves.future.roll()
    moves.world.ask(produce("t", (0, batch_of(b"c")), acks=1))
    moves.until(lambda: moves.future is not None and moves.future.log_end_offset == 43)
    copy = moves.future.dir
    moves.kill()
    lose_last_batch(min(copy.glob("*.log")))
    moves.start()
    moves.world.moves.resume()
    moves.assign(B)
    moves.until(lambda: moves.current.dir.parent == moves.second)
    assert moves.values == [*RECORDS, b"a", b"b", b"c"]
    moves.shut_down()


def test_the_gap_of_a_replica_is_still_known_after_its_move(tmp_path: Path) -> None:
    moves = Moves(tmp_path)
    moves.current.roll()
    moves.world.ask(produce("t", (0, batch_of(b"later")), acks=1))
    source = moves.current.dir
    moves.kill()
    lose_last_batch(min(source.glob("*.log")))
    moves.start()
    assert moves.current.gap_start == 39
    begin(moves)
    moves.assign(B)
    moves.until(lambda: moves.current.dir.parent == moves.second)
    assert (moves.current.log_end_offset, moves.current.gap_start) == (41, 39)
    moves.shut_down()
    moves.start()
    assert (moves.failed, moves.current.log_end_offset, moves.current.gap_start) == ([], 41, 39)
    moves.shut_down()
