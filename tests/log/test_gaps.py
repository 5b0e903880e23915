"""Gaps: records lost by a power failure or by an interrupted truncation, with later ones behind them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quorate.broker.replication.fetcher.fetch_positions import certain_end
from quorate.log.errors import LogDirFailure
from quorate.log.partition.local_log import LocalLog
from quorate.log.partition.partition_log import PartitionLog

from .logs import NOW, SEGMENT, contents, expected, filled, open_log, put, reopened


@pytest.mark.parametrize(("policy", "end"), [("delete", 1), ("compact", 3)])
def test_an_empty_segment_after_a_gap_is_deleted_unless_compaction_may_have_caused_it(
    tmp_path: Path, policy: str, end: int
) -> None:
    """A power failure may lose the end of a segment, and keep the name of the next file."""
    log = open_log(tmp_path, cleanup_policy=frozenset({policy}))
    put(log, b"kept")
    kept = log.size_bytes
    put(log, b"lost", b"lost")
    log.roll(NOW)
    os.truncate(log.dir / f"{SEGMENT}.log", kept)
    again = reopened(log)
    assert (contents(again), again.log_end_offset) == ([(0, b"kept")], end)
    assert put(again, b"new").first_offset == end
    assert contents(reopened(again)) == [(0, b"kept"), (end, b"new")]


def test_an_empty_segment_is_kept_if_compaction_has_removed_the_end_of_the_flushed_one_before(
    tmp_path: Path,
) -> None:
    """The topic had the policy compact until its configuration was changed. The offsets must not be assigned
    again: consumers have committed later ones."""
    log = open_log(tmp_path)
    put(log, b"kept")
    kept = log.size_bytes
    put(log, b"tombstone")
    log.roll(NOW)
    log.flush()
    os.truncate(log.dir / f"{SEGMENT}.log", kept)  # as the cleaner leaves it
    again = reopened(log, recovery_point=2)
    assert (contents(again), again.log_end_offset) == ([(0, b"kept")], 2)


def after_a_gap(tmp_path: Path, policy: str = "delete") -> PartitionLog:
    """A log with the offsets 0 and 3, opened after a power failure has lost 1 and 2."""
    log = open_log(tmp_path, cleanup_policy=frozenset({policy}))
    put(log, b"kept")
    kept = log.size_bytes
    put(log, b"lost", b"lost")
    log.roll(NOW)
    put(log, b"later")
    os.truncate(log.dir / f"{SEGMENT}.log", kept)
    return reopened(log)


@pytest.mark.parametrize(("policy", "gap"), [("delete", 1), ("compact", None)])
def test_a_gap_before_records_is_known_unless_compaction_may_have_caused_it(
    tmp_path: Path, policy: str, gap: int | None
) -> None:
    log = after_a_gap(tmp_path, policy)
    assert (contents(log), log.gap_start) == ([(0, b"kept"), (3, b"later")], gap)
    assert put(log, b"new").first_offset == 4
    again = reopened(log)
    assert again.gap_start == gap
    again.truncate_to(4)
    assert again.gap_start == gap
    again.truncate_to(1)
    assert (contents(again), again.gap_start) == ([(0, b"kept")], None)


def started_again(log: PartitionLog, *, clean: bool = True) -> PartitionLog:
    """The log after a stop and a start with the checkpoint of its recovery point."""
    if clean:
        log.close()
    point = log.flusher.recovery_point_to_checkpoint
    return reopened(log, recovery_point=point, clean_shutdown=clean)


@pytest.mark.parametrize("clean", [True, False])
def test_a_gap_is_still_known_after_another_stop(tmp_path: Path, clean: bool) -> None:
    """The replica may have found no leader from which it could copy the lost records."""
    log = after_a_gap(tmp_path)
    log.flush()
    again = started_again(log, clean=clean)
    assert (contents(again), again.gap_start) == ([(0, b"kept"), (3, b"later")], 1)
    again.truncate_to(certain_end(again, counts=False))
    put(again, b"copied")
    assert again.flusher.recovery_point_to_checkpoint == 1
    again.close()
    assert again.flusher.recovery_point_to_checkpoint == 2


def copied_over_a_gap(tmp_path: Path, start: int = 0) -> PartitionLog:
    """The copy of a log with a gap from 1 to 3 in another directory. It has no segment that ends at the gap."""
    source = after_a_gap(tmp_path)
    (tmp_path / "b").mkdir()
    copy = open_log(tmp_path / "b", name="topic-0.0123-future")
    if start:
        copy.truncate_fully_and_start_at(start)
    for offset in (3,) if start else (0, 3):
        copy.append_as_follower(source.read_bytes(offset, 1 << 20), NOW)
    copy.become_current(source.gap_start)
    return copy


@pytest.mark.parametrize("clean", [True, False])
def test_the_gap_of_a_copy_is_still_known_after_a_stop(tmp_path: Path, clean: bool) -> None:
    log = copied_over_a_gap(tmp_path)
    log.flush()
    again = started_again(log, clean=clean)
    assert (contents(again), again.gap_start) == ([(0, b"kept"), (3, b"later")], 1)
    again.truncate_to(certain_end(again, counts=False))
    assert (contents(again), again.log_end_offset, again.gap_start) == ([(0, b"kept")], 1, None)


@pytest.mark.parametrize(("start", "gap"), [(1, 1), (2, None), (3, None)])
def test_the_gap_of_a_copy_that_begins_after_it_is_forgotten(
    tmp_path: Path, start: int, gap: int | None
) -> None:
    """Records may have been deleted before the copy began."""
    log = copied_over_a_gap(tmp_path, start)
    assert log.gap_start == gap
    again = started_again(log)
    assert (contents(again), again.gap_start) == ([(3, b"later")], gap)


def test_a_log_that_was_truncated_within_its_gap_is_opened_after_a_stop(tmp_path: Path) -> None:
    log = after_a_gap(tmp_path)
    log.truncate_to(2)
    put(log, b"copied")
    again = started_again(log)
    assert (contents(again), again.gap_start) == ([(0, b"kept"), (2, b"copied")], 1)


def test_a_gap_is_forgotten_when_retention_has_deleted_the_records_before_it(tmp_path: Path) -> None:
    log = after_a_gap(tmp_path)
    log.high_watermark = log.log_end_offset
    log.increment_log_start_offset(3, "test")
    assert log.delete_old_segments(NOW) == 1
    assert log.gap_start is None


def test_a_log_that_starts_over_has_no_gap(tmp_path: Path) -> None:
    log = after_a_gap(tmp_path)
    log.truncate_fully_and_start_at(2)
    assert log.gap_start is None


def test_flushed_segments_are_not_searched_for_gaps(tmp_path: Path) -> None:
    """A leader without other replicas keeps its log with the gap. It is flushed later."""
    log = after_a_gap(tmp_path)
    log.flush()
    assert reopened(log, recovery_point=log.recovery_point).gap_start is None


def test_a_truncation_that_fails_half_way_leaves_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path, segment_bytes=500)
    log.flush()
    assert len(log.segments) > 4
    rename, names = os.rename, []

    def fail_once(source: str, target: str) -> None:
        names.append(source)
        if len(names) == 4:  # after the `.log` of one segment
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail_once)
    with pytest.raises(LogDirFailure):
        log.truncate_to(20)
    again = reopened(log, recovery_point=log.recovery_point)
    assert 20 <= again.log_end_offset < 120
    assert contents(again) == expected(again.log_end_offset)


@pytest.mark.parametrize("start", [0, 40])
def test_a_full_truncation_that_is_interrupted_leaves_a_gap_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    """A follower would otherwise claim to have the offsets from the new start on."""
    log = open_log(tmp_path, segment_bytes=500)
    log.truncate_fully_and_start_at(40)
    for i in range(20):
        put(log, b"%d" % i * 10)
    log.flush()

    def fail(self: object, segments: object, delay_ms: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(LocalLog, "_remove_files", fail)
    with pytest.raises(LogDirFailure):
        log.truncate_fully_and_start_at(start)
    monkeypatch.undo()
    again = reopened(log, recovery_point=60)
    assert (again.log_start_offset, again.log_end_offset, again.gap_start) == (start, 60, start)
    assert certain_end(again, counts=False) == start
    again.truncate_to(start)
    assert (contents(again), again.log_end_offset, again.gap_start) == ([], start, None)
