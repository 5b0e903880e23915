"""All logs of a broker: directories, creation, deletion, start and stop."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from quorate.log.config import LogConfig
from quorate.log.directories.manager import LogManager
from quorate.log.directories.metrics import directory_families
from quorate.log.directories.periodic_jobs import apply_retention, flush_due
from quorate.log.errors import LogDirFailure
from quorate.log.files import FileSystem, OpenFiles
from quorate.log.scheduler import run_steps
from quorate.metrics import Quantiles
from quorate.records.batch import TimestampType
from tests.support.cluster import wait_for

from .logs import DIRECTORY_IDS, NOW, TOPIC_ID, all_files, contents, manager, names, put


def test_logs_are_loaded_after_a_clean_stop(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d")
    assert logs.load() == [] and logs.previous_broker_epoch == -1
    for partition in range(3):
        log = logs.get_or_create("t", partition, TOPIC_ID)
        put(log, b"a", b"b", epoch=partition)
        log.high_watermark = 1
    logs.close(broker_epoch=33)
    assert (tmp_path / "d" / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":33}'
    again = manager(tmp_path / "d")
    assert again.previous_broker_epoch == 33
    assert again.load() == [] and len(again) == 3
    assert ".kafka_cleanshutdown" not in names(tmp_path / "d")
    for partition in range(3):
        log = again.get("t", partition)
        assert log is not None and (log.topic_id, log.high_watermark, log.latest_epoch) == (
            TOPIC_ID,
            1,
            partition,
        )
        assert (log.recovery_point, contents(log)) == (2, [(0, b"a"), (1, b"b")])


def test_logs_are_recovered_after_a_kill(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d", segment_bytes=400)
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID)
    for i in range(20):
        put(log, b"%d" % i * 20)
    log.high_watermark = 15
    run_steps(logs.checkpoint_high_watermarks())
    logs.scheduler.wait_idle()
    run_steps(logs.checkpoint_recovery_points())
    point = log.segments[-1].base_offset
    assert (tmp_path / "d" / "recovery-point-offset-checkpoint").read_text() == f"0\n1\nt 0 {point}\n"
    again = manager(tmp_path / "d", segment_bytes=400)
    assert again.load() == [] and again.previous_broker_epoch == -1
    found = again.get("t", 0)
    assert found is not None and (found.high_watermark, found.recovery_point) == (15, point)
    assert contents(found) == [(i, b"%d" % i * 20) for i in range(20)]


@pytest.mark.parametrize("before", ["kill", "stop"])
def test_a_directory_that_was_not_loaded_is_not_changed(tmp_path: Path, before: str) -> None:
    """A broker that is stopped before it has found a controller has not read its logs."""
    directory = tmp_path / "d"
    logs = manager(directory)
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID)
    put(log, b"a", b"b", b"c")
    log.high_watermark = 3
    log.increment_log_start_offset(2, "test")
    if before == "stop":
        logs.close(broker_epoch=33)
    else:
        run_steps(logs.checkpoint_log_start_offsets())
        run_steps(logs.checkpoint_high_watermarks())
    found = all_files(directory)
    assert (".kafka_cleanshutdown" in found) == (before == "stop")
    manager(directory).close(broker_epoch=-1)
    assert all_files(directory) == found
    again = manager(directory)
    assert again.previous_broker_epoch == (33 if before == "stop" else -1)
    assert again.load() == []
    reopened = again.get("t", 0)
    assert reopened is not None
    assert (reopened.log_start_offset, reopened.high_watermark, contents(reopened)) == (2, 3, [(2, b"c")])


def test_a_marker_gets_the_epoch_of_a_broker_that_registered_and_stopped_before_its_logs_were_read(
    tmp_path: Path,
) -> None:
    logs = manager(tmp_path / "d")
    manager(tmp_path / "d").close(broker_epoch=32)
    assert logs.previous_broker_epoch == -1
    logs.load()
    logs.close(broker_epoch=33)
    manager(tmp_path / "d").close(broker_epoch=44)
    assert manager(tmp_path / "d").previous_broker_epoch == 44


def test_an_incomplete_load_does_not_end_in_a_clean_shutdown(tmp_path: Path) -> None:
    """The first directory is loaded, the second only partly: an error that is not a disk failure ends the
    start."""
    first, second = tmp_path / "1", tmp_path / "2"
    logs = manager(first, second)
    logs.load()
    for partition, directory_id in enumerate(DIRECTORY_IDS[:2]):
        put(logs.get_or_create("t", partition, TOPIC_ID, directory_id=directory_id), b"a")
    run_steps(logs.checkpoint_high_watermarks())
    found = all_files(second)

    def overrides_of(_topic: str) -> dict[str, object]:
        raise ValueError("no such config")

    again = manager(first, second)
    again._overrides["t"] = {}
    (second / "u-0").mkdir()
    (second / "u-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    with pytest.raises(ValueError, match="no such config"):
        again.load(overrides_of)
    again.close(broker_epoch=44)
    assert ".kafka_cleanshutdown" in names(first)
    left = all_files(second)
    assert {name: left[name] for name in found} == found
    assert ".kafka_cleanshutdown" not in left


@pytest.mark.parametrize("stop", ["killed", "checkpointed, then killed", "closed"])
def test_a_new_replica_keeps_the_offset_that_it_starts_at(tmp_path: Path, stop: str) -> None:
    """The leader's records were deleted up to offset 50. The files are Kafka's: an empty segment with this
    base offset, a recovery point and a high watermark. There is no log start offset, because it equals the
    base offset of the first segment."""
    logs = manager(tmp_path / "d")
    logs.load()
    logs.get_or_create("t", 0, TOPIC_ID).truncate_fully_and_start_at(50)
    if stop != "killed":
        run_steps(logs.checkpoint_recovery_points())
        run_steps(logs.checkpoint_log_start_offsets())
        run_steps(logs.checkpoint_high_watermarks())
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            assert (tmp_path / "d" / name).read_text() == "0\n1\nt 0 50\n"
        assert not (tmp_path / "d" / "log-start-offset-checkpoint").exists()
    if stop == "closed":
        logs.close(broker_epoch=1)
    again = manager(tmp_path / "d")
    assert again.load() == []
    log = again.get("t", 0)
    assert log is not None
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (50, 50, 50)
    assert put(log, b"a").first_offset == 50


def test_partitions_without_records_leave_no_trace(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d")
    logs.load()
    for partition in range(50):
        logs.get_or_create("t", partition, TOPIC_ID)
    run_steps(logs.checkpoint_high_watermarks())
    run_steps(apply_retention(logs))
    logs.delete("t", 3)
    assert names(tmp_path / "d") == set() and len(logs) == 49


def test_a_new_log_is_placed_in_the_given_directory_or_in_the_one_with_the_fewest_logs(
    tmp_path: Path,
) -> None:
    logs = manager(tmp_path / "a", tmp_path / "b")
    logs.load()
    told = [
        logs.get_or_create("t", p, TOPIC_ID, directory_id=DIRECTORY_IDS[1]).dir.parent.name for p in range(3)
    ]
    free = [logs.get_or_create("u", p, TOPIC_ID, directory_id=bytes(16)).dir.parent.name for p in range(5)]
    assert told == ["b"] * 3 and free == ["a", "a", "a", "a", "b"]


def test_a_log_keeps_the_descriptors_of_all_logs_within_the_limit(tmp_path: Path) -> None:
    files = OpenFiles(5)
    logs = manager(tmp_path / "d", files=files)
    logs.load()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for round_ in range(3):
        for partition in range(60):
            put(logs.get_or_create("t", partition, TOPIC_ID), b"%d" % round_)
    assert len(files) <= 5 and len(list(Path("/proc/self/fd").iterdir())) <= before + 5
    assert all(contents(log) == [(i, b"%d" % i) for i in range(3)] for log in logs.all_logs())


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    for name in (
        "__cluster_metadata-0",
        "t-0-stray",
        "t-1.abc-stray",
        "lost+found",
        "t-2.x-future",
        "readme",
        "to-delete",
    ):
        (directory / name).mkdir()
    (directory / "file-0").write_text("x")
    (directory / "backup-2024").mkdir()
    (directory / "backup-2024" / "precious").write_text("x")
    before = names(directory)
    logs = manager(directory)
    assert logs.load() == [] and len(logs) == 0 and names(directory) == before
    assert logs.delete_strays(lambda *_: True) == 0
    logs.close()
    assert names(directory / "backup-2024") == {"precious"}


def test_a_stray_log_without_a_topic_id_is_renamed(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d", file_delete_delay_ms=0)
    logs.load()
    put(logs.get_or_create("t", 0, None), b"a")
    assert logs.delete_strays(lambda *_: True) == 1
    assert [name[-6:] for name in names(tmp_path / "d") if name.startswith("t-0")] == ["-stray"]


def test_deleted_logs_are_renamed_by_a_thread_and_removed_after_the_delay(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d", file_delete_delay_ms=0)
    logs.load()
    put(logs.get_or_create("t", 0, TOPIC_ID), b"old")
    logs.delete("t", 0)
    assert logs.get("t", 0) is None
    logs.scheduler.wait_idle()
    assert "t-0" not in names(tmp_path / "d")
    put(logs.get_or_create("t", 0, bytes(15) + b"\x09"), b"new")
    wait_for("the removal", lambda: names(tmp_path / "d") == {"t-0"})


def test_a_log_that_is_created_before_the_thread_renamed_the_old_one_is_empty(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d", file_delete_delay_ms=3_600_000)
    logs.load()
    old = logs.get_or_create("t", 0, TOPIC_ID)
    put(old, b"old", epoch=7)
    held = threading.Event()
    logs.scheduler.run_later(lambda: held.wait(10) and None, str(tmp_path / "d"))  # the thread is busy
    logs.delete("t", 0)
    new = logs.get_or_create("t", 0, bytes(15) + b"\x09")
    put(new, b"new", epoch=0)
    held.set()
    logs.close()
    assert (contents(new), new.latest_epoch) == ([(0, b"new")], 0)
    assert len([name for name in names(tmp_path / "d") if name.endswith("-delete")]) == 1
    again = manager(tmp_path / "d")
    again.load()
    found = again.get("t", 0)
    assert found is not None and found.topic_id == bytes(15) + b"\x09" and contents(found) == [(0, b"new")]


def test_a_deletion_that_was_interrupted_is_finished_at_the_next_start(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d", file_delete_delay_ms=3_600_000)
    logs.load()
    put(logs.get_or_create("t", 0, TOPIC_ID), b"old")
    logs.delete("t", 0)
    logs.close()
    assert any(name.endswith("-delete") for name in names(tmp_path / "d"))
    again = manager(tmp_path / "d", file_delete_delay_ms=0)
    again.load()
    assert len(again) == 0
    wait_for("the removal", lambda: not any(name.endswith("-delete") for name in names(tmp_path / "d")))


def test_a_log_that_is_created_in_another_directory_leaves_no_second_one_of_its_name(tmp_path: Path) -> None:
    """The thread that renames deleted directories may be waiting for a disk."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    logs = manager(*dirs)
    logs.load()
    put(logs.get_or_create("t", 0, TOPIC_ID, directory_id=DIRECTORY_IDS[0]), b"old")
    free = threading.Event()
    logs.scheduler.run_later(free.wait, str(dirs[0]))  # type: ignore[arg-type]
    logs.delete("t", 0)
    put(logs.get_or_create("t", 0, TOPIC_ID, directory_id=DIRECTORY_IDS[1]), b"new")
    try:
        again = manager(*dirs)  # as after a kill
        assert again.load() == []
        log = again.get("t", 0)
        assert log is not None and contents(log) == [(0, b"new")]
    finally:
        free.set()
    logs.close()


