"""What is synced, and in which order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quorate.log.config import LogConfig
from quorate.log.directories.manager import LogManager
from quorate.log.errors import LogDirFailure
from quorate.log.files import OpenFiles, write_atomically
from quorate.log.scheduler import BackgroundScheduler
from quorate.log.segment.segment import Segment

from .logs import NOW, TOPIC_ID, open_log, put


def names(paths: list[str]) -> list[str]:
    return [Path(path).name for path in paths]


def test_an_append_syncs_nothing(tmp_path: Path, synced: list[str]) -> None:
    log = open_log(tmp_path)
    put(log, b"a")
    put(log, b"b", epoch=3)
    assert synced == []


def test_a_first_flush_makes_the_log_findable_and_later_ones_sync_its_data_alone(
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
def test_a_truncation_syncs_nothing_and_the_epochs_that_it_cut_do_not_come_back(
    tmp_path: Path, synced: list[str], stop: str, epoch: int
) -> None:
    """A broker that follows thousands of partitions may have to cut them all in one turn of its loop."""
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


def test_a_log_that_is_read_whole_when_it_is_opened_syncs_its_data_alone_and_notes_the_epoch_later(
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


def test_a_rolled_segment_is_synced_with_its_indexes_before_the_recovery_point_moves(
    tmp_path: Path, synced: list[str]
) -> None:
    log = open_log(tmp_path)
    put(log, b"a")
    synced.clear()
    log.roll(NOW)
    assert {f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")} <= set(names(synced))
    assert "leader-epoch-checkpoint.tmp" in names(synced) and log.recovery_point == 1


def test_where_only_a_torn_tail_is_cut_a_segment_is_durable_before_the_next_one_has_a_name(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a crash within the roll leaves a torn segment and an empty one behind it, as damage would."""
    log = open_log(tmp_path, cuts_torn_tail_only=True)
    put(log, b"a")
    before: list[str] = []
    create = Segment.create_files
    monkeypatch.setattr(Segment, "create_files", lambda self: (before.extend(names(synced)), create(self)))
    log.roll(NOW)
    assert f"{0:020d}.log" in before


def test_segments_that_a_truncation_removes_are_gone_for_good_before_anything_is_written(
    tmp_path: Path, synced: list[str]
) -> None:
    """Else a crash brings them back behind what was written and acknowledged since."""
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


def test_a_sync_that_fails_in_the_background_is_told_by_the_next_job(
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
    logs._scheduler.wait_idle()
    with pytest.raises(LogDirFailure, match="Input/output error"):
        list(logs.apply_retention())
    assert log.recovery_point == 0


def test_an_atomic_write_syncs_the_file_before_the_rename_and_the_directory_after(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (synced.append("renamed"), real(a, b)))
    write_atomically(str(tmp_path / "file"), b"x")
    assert synced == [str(tmp_path / "file.tmp"), "renamed", str(tmp_path)]


def test_the_clean_shutdown_marker_is_the_last_thing_and_goes_first(
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
