"""The offset checkpoints of log directories, with truncated and deleted logs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from quorate.log.checkpoints import TopicPartition, write_offsets
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.scheduler import BackgroundScheduler, run_steps

from .logs import DIRECTORY_IDS, TOPIC_ID, contents, manager, put


def test_the_log_start_of_a_killed_node_comes_from_its_checkpoint(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d")
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID)
    put(log, b"a", b"b", b"c")
    log.high_watermark = 3
    log.increment_log_start_offset(2, "test")
    run_steps(logs.checkpoint_log_start_offsets())
    again = manager(tmp_path / "d")
    again.load()
    found = again.get("t", 0)
    assert found is not None and found.log_start_offset == 2


def test_deleted_records_stay_deleted_while_the_files_of_their_segments_wait_for_a_thread(
    tmp_path: Path,
) -> None:
    """A killed node leaves the files that were not renamed yet. Only the checkpoint says where the log starts
    then."""
    logs = manager(tmp_path / "d")
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID)
    for value in (b"a", b"b", b"c"):
        put(log, value)
        log.roll()
    log.high_watermark = 3
    log.increment_log_start_offset(2, "test")
    run_steps(logs.checkpoint_log_start_offsets())
    held = threading.Event()
    logs.scheduler.run_later(lambda: held.wait(10) and None, str(tmp_path / "d"))  # the thread is busy
    assert log.delete_old_segments(0) == 2
    run_steps(logs.checkpoint_log_start_offsets())
    again = manager(tmp_path / "d")
    again.load()
    found = again.get("t", 0)
    assert found is not None and contents(found) == [(2, b"c")]
    held.set()
    logs.scheduler.wait_idle()
    run_steps(logs.checkpoint_log_start_offsets())
    checkpoint = tmp_path / "d" / "log-start-offset-checkpoint"
    assert checkpoint.read_text() == "0\n0\n"


def test_checkpoints_of_a_deleted_log_do_not_apply_to_the_next_log_of_its_name(tmp_path: Path) -> None:
    """A log start offset after the end of the new log would delete all its records. A recovery point after
    its end would leave them unverified."""
    logs = manager(tmp_path / "d")
    logs.load()
    first = logs.get_or_create("t", 0, TOPIC_ID)
    put(first, *[b"%d" % i for i in range(100)])
    first.high_watermark = 100
    first.increment_log_start_offset(80, "test")
    first.flush()
    run_steps(logs.checkpoint_recovery_points())
    run_steps(logs.checkpoint_log_start_offsets())
    run_steps(logs.checkpoint_high_watermarks())
    logs.delete("t", 0)
    put(logs.get_or_create("t", 0, bytes(15) + b"\x09"), b"a", b"b")
    again = manager(tmp_path / "d")
    again.load()
    found = again.get("t", 0)
    assert found is not None and (found.log_start_offset, found.recovery_point, found.high_watermark) == (
        0,
        0,
        0,
    )
    assert contents(found) == [(0, b"a"), (1, b"b")]


def test_a_recovery_point_after_the_end_of_a_recovered_log_is_lowered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a truncation to an offset inside of a batch, the end of the log is not on disk. The leader epoch
    of records that a killed node has appended below it is only in these records."""

    def started() -> PartitionLog:
        logs = manager(tmp_path / "d", segment_bytes=300)
        logs.load()
        return logs.get("t", 0) or logs.get_or_create("t", 0, TOPIC_ID)

    logs = manager(tmp_path / "d", segment_bytes=300)
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID)
    put(log, b"a", epoch=1)
    put(log, *[b"b"] * 9, epoch=1)  # offsets 1 to 9
    log.flush()
    log.truncate_to(8)
    logs.lower_checkpoints([log])
    run_steps(logs.checkpoint_recovery_points())
    again = started()
    assert (again.log_end_offset, again.recovery_point) == (1, 1)
    # The node is killed before its thread has flushed what it appends.
    monkeypatch.setattr(BackgroundScheduler, "run_later", lambda self, work, directory, on_done=None: None)
    while again.log_end_offset < 20:
        put(again, bytes(120), epoch=3)
    last = started()
    assert [last.epochs.epoch_for(offset) for offset in (0, 1, 7, 8, 19)] == [1, 3, 3, 3, 3]