def test_a_directory_that_fails_goes_offline_and_takes_its_logs_along(tmp_path: Path) -> None:
    logs = manager(tmp_path / "a", tmp_path / "b")
    logs.load()
    for partition in range(2):
        put(logs.get_or_create("t", partition, TOPIC_ID, directory_id=DIRECTORY_IDS[partition]), b"x")
    assert logs.mark_offline(tmp_path / "a") == [("t", 0)] and logs.mark_offline(tmp_path / "a") == []
    assert not logs.is_online(tmp_path / "a") and logs.get("t", 0) is None and logs.get("t", 1) is not None
    assert logs.get_or_create("u", 0, TOPIC_ID, directory_id=DIRECTORY_IDS[0]).dir.parent == tmp_path / "b"
    logs.close(broker_epoch=1)
    assert ".kafka_cleanshutdown" not in names(tmp_path / "a") and ".kafka_cleanshutdown" in names(
        tmp_path / "b"
    )
    logs.mark_offline(tmp_path / "b")
    with pytest.raises(LogDirFailure):
        logs.get_or_create("v", 0, TOPIC_ID)


def test_a_directory_that_failed_in_the_background_is_not_marked_as_cleanly_closed(
    tmp_path: Path,
) -> None:
    dirs = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    logs = manager(*dirs)
    logs.load()

    def broken() -> None:
        raise OSError(5, "Input/output error")

    for directory in dirs[:2]:
        logs.scheduler.run_later(broken, str(directory))
    logs.close(broker_epoch=1)
    assert [".kafka_cleanshutdown" in names(directory) for directory in dirs] == [False, False, True]


