"""Leader epochs after a stop or a crash: those of the batches take precedence over the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.log.checkpoints import write_epochs

from .damage import damage_cut, damage_empty, damage_random, damage_remove
from .logs import files_of, filled, open_log, put, reopened


@pytest.mark.parametrize("stop", ["clean", "unclean", "unclean, behind a recovery point"])
@pytest.mark.parametrize("damage", [damage_remove, damage_empty, damage_cut, damage_random])
def test_leader_epochs_are_found_again_in_the_batches(
    tmp_path: Path, stop: str, damage: Callable[[Path], None]
) -> None:
    """Without them a follower would truncate its log to its high watermark."""
    log = filled(tmp_path)
    log.close()
    damage(log.dir / "leader-epoch-checkpoint")
    point = 100 if stop == "unclean, behind a recovery point" else 0
    again = reopened(log, clean_shutdown=stop == "clean", recovery_point=point)
    assert again.epochs.entries() == [(0, 0), (1, 40), (2, 80)]
    again.close()
    assert reopened(again, clean_shutdown=True).epochs.entries() == [(0, 0), (1, 40), (2, 80)]


def test_an_epoch_file_without_epochs_is_valid(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    write_epochs(str(log.dir / "leader-epoch-checkpoint"), [])
    assert reopened(log, clean_shutdown=True).epochs.entries() == []


def test_a_log_without_records_needs_no_epoch_file(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.truncate_fully_and_start_at(50)
    log.close()
    again = reopened(log, clean_shutdown=True)
    again.close()
    assert "leader-epoch-checkpoint" not in files_of(again)


@pytest.mark.parametrize(
    "entries",
    [
        [(0, 0), (1, 40), (3, 60)],
        [(0, 0), (1, 40), (3, 80)],
        [(0, 0), (5, 20), (6, 100)],
        [(0, 0), (1, 50), (2, 90)],
        [(7, 0)],
    ],
    ids=str,
)
def test_after_a_crash_the_epochs_of_the_batches_take_precedence_over_the_file(
    tmp_path: Path, entries: list[tuple[int, int]]
) -> None:
    """After a truncation and new appends, the file may be durable while the log is not. A crash may then
    restore the older log."""
    log = filled(tmp_path)
    write_epochs(str(log.dir / "leader-epoch-checkpoint"), entries)
    again = reopened(log)
    assert again.epochs.entries() == [(0, 0), (1, 40), (2, 80)]
    assert again.end_offset_for_epoch(3) == (-1, -1)


def test_an_epoch_without_records_is_kept_by_recovery(tmp_path: Path) -> None:
    log = filled(tmp_path)
    write_epochs(
        str(log.dir / "leader-epoch-checkpoint"), [(0, 0), (1, 36), (2, 80)]
    )  # its first batches were compacted away
    assert reopened(log, recovery_point=70).epochs.entries() == [(0, 0), (1, 36), (2, 80)]


@pytest.mark.parametrize("foreign", ["0 0\n7 2", "0 0", "3 0"])
def test_epochs_that_contradict_the_last_batch_are_taken_from_the_batches(
    tmp_path: Path, foreign: str
) -> None:
    """After a clean stop too. With an epoch that its leader does not know, a follower could not fetch."""
    log = open_log(tmp_path)
    for epoch in (0, 0, 3, 5):
        put(log, b"v", epoch=epoch)
    log.close()
    lines = foreign.split("\n")
    (log.dir / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    again = open_log(tmp_path, clean_shutdown=True, recovery_point=4)
    assert again.epochs.entries() == [(0, 0), (3, 2), (5, 3)]


def test_epochs_that_contradict_the_last_batch_before_an_empty_segment_are_taken_from_the_batches(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    put(log, b"v", epoch=0)
    put(log, b"v", epoch=3)
    log.roll()
    log.close()
    (log.dir / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    again = open_log(tmp_path, clean_shutdown=True, recovery_point=2)
    assert [segment.base_offset for segment in again.segments] == [0, 2]
    assert again.epochs.entries() == [(0, 0), (3, 1)]


def test_an_epoch_without_records_does_not_contradict_the_last_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path)
    put(log, b"v", epoch=3)
    log.epochs.assign(4, 1)
    log.close()
    again = open_log(tmp_path, clean_shutdown=True, recovery_point=1)
    assert again.epochs.entries() == [(3, 0)]
    assert "Rebuilding" not in caplog.text


@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_batch_before_an_empty_segment_says_nothing_of_the_epochs(
    tmp_path: Path, clean: bool
) -> None:
    log = open_log(tmp_path)
    for epoch in (0, 0, 5, 5):
        put(log, b"v", epoch=epoch)
    size = log.segments[0].size // 4
    log.roll()
    log.close()
    path = log.segments[0].log_path
    data = bytearray(Path(path).read_bytes())
    data[2 * size + 16] ^= 0xFF  # the magic of the third batch
    Path(path).write_bytes(data)
    again = open_log(tmp_path, clean_shutdown=clean, recovery_point=4)
    assert again.epochs.entries() == [(0, 0), (5, 2)]


def test_an_epoch_whose_batches_were_compacted_away_is_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path, cleanup_policy=frozenset({"compact"}))
    put(log, b"v", epoch=0)
    size = log.segments[0].size
    put(log, b"v", epoch=5)
    log.roll()
    log.close()
    os.truncate(log.segments[0].log_path, size)
    again = open_log(tmp_path, cleanup_policy=frozenset({"compact"}), clean_shutdown=True, recovery_point=2)
    assert again.epochs.entries() == [(0, 0), (5, 1)]