@pytest.mark.parametrize("target", [90, 50], ids=["above the log start", "below it"])
def test_checkpoints_of_a_truncated_log_are_lowered(tmp_path: Path, target: int) -> None:
    logs = manager(tmp_path / "d")
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID)
    for i in range(100):
        put(log, b"%d" % i)
    log.high_watermark = 100
    log.increment_log_start_offset(80, "test")
    log.flush()
    run_steps(logs.checkpoint_recovery_points())
    run_steps(logs.checkpoint_log_start_offsets())
    run_steps(logs.checkpoint_high_watermarks())
    log.truncate_to(target)
    logs.lower_checkpoints([log])
    assert (tmp_path / "d" / "recovery-point-offset-checkpoint").read_text() == f"0\n1\nt 0 {target}\n"
    put(log, b"new")
    again = manager(tmp_path / "d")
    again.load()
    found = again.get("t", 0)
    assert found is not None
    assert (found.log_start_offset, found.recovery_point, found.high_watermark) == (
        min(80, target),
        target,
        target,
    )
    assert contents(found)[-1] == (target, b"new")


def test_epochs_of_a_deleted_topic_do_not_reach_the_directory_of_its_successor(tmp_path: Path) -> None:
    """A roll leaves the epoch checkpoint to the thread, which may be late."""
    logs = manager(tmp_path / "d", file_delete_delay_ms=3_600_000)
    logs.load()
    old = logs.get_or_create("t", 0, TOPIC_ID)
    put(old, b"old", epoch=7)
    held = threading.Event()
    logs.scheduler.run_later(lambda: held.wait(10) and None, str(tmp_path / "d"))
    old.roll()
    logs.delete("t", 0)
    put(logs.get_or_create("t", 0, bytes(15) + b"\x09"), b"new", epoch=0)
    held.set()
    logs.scheduler.wait_idle()
    assert not (tmp_path / "d" / "t-0" / "leader-epoch-checkpoint").exists()
    logs.scheduler.run_callbacks()  # and no directory failed
    logs.close()


