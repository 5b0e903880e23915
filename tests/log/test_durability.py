"""Which files are synced, and in which order."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from quorate.log.config import LogConfig
from quorate.log.directories.manager import LogManager
from quorate.log.directories.periodic_jobs import apply_retention
from quorate.log.errors import LogDirFailure
from quorate.log.files import OpenFiles, write_atomically
from quorate.log.partition.flusher import save_epochs_in_advance
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.scheduler import BackgroundScheduler, run_steps
from quorate.log.segment.segment import Segment

from .logs import NOW, TOPIC_ID, open_log, put


def names(paths: list[str]) -> list[str]:
    return [Path(path).name for path in paths]


def test_an_append_syncs_nothing(tmp_path: Path, synced: list[str]) -> None:
    log = open_log(tmp_path)
    put(log, b"a")
    put(log, b"b", epoch=3)
    assert synced == []


def test_the_first_flush_syncs_the_directories_and_later_ones_only_the_data(
    tmp_path: Path, synced: list[str]
) -> None:
    log = open_log(tmp_path)
    put(log, b"a")
    log.flush()
    assert names(synced) == [
        "partition.metadata",
        f"{0:020d}.log",
        "topic-0",
        "leader-epoch-checkpoint.tmp",
        "topic-0",
    ]
    synced.clear()
    put(log, b"b")
    log.flush()
    assert names(synced) == [f"{0:020d}.log"]
    synced.clear()
    log.flush()
    assert synced == []


@pytest.mark.parametrize(("clean", "again"), [(False, ["partition.metadata"]), (True, [])])
def test_the_topic_id_that_a_killed_process_wrote_is_synced_by_the_next_one(
    tmp_path: Path, synced: list[str], clean: bool, again: list[str]
) -> None:
    """Else a power failure after a clean stop loses it."""
    put(open_log(tmp_path), b"a")
    log = open_log(tmp_path, clean_shutdown=clean)
    synced.clear()
    log.close()
    assert [name for name in names(synced) if name == "partition.metadata"] == again


def test_a_new_epoch_is_in_its_file_before_the_recovery_point_passes_it(
    tmp_path: Path, synced: list[str]
) -> None:
    log = open_log(tmp_path)
    put(log, b"a")
    log.flush()
    put(log, b"b", epoch=5)
    synced.clear()
    log.flush()
    assert names(synced) == [f"{0:020d}.log", "leader-epoch-checkpoint.tmp", "topic-0"]
    assert (log.dir / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n5 1\n"


@pytest.mark.parametrize("stop", ["kill", "orderly", "flush"])
@pytest.mark.parametrize("epoch", [0, 7], ids=["the epoch before", "a later epoch"])
def test_a_truncation_syncs_nothing_and_removed_epochs_do_not_return(
    tmp_path: Path, synced: list[str], stop: str, epoch: int
) -> None:
    """A follower of thousands of partitions may have to truncate all of them in one turn of its loop."""
    log = open_log(tmp_path)
    for i in range(4):
        put(log, b"%d" % i, epoch=0 if i < 2 else 5)
    log.flush()
    recovery_point = 1
    synced.clear()
    log.truncate_to(1)
    assert synced == []
    for i in range(1, 6):
        put(log, b"new %d" % i, epoch=epoch)
    if stop == "flush":
        log.flush()
        recovery_point = log.recovery_point
    elif stop == "orderly":
        log.close()
        recovery_point = log.recovery_point
    again = open_log(tmp_path, recovery_point=recovery_point, clean_shutdown=stop == "orderly")
    assert again.log_end_offset == 6
    assert again.epochs.entries() == ([(0, 0)] if epoch == 0 else [(0, 0), (7, 1)])


def test_an_epoch_without_records_is_not_written(tmp_path: Path, synced: list[str]) -> None:
    """The next start would drop it. At the start of a broker each of its partitions gets such an epoch."""
    log = open_log(tmp_path)
    put(log, b"a", epoch=3)
    log.close()
    again = open_log(tmp_path, recovery_point=1, clean_shutdown=True)
    again.epochs.assign(4, 1)
    synced.clear()
    assert not again.flusher.needs_sync
    again.close()
    assert synced == []
    assert (log.dir / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"


def test_an_epoch_is_written_when_it_has_records(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, b"a", epoch=3)
    log.flush()
    log.epochs.assign(4, 1)
    log.flush()
    put(log, b"b", epoch=4)
    log.flush()
    assert (log.dir / "leader-epoch-checkpoint").read_text() == "0\n2\n3 0\n4 1\n"


def test_epochs_that_were_written_in_advance_are_synced_by_the_next_flush(
    tmp_path: Path, synced: list[str]
) -> None:
    logs = [open_log(tmp_path, name=f"topic-{n}") for n in range(3)]
    for log in logs[:2]:
        put(log, b"a", epoch=3)
    run_steps(save_epochs_in_advance(log.flusher for log in logs))
    assert synced == []
    assert (logs[1].dir / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"
    assert not logs[2].has_files
    logs[0].flush()
    assert names(synced).count("leader-epoch-checkpoint") == 1
    synced.clear()
    put(logs[0], b"b", epoch=3)
    logs[0].flush()
    assert names(synced) == [f"{0:020d}.log"]


def test_epochs_of_a_renamed_log_are_not_written_in_advance(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, b"a", epoch=3)
    steps = list(save_epochs_in_advance([log.flusher]))
    log.rename_for_delete()
    run_steps(steps)
    assert not (tmp_path / "topic-0").exists()
    assert list(tmp_path.glob("*/leader-epoch-checkpoint")) == []


def test_a_log_that_is_verified_at_every_start_syncs_only_its_data_and_writes_epochs_later(
    tmp_path: Path, synced: list[str]
) -> None:
    log = open_log(tmp_path)
    put(log, b"a")
    log.flush()
    put(log, b"b", epoch=5)
    synced.clear()
    log.flush(epochs=False)
    assert names(synced) == [f"{0:020d}.log"]
    log.flusher.checkpoint_epochs()
    assert (log.dir / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n5 1\n"


def run_interrupted(work: Callable[[], None], at: int, other: Callable[[], None]) -> bool:
    """Runs `work`, and `other` before its instruction number `at` in the modules of a log, as if
    another thread got its turn there. Returns whether there is such an instruction."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if "quorate/log/partition" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            if count == at:
                sys.settrace(None)
                other()
                sys.settrace(trace)
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count > at


