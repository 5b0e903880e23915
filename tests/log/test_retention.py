"""Retention by time, size and log start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.log.partition.partition_log import PartitionLog
from quorate.log.scheduler import InlineScheduler
from quorate.protocol.errors import ErrorCode, KafkaError

from .logs import NOW, contents, files_of, open_log, put


def segmented(tmp_path: Path, n: int = 5, **options) -> PartitionLog:
    """Segments at 0, 10, 20, ...; the records of segment i have timestamp NOW + 1000 * i."""
    options.setdefault("retention_ms", -1)
    log = open_log(tmp_path, **options)
    for i in range(n):
        for _ in range(10):
            put(log, bytes(100), timestamp=NOW + 1000 * i)
        if i < n - 1:
            log.roll(NOW)
    log.high_watermark = log.log_end_offset
    return log


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


@pytest.mark.parametrize(
    ("now_ms", "left"),
    [
        (NOW + 500, [0, 10, 20, 30, 40]),
        (NOW + 500 + 1, [10, 20, 30, 40]),
        (NOW + 2_501, [30, 40]),
        (NOW + 4_500, [40]),
        (NOW + 4_501, [50]),
    ],
)
def test_segments_are_deleted_when_their_last_record_is_old_enough(
    tmp_path: Path, now_ms: int, left: list[int]
) -> None:
    log = segmented(tmp_path, retention_ms=500)
    log.delete_old_segments(now_ms)
    assert bases(log) == left and log.log_start_offset == left[0]
    assert [offset for offset, _ in contents(log)] == list(range(left[0], 50))


def test_segments_of_records_without_timestamps_are_deleted_by_the_age_of_their_file(tmp_path: Path) -> None:
    log = open_log(tmp_path, retention_ms=1000)
    put(log, b"a", timestamp=-1, now_ms=NOW)
    log.roll(NOW)
    put(log, b"b", timestamp=-1, now_ms=NOW + 600)
    log.high_watermark = 2
    log.delete_old_segments(NOW + 1001)
    assert bases(log) == [1]


@pytest.mark.parametrize(
    ("segments_of_size", "left"),
    [(5, [0, 10, 20, 30, 40]), (3, [20, 30, 40]), (2.5, [20, 30, 40]), (0, [50])],
)
def test_the_oldest_segments_are_deleted_while_the_rest_is_large_enough(
    tmp_path: Path, segments_of_size: float, left: list[int]
) -> None:
    size = segmented(tmp_path / "probe").segments[0].size
    log = segmented(tmp_path, retention_bytes=int(size * segments_of_size))
    log.delete_old_segments(NOW)
    assert bases(log) == left


def test_nothing_above_the_high_watermark_is_deleted(tmp_path: Path) -> None:
    log = segmented(tmp_path, retention_ms=1)
    log.truncate_to(45)
    again = segmented(tmp_path / "other", retention_ms=1)
    again._high_watermark = 25  # what a leader has whose followers lag
    again.delete_old_segments(NOW + 10**9)
    assert bases(again) == [20, 30, 40]


def test_segments_below_the_log_start_are_deleted_under_any_policy(tmp_path: Path) -> None:
    log = segmented(tmp_path, cleanup_policy=frozenset({"compact"}), retention_ms=1, retention_bytes=1)
    log.delete_old_segments(NOW + 10**9)
    assert bases(log) == [0, 10, 20, 30, 40]
    log.increment_log_start_offset(25, "test")
    assert contents(log)[0][0] == 25
    log.delete_old_segments(NOW)
    assert bases(log) == [20, 30, 40] and log.log_start_offset == 25


def test_a_log_start_above_the_high_watermark_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, b"a", b"b")
    log.high_watermark = 1
    with pytest.raises(KafkaError) as caught:
        log.increment_log_start_offset(2, "test")
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.increment_log_start_offset(1, "test") and not log.increment_log_start_offset(0, "test")


def test_offsets_continue_after_everything_was_deleted(tmp_path: Path) -> None:
    log = segmented(tmp_path, retention_ms=1)
    log.delete_old_segments(NOW + 10**9)
    assert (log.log_start_offset, log.log_end_offset, contents(log)) == (50, 50, [])
    assert put(log, b"next").first_offset == 50
    assert sorted(name[:20] for name in files_of(log) if name.endswith(".log")) == [f"{50:020d}"]


def test_the_epoch_of_the_log_start_is_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path, retention_ms=-1)
    for epoch in range(4):
        put(log, b"a", b"b", epoch=epoch)
    log.high_watermark = 8
    log.increment_log_start_offset(5, "test")
    assert log.epochs.entries() == [(2, 5), (3, 6)]


class LateScheduler(InlineScheduler):
    """Does the work when `run` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[Callable[[], None]] = []

    def run_later(
        self, work: Callable[[], None], log_directory: str, on_done: Callable[[], None] | None = None
    ) -> None:
        self.jobs.append(work)

    def run(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


def test_another_thread_renames_the_files(tmp_path: Path) -> None:
    scheduler = LateScheduler()
    log = segmented(tmp_path, retention_ms=500, scheduler=scheduler)
    scheduler.run()
    before = files_of(log)
    log.delete_old_segments(NOW + 2_501)
    assert bases(log) == [30, 40] and files_of(log) == before
    scheduler.run()
    assert {int(name[:20]) for name in files_of(log) if name[0].isdigit()} == {30, 40}


def test_a_new_segment_with_the_name_of_a_deleted_one_stays(tmp_path: Path) -> None:
    """The thread that renames the deleted ones may be waiting for a disk meanwhile."""
    scheduler = LateScheduler()
    log = segmented(tmp_path, retention_ms=500, scheduler=scheduler)
    log.delete_old_segments(NOW + 2_501)
    log.truncate_fully_and_start_at(10)
    put(log, b"new")
    scheduler.run()
    assert contents(log) == [(10, b"new")]
    assert f"{10:020d}.log" in files_of(log)


def test_the_directory_of_a_deleted_log_keeps_nothing_that_waits(tmp_path: Path) -> None:
    scheduler = LateScheduler()
    log = segmented(tmp_path, retention_ms=500, scheduler=scheduler)
    log.delete_old_segments(NOW + 2_501)
    log.rename_for_delete()
    again = segmented(tmp_path)
    scheduler.run()
    assert bases(again) == [0, 10, 20, 30, 40] and len(contents(again)) == 50


def test_snapshots_are_deleted_with_their_segments(tmp_path: Path) -> None:
    log = segmented(tmp_path, retention_ms=500)
    assert sorted(int(n[:20]) for n in files_of(log) if n.endswith(".snapshot")) == [10, 20, 30, 40]
    log.delete_old_segments(NOW + 2_501)
    assert sorted(int(n[:20]) for n in files_of(log) if n.endswith(".snapshot")) == [30, 40]