def test_a_disk_error_names_the_directory_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = manager(tmp_path / "a", tmp_path / "b")
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID, directory_id=DIRECTORY_IDS[1])
    put(log, b"x")

    def broken(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pwritev", broken)
    with pytest.raises(LogDirFailure, match="Input/output error") as caught:
        put(log, b"y")
    assert caught.value.directory == str(tmp_path / "b")


def test_no_broker_epoch_is_reported_if_markers_differ_or_one_is_missing(tmp_path: Path) -> None:
    for directory, epoch in (("a", 5), ("b", 6)):
        logs = manager(tmp_path / directory)
        logs.load()
        logs.close(broker_epoch=epoch)
    assert manager(tmp_path / "a", tmp_path / "b").previous_broker_epoch == -1
    assert manager(tmp_path / "a", tmp_path / "c").previous_broker_epoch == -1
    assert manager(tmp_path / "a").previous_broker_epoch == 5


def test_configs_reach_existing_and_new_logs(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d", retention_ms=100)
    logs.load()
    first, other = logs.get_or_create("t", 0, TOPIC_ID), logs.get_or_create("u", 0, TOPIC_ID)
    logs.reconfigure({"t": {"retention.ms": "7"}})
    logs.reconfigure({}, LogConfig(retention_ms=50, segment_ms=9))
    second = logs.get_or_create("t", 1, TOPIC_ID)
    assert [log.config.retention_ms for log in (first, second, other)] == [7, 7, 50]
    assert {log.config.segment_ms for log in (first, second, other)} == {9}


def test_an_override_that_cannot_be_read_has_no_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Apache Kafka's controllers of a later release accept new values."""
    logs = manager(tmp_path / "d", retention_ms=100)
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID)
    logs.get_or_create("t", 1, TOPIC_ID)
    put(log, b"a")
    overrides = {"message.timestamp.type": "LaterTime", "retention.ms": "7"}
    logs.reconfigure({"t": overrides})
    assert (log.config.message_timestamp_type, log.config.retention_ms) == (TimestampType.CREATE_TIME, 7)
    logs.get_or_create("t", 2, TOPIC_ID)
    assert caplog.text.count("Ignoring a config of topic t") == 1
    logs.close()
    again = manager(tmp_path / "d", retention_ms=100)
    assert again.load(overrides_of=lambda _: overrides) == []
    assert again.get_or_create("t", 0, TOPIC_ID).config.retention_ms == 7


def test_a_change_of_many_configs_computes_each_topics_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker has more partitions than topics, and may have ten thousand of both."""
    logs = manager(tmp_path / "d")
    logs.load()
    for topic in ("t", "u"):
        for partition in range(3):
            logs.get_or_create(topic, partition, TOPIC_ID)
    computed: list[str] = []
    original = LogManager._config_for
    monkeypatch.setattr(
        LogManager, "_config_for", lambda self, topic: (computed.append(topic), original(self, topic))[1]
    )
    logs.reconfigure({"t": {"retention.ms": "7"}, "u": {"retention.ms": "8"}})
    assert sorted(computed) == ["t", "u"]
    logs.reconfigure({}, LogConfig(segment_ms=9))
    assert sorted(computed) == ["t", "t", "u", "u"]
    assert [log.config.retention_ms for log in logs.all_logs()] == [7] * 3 + [8] * 3


def test_flush_ms_takes_effect(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d", now_ms=NOW + 100, flush_ms=100)
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID, now_ms=NOW)
    late = logs.get_or_create("t", 1, TOPIC_ID, now_ms=NOW + 1)
    put(log, b"a")
    put(late, b"a")
    run_steps(flush_due(logs))
    logs.scheduler.wait_idle()
    logs.scheduler.run_callbacks()
    assert (log.recovery_point, late.recovery_point) == (1, 0)


def test_a_log_that_is_deleted_during_a_flush_takes_no_directory_offline(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d", now_ms=NOW + 100, flush_ms=100, file_delete_delay_ms=0)
    logs.load()
    for partition in range(65):
        put(logs.get_or_create("t", partition, TOPIC_ID, now_ms=NOW), b"a")
    flush = iter(flush_due(logs))
    assert next(flush) is None  # a pause, in which the event loop may delete a topic
    logs.delete("t", 64)
    wait_for("the directory to be removed", lambda: len(names(tmp_path / "d")) == 64)
    run_steps(flush)


def test_rolls_on_a_slow_disk_hold_a_bounded_number_of_files(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d", now_ms=NOW + 100, segment_bytes=120, flush_ms=100)
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID, now_ms=NOW)
    synced = threading.Event()

    def wait_for_the_disk() -> None:
        synced.wait()

    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    logs.scheduler.run_later(wait_for_the_disk, str(tmp_path / "d"))
    before = open_files()
    for i in range(300):
        put(log, bytes(20))
        if i % 50 == 25:
            log.flusher.flush_later(NOW)
    assert open_files() < before + 400
    log.high_watermark = 150
    log.increment_log_start_offset(150, "test")
    run_steps(apply_retention(logs))  # renames segments that are not synced yet
    synced.set()
    logs.scheduler.wait_idle()
    logs.scheduler.run_callbacks()
    assert log.recovery_point == log.segments[-1].base_offset == 299


def test_a_damaged_log_keeps_no_other_log_from_its_retention(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d", segment_bytes=120)
    logs.load()
    for partition in range(3):
        log = logs.get_or_create("t", partition, TOPIC_ID)
        for _ in range(3):
            put(log, bytes(20))
        log.high_watermark = 3
    logs.close()
    damaged = tmp_path / "d" / "t-1" / f"{0:020}"
    damaged.with_suffix(".log").write_bytes(bytes(100))
    damaged.with_suffix(".timeindex").unlink()
    logs = manager(tmp_path / "d", now_ms=NOW + 1000, segment_bytes=120, retention_ms=100)
    assert logs.load() == []
    run_steps(apply_retention(logs))
    assert [log.log_start_offset for log in sorted(logs.all_logs(), key=lambda log: log.partition)] == [
        3,
        0,
        3,
    ]


def test_progress_is_reported(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d")
    logs.load()
    for partition in range(3):
        put(logs.get_or_create("t", partition, TOPIC_ID), b"a")
    logs.close()
    seen: list[tuple[Path, int, int]] = []
    manager(tmp_path / "d").load(progress=lambda *step: seen.append(step))
    assert seen == [(tmp_path / "d", 0, 3), (tmp_path / "d", 3, 3)]


def test_topic_overrides_are_asked_for_at_load(tmp_path: Path) -> None:
    logs = manager(tmp_path / "d")
    logs.load()
    put(logs.get_or_create("t", 0, TOPIC_ID), b"a")
    logs.close()
    again = manager(tmp_path / "d")
    again.load(overrides_of=lambda topic: {"retention.ms": "12"} if topic == "t" else {})
    log = again.get("t", 0)
    assert log is not None and log.config.retention_ms == 12


def many_unflushed(directory: Path) -> LogManager:
    logs = manager(directory, files=OpenFiles(300))
    logs.load()
    for partition in range(100):
        put(logs.get_or_create("t", partition, TOPIC_ID), b"a")
    return logs


def test_a_restarted_broker_with_many_logs_closes_them_without_a_sync_of_each(
    tmp_path: Path, synced: list[str]
) -> None:
    """Whether the process before it was killed, or stopped cleanly and its leaders got new epochs."""
    many_unflushed(tmp_path / "d")
    for _ in range(2):
        logs = manager(tmp_path / "d", files=OpenFiles(300))  # the first one was killed
        logs.load()
        for log in logs.all_logs():
            log.epochs.assign(7, log.log_end_offset)
        synced.clear()
        logs.close()
        of_each = [path for path in synced if "/t-" in path and not path.endswith(".log")]
        assert of_each == []


@pytest.mark.parametrize(("release", "each"), [("6.1.0", 0), ("5.8.0-rc1", 0), ("5.7.19", 100), ("?", 100)])
def test_a_kernel_that_reports_lost_writes_of_a_file_system_needs_no_sync_of_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: list[str], release: str, each: int
) -> None:
    system = os.uname()
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname=system.sysname, release=release))
    logs = many_unflushed(tmp_path / "d")
    synced.clear()
    logs.close()
    assert len([path for path in synced if path.endswith(".log")]) == each
    points = (tmp_path / "d" / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert points[1] == "100" and all(line.endswith(" 1") for line in points[2:])


def test_a_directory_that_lost_writes_at_the_stop_is_not_marked_as_cleanly_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: FileSystem) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    logs = many_unflushed(tmp_path / "d")
    monkeypatch.setattr(FileSystem, "sync", lost)
    logs.close()
    assert not {".kafka_cleanshutdown", "recovery-point-offset-checkpoint"} & names(tmp_path / "d")


def test_new_logs_are_placed_in_directories_that_are_not_cordoned(tmp_path: Path) -> None:
    first, second = tmp_path / "d1", tmp_path / "d2"
    logs = manager(first, second)
    logs.load()
    logs.cordoned = frozenset({first})
    placed = [logs.get_or_create("t", partition, TOPIC_ID).dir.parent for partition in range(3)]
    assert placed == [second] * 3
    assigned = logs.get_or_create("t", 3, TOPIC_ID, directory_id=DIRECTORY_IDS[0])
    assert assigned.dir.parent == first, "as the controller has decided before"
    logs.cordoned = frozenset({first, second})
    assert logs.get_or_create("t", 4, TOPIC_ID).dir.parent == first


def test_metrics_tell_offline_and_cordoned_directories_apart(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    logs = manager(*paths)
    logs.load()
    logs.mark_offline(paths[0])
    logs.cordoned = frozenset(paths[1:])
    a, b, c = map(str, paths)
    found = {
        family.name.removeprefix("kafka_log_"): dict(family.series)
        for family in directory_families(logs, {paths[2]: (3, 5)})
    }
    assert found["logmanager_offlinelogdirectorycount"] == {"": 1}
    assert found["logmanager_cordonedlogdirectorycount"] == {"": 2}
    offline, cordoned = found["logmanager_logdirectoryoffline"], found["logmanager_logdirectorycordoned"]
    assert [offline[f'logDirectory="{path}"'] for path in (a, b, c)] == [1, 0, 0]
    assert [cordoned[f'logDirectory="{path}"'] for path in (a, b, c)] == [0, 1, 1]
    remaining = found["logmanager_remaininglogstorecover"]
    assert [remaining[f'dir="{path}"'] for path in (a, b, c)] == [0, 0, 2]


def test_flushes_are_counted_and_timed(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID)
    put(log, b"a")
    log.flush()
    [flushes] = [
        family.series[0][1]
        for family in directory_families(logs, {})
        if family.name == "kafka_log_logflushstats_logflushrateandtimems"
    ]
    assert isinstance(flushes, Quantiles)
    assert flushes.total == 1
    assert 0 < flushes.values[0] < 10_000
    log.flush()  # there is nothing more to flush
    assert logs.scheduler.flush_times.quantiles().total == 1