def test_a_flush_syncs_the_log_end_whenever_the_oldest_segments_are_deleted_meanwhile(
    tmp_path: Path, synced: list[str]
) -> None:
    """The metadata log is flushed in a thread, while the event loop deletes segments that a
    snapshot covers."""
    for at in itertools.count():
        log = open_log(tmp_path, name=f"topic-{at}", is_metadata_log=True, retention_ms=-1)
        for _ in range(4):
            put(log, b"a")
            log.roll(NOW)
        put(log, b"a")
        log.flush()
        put(log, b"unflushed")
        log.high_watermark = 5
        synced.clear()

        def delete_oldest(log: PartitionLog = log) -> None:
            log.increment_log_start_offset(3, "snapshot")
            assert log.delete_old_segments(NOW) == 3

        if not run_interrupted(lambda log=log: log.flush(epochs=False), at, delete_oldest):  # type: ignore[misc]
            break
        assert log.recovery_point == 6
        assert names(synced) == [f"{4:020d}.log"], f"deleted at instruction {at}"
    assert at > 50


def test_a_rolled_segment_is_synced_with_its_indexes_before_the_recovery_point_moves(
    tmp_path: Path, synced: list[str]
) -> None:
    log = open_log(tmp_path)
    put(log, b"a")
    synced.clear()
    log.roll(NOW)
    assert {f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")} <= set(names(synced))
    assert "leader-epoch-checkpoint.tmp" in names(synced) and log.recovery_point == 1


def test_a_segment_of_the_metadata_log_is_durable_before_the_next_one_is_created(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a crash during the roll leaves a torn segment and an empty one after it, which looks like
    damage."""
    log = open_log(tmp_path, is_metadata_log=True)
    put(log, b"a")
    before: list[str] = []
    create = Segment.create_files
    monkeypatch.setattr(Segment, "create_files", lambda self: (before.extend(names(synced)), create(self)))
    log.roll(NOW)
    assert f"{0:020d}.log" in before


def test_the_removal_of_truncated_segments_is_durable_before_anything_is_written(
    tmp_path: Path, synced: list[str]
) -> None:
    """Otherwise they could return after a crash, after records that were acknowledged since."""
    log = open_log(tmp_path)
    put(log, b"a")
    put(log, b"b")
    log.roll(NOW)
    put(log, b"c")
    log.flush()
    synced.clear()
    log.truncate_to(1)
    assert "topic-0" in names(synced)


def test_a_start_above_0_is_durable_at_once(tmp_path: Path, synced: list[str]) -> None:
    """A replica that lost it would begin at offset 0."""
    log = open_log(tmp_path / "data")
    log.truncate_fully_and_start_at(50)
    assert names(synced) == ["topic-0", "data"]
    log.close()
    assert names(synced)[2:] == ["partition.metadata"]


def test_a_sync_that_fails_moves_nothing_and_fails_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    put(log, b"a")

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    with pytest.raises(LogDirFailure, match="Input/output error"):
        log.flush()
    assert log.recovery_point == 0


def test_an_unexpected_error_of_a_background_job_ends_that_job_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    background = BackgroundScheduler()
    ran: list[str] = []

    def broken() -> None:
        raise RuntimeError("a bug")

    background.run_later(broken, str(tmp_path), lambda: ran.append("done in spite of the error"))
    background.run_later(lambda: ran.append("next"), str(tmp_path))
    background.close()
    background.run_callbacks()
    assert ran == ["next"]
    assert "a bug" in caplog.text


def test_a_sync_that_fails_in_the_background_is_reported_by_the_next_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = LogManager([tmp_path], LogConfig(segment_bytes=200), OpenFiles(8), now_ms=lambda: NOW)
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID)

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    put(log, b"a" * 100)
    monkeypatch.setattr(os, "fsync", broken)
    monkeypatch.setattr("quorate.log.partition.flusher.write_epochs", lambda *_, **__: None)
    put(log, b"b" * 100)
    logs.scheduler.wait_idle()
    with pytest.raises(LogDirFailure, match="Input/output error"):
        list(apply_retention(logs))
    assert log.recovery_point == 0


def test_many_failed_syncs_of_one_directory_hide_no_failure_of_another_one(tmp_path: Path) -> None:
    """Each periodic job met one failure and ended: after a thousand rolls on a broken disk there was no
    retention for hours."""
    background = BackgroundScheduler()
    woken: list[str] = []
    done: list[str] = []
    background.on_failure(lambda: woken.append("woken"))

    def broken() -> None:
        raise OSError(5, "Input/output error")

    for _ in range(100):
        background.run_later(broken, "a")
    background.run_later(lambda: None, "a", lambda: done.append("a"))
    background.run_later(broken, "b")
    background.run_later(lambda: None, "b", lambda: done.append("b"))
    background.run_later(lambda: None, "c", lambda: done.append("c"))
    background.close()
    for directory in "ab":
        with pytest.raises(LogDirFailure) as failed:
            background.run_callbacks()
        assert failed.value.directory == directory
    background.run_callbacks()
    assert woken == ["woken", "woken"]
    assert done == ["c"], "a sync after a failed one moves a recovery point past records that are lost"


def test_an_atomic_write_syncs_the_file_before_the_rename_and_the_directory_after(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (synced.append("renamed"), real(a, b)))
    write_atomically(str(tmp_path / "file"), b"x")
    assert synced == [str(tmp_path / "file.tmp"), "renamed", str(tmp_path)]


def test_the_clean_shutdown_marker_is_written_last_and_removed_first(
    tmp_path: Path, synced: list[str]
) -> None:
    logs = LogManager([tmp_path], LogConfig(), OpenFiles(8), now_ms=lambda: NOW)
    logs.load()
    put(logs.get_or_create("t", 0, TOPIC_ID), b"a")
    synced.clear()
    logs.close(broker_epoch=3)
    assert names(synced)[-2:] == [".kafka_cleanshutdown.tmp", tmp_path.name]
    assert names(synced).index(f"{0:020d}.log") < names(synced).index("recovery-point-offset-checkpoint.tmp")
    synced.clear()
    LogManager([tmp_path], LogConfig(), OpenFiles(8), now_ms=lambda: NOW).load()
    assert names(synced)[0] == tmp_path.name and not (tmp_path / ".kafka_cleanshutdown").exists()
