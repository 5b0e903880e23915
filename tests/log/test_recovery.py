"""The contents of a log after a clean stop, after a kill, with torn tails and with flipped bytes."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.log.errors import LogDirFailure
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.partition.producer_state import AppendOrigin
from quorate.log.segment import recovery
from quorate.records import batch as b
from quorate.records.batch import build_batch, build_control_batch, iter_batches

from .damage import (
    damage_cut,
    damage_empty,
    damage_first_entry,
    damage_position,
    damage_preallocated,
    damage_random,
    damage_remove,
    damage_zero,
)
from .logs import NOW, SEGMENT, contents, expected, files_of, filled, open_log, put, reopened


@pytest.mark.parametrize("clean", [True, False])
def test_all_records_exist_after_a_clean_stop_and_after_a_kill(tmp_path: Path, clean: bool) -> None:
    log = filled(tmp_path)
    if clean:
        log.close()
    again = reopened(log, clean_shutdown=clean)
    assert contents(again) == expected(120)
    assert again.epochs.entries() == [(0, 0), (1, 40), (2, 80)]
    assert again.offset_for_timestamp(NOW + 33) == (NOW + 33, 66, 1)
    assert again.offset_of_max_timestamp() == (NOW + 59, 118, 2)
    assert again.recovery_point == (120 if clean else 0)
    assert put(again, b"next", epoch=2).first_offset == 120


def test_a_second_kill_finds_what_the_first_recovery_found(tmp_path: Path) -> None:
    log = filled(tmp_path)
    again = reopened(reopened(log))
    assert contents(again) == expected(120)


def test_flushed_segments_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path)
    scanned: list[int] = []
    original = recovery.recover_segment
    monkeypatch.setattr(
        recovery, "recover_segment", lambda s, *a, **k: scanned.append(s.base_offset) or original(s, *a, **k)
    )
    again = reopened(log, recovery_point=log.recovery_point)
    assert scanned == [log.segments[-1].base_offset] and contents(again) == expected(120)
    reopened(log, recovery_point=log.segments[1].base_offset + 1)
    assert scanned[1:] == [s.base_offset for s in log.segments[1:]]


def test_a_log_torn_at_any_byte_keeps_every_complete_batch(tmp_path: Path) -> None:
    log = filled(tmp_path, 4)
    data = (log.dir / f"{SEGMENT}.log").read_bytes()
    ends = []
    for header, _ in iter_batches(data):
        ends.append((ends[-1] if ends else 0) + header.size_bytes)
    for size in range(len(data) + 1):
        (log.dir / f"{SEGMENT}.log").write_bytes(data[:size])
        whole = sum(1 for end in ends if end <= size)
        again = reopened(log)
        assert (again.log_end_offset, contents(again)) == (2 * whole, expected(2 * whole)), size
        assert (log.dir / f"{SEGMENT}.log").stat().st_size == (ends[whole - 1] if whole else 0)


@pytest.mark.parametrize(
    "tail",
    [b"\0", b"\0" * 12, b"\0" * 500, b"\xff" * 100, os.urandom(300)],
    ids=["1", "12", "500", "ff", "random"],
)
def test_bytes_at_the_end_that_are_not_a_batch_are_truncated(tmp_path: Path, tail: bytes) -> None:
    log = filled(tmp_path, 4)
    with (log.dir / f"{SEGMENT}.log").open("ab") as out:
        out.write(tail)
    assert contents(reopened(log)) == expected(8)


def test_every_flipped_byte_is_detected_and_the_log_is_truncated_there(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    path = log.dir / f"{SEGMENT}.log"
    data = path.read_bytes()
    (first, _), (second, _), _ = iter_batches(data)
    for position in range(first.size_bytes, first.size_bytes + second.size_bytes):
        damaged = bytearray(data)
        damaged[position] ^= 0x41
        path.write_bytes(damaged)
        found = contents(reopened(log))
        in_batch = position - first.size_bytes
        if in_batch < b.LENGTH or b.LEADER_EPOCH <= in_batch < b.MAGIC:
            # Outside of the checksum: the base offset breaks the order of offsets, or leaves a gap; the
            # epoch is not checked.
            assert found[:2] == expected(2)
        else:
            assert found == expected(2), position


def test_segments_after_a_damaged_one_are_deleted(tmp_path: Path) -> None:
    log = filled(tmp_path)
    second = log.segments[1].base_offset
    path = log.dir / f"{second:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    again = reopened(log)
    assert second < again.log_end_offset < log.segments[2].base_offset
    assert contents(again) == expected(again.log_end_offset)
    assert [s.base_offset for s in again.segments] == [0, second]
    assert not any(
        int(name[:20]) > second for name in files_of(again) if name.endswith((".log", ".index", ".timeindex"))
    )
    put(again, b"new", epoch=9)
    assert contents(reopened(again))[-1] == (again.log_end_offset - 1, b"new")


@pytest.mark.parametrize("at", [-8, -1])
def test_a_damaged_index_before_an_empty_segment_is_rebuilt(tmp_path: Path, at: int) -> None:
    log = filled(tmp_path, segment_bytes=100_000)
    log.roll(NOW)
    log.flush()
    index = log.dir / f"{SEGMENT}.index"
    data = bytearray(index.read_bytes())
    data[at] ^= 4
    index.write_bytes(data)
    again = reopened(log, recovery_point=log.recovery_point)
    assert contents(again) == expected(120) and len(again.segments) == 2


def test_a_damaged_batch_before_an_empty_segment_fails_no_directory(tmp_path: Path) -> None:
    log = filled(tmp_path, segment_bytes=100_000)
    log.roll(NOW)
    log.flush()
    *_, (_, last) = log.segments[0].headers(0, log.segments[0].size)
    with open(log.segments[0].log_path, "r+b") as file:
        file.seek(last + b.MAGIC)
        file.write(b"\x07")
    again = reopened(log, recovery_point=log.recovery_point)
    assert (again.log_end_offset, len(again.segments)) == (120, 2)


def test_a_roll_after_a_crash_syncs_the_recovered_segments_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The roll moves the recovery point past them, and their rebuilt indexes are only in memory."""
    log = reopened(filled(tmp_path, segment_bytes=1_000), recovery_point=0)
    recovered = {segment.log_path for segment in log.segments}
    assert len(recovered) > 2
    synced, fsync = set(), os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (synced.add(str(Path(f"/proc/self/fd/{fd}").readlink())), fsync(fd))[1]
    )
    log.roll(NOW)
    assert log.recovery_point == log.log_end_offset and recovered <= synced


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "damage",
    [
        damage_remove,
        damage_cut,
        damage_empty,
        damage_zero,
        damage_preallocated,
        damage_first_entry,
        damage_position,
        damage_random,
    ],
)
def test_a_damaged_index_never_gives_a_wrong_answer(
    tmp_path: Path, clean: bool, suffix: str, damage: Callable[[Path], None]
) -> None:
    log = filled(tmp_path)
    log.close()
    for segment in log.segments:
        damage(log.dir / f"{segment.base_offset:020d}{suffix}")
    again = reopened(log, clean_shutdown=clean, recovery_point=0 if clean else log.segments[-1].base_offset)
    assert again.log_end_offset == 120
    for offset in (119, 1, 77, 40, 0, 118):
        header, _ = next(iter_batches(again.read_bytes(offset, 1)))
        assert header.base_offset <= offset <= header.last_offset
    if suffix == ".index" or damage in (damage_remove, damage_cut, damage_zero, damage_random):
        # A time index that was only shortened or moved within the possible is not told from a right one
        # at its end.
        for i in (59, 3, 38, 20):
            assert again.offset_for_timestamp(NOW + i) == (NOW + i, 2 * i, i // 20)
    assert contents(again) == expected(120)


def test_a_partition_metadata_file_that_is_not_one_fails_the_directory(tmp_path: Path) -> None:
    log = filled(tmp_path, 2)
    (log.dir / "partition.metadata").write_text("version: 7\ntopic_id: x")
    with pytest.raises(LogDirFailure, match=r"partition\.metadata"):
        reopened(log)


@pytest.mark.parametrize(
    "torn", [b"", b"ver", b"version: 0\ntopic_id: fua-mLaFSEKyWi-n", bytes(42), b"version: 0" + bytes(32)]
)
def test_a_torn_partition_metadata_file_after_a_crash_is_written_again(tmp_path: Path, torn: bytes) -> None:
    log = filled(tmp_path, 2)
    (log.dir / "partition.metadata").write_bytes(torn)
    again = reopened(log, topic_id=log.topic_id)
    assert again.topic_id == log.topic_id and contents(again) == expected(4)
    assert (log.dir / "partition.metadata").read_text().startswith("version: 0\ntopic_id: ")


def test_an_append_that_fails_half_way_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path, 4)
    real = os.pwritev

    def torn(fd: int, parts: list, position: int) -> int:
        real(fd, [b"".join(parts)[:20]], position)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", torn)
    with pytest.raises(LogDirFailure, match="No space left"):
        put(log, b"lost")
    monkeypatch.undo()
    assert log.log_end_offset == 8 and contents(log) == expected(8)
    assert contents(reopened(log)) == expected(8)
    put(log, b"later")
    assert contents(log)[8:] == [(8, b"later")]


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path, 1)
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: real(fd, [b"".join(parts)[:30]], at))
    put(log, b"whole")
    assert contents(log)[2:] == [(2, b"whole")]