def test_the_recovery_point_passes_a_rolled_segment_when_its_epochs_are_durable(
    tmp_path: Path,
) -> None:
    logs = manager(tmp_path / "d")
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID)
    put(log, b"a", epoch=3)
    log.roll()
    logs.scheduler.wait_idle()
    assert log.recovery_point == 0
    logs.scheduler.run_callbacks()
    assert log.recovery_point == 1
    assert (tmp_path / "d" / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"


def test_a_checkpoint_that_was_collected_earlier_does_not_replace_a_later_one(tmp_path: Path) -> None:
    """Two threads write: the periodic job, and an operation that cannot wait for it."""
    logs = manager(tmp_path / "d")
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID)
    put(log, b"a", b"b", b"c")
    log.high_watermark = 1
    earlier = [step for step in logs.checkpoint_high_watermarks() if step is not None]
    log.high_watermark = 3
    run_steps(logs.checkpoint_high_watermarks())
    for step in earlier:
        step()
    assert (tmp_path / "d" / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    logs.close()


def test_checkpoints_that_were_collected_before_a_truncation_do_not_undo_what_it_wrote(
    tmp_path: Path,
) -> None:
    logs = manager(tmp_path / "d")
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID)
    put(log, b"a")
    put(log, b"b")
    log.high_watermark = 2
    collected = [step for step in logs.checkpoint_high_watermarks() if step is not None]
    log.truncate_to(1)
    logs.lower_checkpoints([log])
    for step in collected:
        step()
    assert (tmp_path / "d" / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 1\n"
    assert not any(logs._checkpoints._collecting.values())
    logs.close()


def test_a_checkpoint_that_is_being_written_during_a_truncation_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is slow: a follower truncates its log while a thread writes the offset from before."""
    logs = manager(tmp_path / "d")
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID)
    put(log, b"a")
    log.flush()
    run_steps(logs.checkpoint_recovery_points())
    put(log, b"b")
    put(log, b"c")
    log.flush()
    writing, proceed = threading.Event(), threading.Event()

    def write_slowly(path: str, offsets: Mapping[TopicPartition, int]) -> None:
        if not writing.is_set():
            writing.set()
            assert proceed.wait(30)
        write_offsets(path, offsets)

    monkeypatch.setattr("quorate.log.directories.offset_checkpoints.write_offsets", write_slowly)
    thread = threading.Thread(target=run_steps, args=(logs.checkpoint_recovery_points(),))
    thread.start()
    assert writing.wait(30)
    log.truncate_to(2)
    lowering = threading.Thread(target=logs.lower_checkpoints, args=([log],))
    lowering.start()
    lowering.join(0.2)  # must wait for the other thread; without the rule it has ended by now
    proceed.set()
    thread.join()
    lowering.join()
    assert (tmp_path / "d" / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"
    assert not any(logs._checkpoints._collecting.values())
    logs.close()


def test_checkpoints_collected_before_a_deletion_do_not_apply_to_the_next_log_of_that_name(
    tmp_path: Path,
) -> None:
    logs = manager(tmp_path / "d")
    logs.load()
    put(logs.get_or_create("t", 0, TOPIC_ID), b"a", b"b")
    logs.all_logs()[0].high_watermark = 2
    collected = [step for step in logs.checkpoint_high_watermarks() if step is not None]
    logs.delete("t", 0)
    new = logs.get_or_create("t", 0, bytes(15) + b"\x09")
    for step in collected:
        step()
    assert (tmp_path / "d" / "replication-offset-checkpoint").read_text() == "0\n0\n"
    put(new, b"c")
    logs.close()


@pytest.mark.parametrize(
    "name",
    ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"],
)
@pytest.mark.parametrize("content", [b"9\n", b"0\n5\n", bytes(range(150, 150 + 40))])
def test_a_damaged_checkpoint_only_costs_time(tmp_path: Path, name: str, content: bytes) -> None:
    logs = manager(tmp_path / "d")
    logs.load()
    put(logs.get_or_create("t", 0, TOPIC_ID), b"a", b"b")
    logs.close()
    (tmp_path / "d" / name).write_bytes(content)
    again = manager(tmp_path / "d")
    assert again.load() == []
    log = again.get("t", 0)
    assert log is not None and contents(log) == [(0, b"a"), (1, b"b")]


def test_a_directory_that_fails_while_checkpoints_are_written_keeps_its_last_one(tmp_path: Path) -> None:
    """Its disk may return. With an empty checkpoint, deleted records would come back with it."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    logs = manager(good, bad)
    logs.load()
    for topic, directory in (("g", DIRECTORY_IDS[0]), ("b", DIRECTORY_IDS[1])):
        log = logs.get_or_create(topic, 0, TOPIC_ID, directory_id=directory)
        put(log, b"a", b"b", b"c")
        log.high_watermark = 3
        log.increment_log_start_offset(1, "test")
    run_steps(logs.checkpoint_log_start_offsets())
    log = logs.get("g", 0)
    assert log is not None
    log.increment_log_start_offset(2, "test")
    steps = logs.checkpoint_log_start_offsets()
    write_good = next(steps)
    assert write_good is not None
    logs.mark_offline(bad)  # while a thread writes the file of the other directory
    write_good()
    run_steps(steps)
    again = manager(good, bad)
    again.load()
    found = again.get("b", 0)
    assert found is not None and found.log_start_offset == 1
