"""The contents of a log after a clean stop, after a kill, with torn tails and with flipped bytes."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.broker.replication.fetcher.fetch_positions import certain_end
from quorate.log.checkpoints import write_epochs
from quorate.log.errors import LogDirFailure
from quorate.log.files import OpenFiles
from quorate.log.partition.local_log import LocalLog
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.partition.producer_state import AppendOrigin
from quorate.log.segment import recovery
from quorate.records import batch as b
from quorate.records.batch import build_batch, build_control_batch, iter_batches

from .logs import NOW, contents, files_of, open_log, put

SEGMENT = "00000000000000000000"


def reopened(log: PartitionLog, **options) -> PartitionLog:
    """Opens the log as a new process does; without `clean_shutdown` as after kill -9."""
    options.setdefault("log_start_offset", 0)
    return PartitionLog.open(log.dir, log.config, files=OpenFiles(64), now_ms=NOW, **options)


def filled(tmp_path: Path, n: int = 60, **options) -> PartitionLog:
    options.setdefault("segment_bytes", 2_000)
    options.setdefault("index_interval_bytes", 200)
    log = open_log(tmp_path, **options)
    for i in range(n):
        put(log, b"%d" % i * 10, b"x", timestamp=NOW + i, epoch=i // 20)
    return log


def expected(n: int) -> list[tuple[int, bytes]]:
    return [(i, b"%d" % (i // 2) * 10 if i % 2 == 0 else b"x") for i in range(n)]


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
    """The recovery point passes them. Their indexes were rebuilt in memory."""
    log = reopened(filled(tmp_path, segment_bytes=1_000), recovery_point=0)
    recovered = {segment.log_path for segment in log.segments}
    assert len(recovered) > 2
    synced, fsync = set(), os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (synced.add(str(Path(f"/proc/self/fd/{fd}").readlink())), fsync(fd))[1]
    )
    log.roll(NOW)
    assert log.recovery_point == log.log_end_offset and recovered <= synced


def damage_remove(path: Path) -> None:
    path.unlink()


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def damage_preallocated(path: Path) -> None:
    with path.open("r+b") as out:
        out.truncate(10 << 20)


def damage_first_entry(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[3] ^= 0x10
    path.write_bytes(data)


def damage_position(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[15] ^= 0x08
    path.write_bytes(data)


def damage_random(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


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