def test_deleted_and_half_cleaned_files_are_removed_and_swaps_completed(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    first, second = log.segments[0].base_offset, log.segments[1].base_offset
    for suffix in (".log", ".index", ".timeindex"):
        (log.dir / f"{first:020d}{suffix}").rename(log.dir / f"{first:020d}{suffix}.swap")
    shutil.copy(log.dir / f"{second:020d}.log", log.dir / f"{second:020d}.log.cleaned")
    (log.dir / f"{900:020d}.log.deleted").write_bytes(b"x")
    again = reopened(log)
    assert contents(again) == expected(120)
    assert not any(name.endswith((".swap", ".cleaned", ".deleted")) for name in files_of(again))


def test_an_index_without_its_log_is_removed(tmp_path: Path) -> None:
    log = filled(tmp_path, 2)
    (log.dir / f"{5000:020d}.index").write_bytes(b"")
    assert f"{5000:020d}.index" not in files_of(reopened(log))


def test_a_log_whose_end_is_below_its_start_starts_empty(tmp_path: Path) -> None:
    log = filled(tmp_path)
    again = reopened(log, log_start_offset=5000)
    assert (again.log_start_offset, again.log_end_offset, contents(again)) == (5000, 5000, [])
    assert put(again, b"a").first_offset == 5000


def test_the_log_start_offset_survives(tmp_path: Path) -> None:
    log = filled(tmp_path)
    again = reopened(log, log_start_offset=51)
    assert (again.log_start_offset, again.high_watermark) == (51, 51)
    assert again.epochs.entries() == [(1, 51), (2, 80)] and contents(again)[0][0] == 51


# --- producers ------------------------------------------------------------------------------------


def produced(log: PartitionLog, producer: int, sequence: int, *, transactional: bool = False) -> int:
    data = build_batch(
        [(b"k", b"v", [], NOW)],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return log.append_as_leader(data, 0, NOW).first_offset


def ended(log: PartitionLog, producer: int, *, commit: bool) -> None:
    marker = build_control_batch(
        [(int(commit), struct.pack(">hi", 0, 0))],
        timestamp=NOW,
        producer_id=producer,
        producer_epoch=0,
        is_transactional=True,
    )
    log.append_as_leader(marker, 0, NOW, AppendOrigin.COORDINATOR)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("rolls", [False, True])
def test_producers_and_open_transactions_survive(tmp_path: Path, clean: bool, rolls: bool) -> None:
    log = open_log(tmp_path)
    for sequence in range(4):
        produced(log, 7, sequence)
    produced(log, 8, 0, transactional=True)
    ended(log, 8, commit=False)
    if rolls:
        log.roll(NOW)
    produced(log, 8, 1, transactional=True)
    if clean:
        log.close()
    again = reopened(log, clean_shutdown=clean)
    again.high_watermark = again.log_end_offset
    assert {
        (p.producer_id, p.last_sequence, p.current_txn_first_offset) for p in again.active_producers()
    } == {
        (7, 3, -1),
        (8, 1, 6),
    }
    assert again.last_stable_offset == 6
    assert again.aborted_transactions(0, 100) == [(8, 4)]
    assert produced(again, 7, 3) == 3  # a retry
    assert produced(again, 7, 4) == 7
    ended(again, 8, commit=True)
    again.high_watermark = again.log_end_offset
    assert again.last_stable_offset == again.log_end_offset


@pytest.mark.parametrize("damage", [damage_cut, damage_first_entry, damage_random])
def test_a_damaged_producer_snapshot_is_ignored(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    log = open_log(tmp_path)
    for sequence in range(4):
        produced(log, 7, sequence)
    log.close()
    damage(log.dir / f"{4:020d}.snapshot")
    again = reopened(log, clean_shutdown=True)
    assert [p.last_sequence for p in again.active_producers()] == [3]
    assert not (log.dir / f"{4:020d}.snapshot").exists()


@pytest.mark.parametrize("damage", [damage_cut, damage_first_entry, damage_random])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_transaction_index_is_rebuilt(
    tmp_path: Path, clean: bool, damage: Callable[[Path], None]
) -> None:
    log = open_log(tmp_path)
    for round_ in range(3):
        produced(log, 7, round_, transactional=True)
        ended(log, 7, commit=round_ == 1)
    log.close()
    damage(log.dir / f"{SEGMENT}.txnindex")
    again = reopened(log, clean_shutdown=clean)
    assert again.aborted_transactions(0, 100) == [(7, 0), (7, 4)]


def test_truncation_reverts_producers(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(6):
        produced(log, 7, sequence)
    produced(log, 8, 0, transactional=True)
    log.truncate_to(3)
    assert [(p.producer_id, p.last_sequence) for p in log.active_producers()] == [(7, 2)]
    assert log.producers.first_unstable_offset is None and produced(log, 7, 3) == 3


def test_a_truncation_to_the_high_watermark_holds_back_no_committed_transaction(tmp_path: Path) -> None:
    """Readers of committed transactions would wait for the next record."""
    log = open_log(tmp_path)
    for sequence in range(3):
        produced(log, 7, sequence, transactional=True)
        ended(log, 7, commit=True)
    log.high_watermark = end = log.log_end_offset
    put(log, b"not committed")
    assert log.last_stable_offset == end
    log.truncate_to(end)
    assert (log.high_watermark, log.last_stable_offset) == (end, end)
