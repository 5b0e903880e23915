"""Appending, reading and truncating the log of one partition."""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
from pathlib import Path

import pytest

from quorate.log.config import LogConfig
from quorate.log.errors import LogDirFailure
from quorate.log.files import OpenFiles
from quorate.log.partition.producer_state import AppendOrigin
from quorate.log.partition.results import UnexpectedAppendOffset
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.records import batch as b
from quorate.records.batch import Compression, build_batch, build_control_batch, iter_batches, parse_header
from quorate.records.errors import InvalidRecordError

from .logs import NOW, TOPIC_ID, contents, files_of, open_log, put


def test_a_new_log_has_no_files_until_its_first_append(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.epochs.assign(3, 0)
    log.flush()
    log.close()
    assert not log.dir.exists() and log.read_bytes(0, 100) == b""
    put(log, b"a")
    assert files_of(log) == {
        "partition.metadata",
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
    }
    assert (log.dir / "partition.metadata").read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"


def test_offsets_follow_each_other_and_are_patched_into_the_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert [put(log, b"a", b"b", epoch=4).first_offset for _ in range(3)] == [0, 2, 4]
    info = put(log, b"c", epoch=5)
    assert (info.first_offset, info.last_offset, info.leader_epoch, info.max_timestamp) == (6, 6, 5, NOW)
    headers = [header for header, _ in iter_batches(log.read_bytes(0, 10_000))]
    assert [(h.base_offset, h.leader_epoch) for h in headers] == [(0, 4), (2, 4), (4, 4), (6, 5)]
    assert contents(log) == [(i, b"ab"[i % 2 : i % 2 + 1]) for i in range(6)] + [(6, b"c")]


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda x: memoryview(bytearray(x))])
def test_any_buffer_can_be_appended_and_is_not_changed(tmp_path: Path, make: type) -> None:
    log = open_log(tmp_path)
    data = build_batch([(b"k", b"v", [], NOW)])
    given = make(data)
    log.append_as_leader(given, 1, NOW)
    log.append_as_leader(given, 1, NOW)
    assert bytes(given) == data and contents(log) == [(0, b"v"), (1, b"v")]


@pytest.mark.parametrize("codec", Compression)
def test_compressed_batches_are_stored_unchanged(tmp_path: Path, codec: Compression) -> None:
    log = open_log(tmp_path)
    data = build_batch([(b"k", b"v" * 50, [], NOW)] * 30, compression=codec)
    log.append_as_leader(data, 2, NOW)
    assert log.read_bytes(0, 1 << 20)[16:] == data[16:]


# --- what is refused ------------------------------------------------------------------------------


def refused(log: object, data: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(data, 0, NOW, origin)  # type: ignore[attr-defined]
    assert log.log_end_offset == 0 and not log.dir.exists()  # type: ignore[attr-defined]
    return caught.value.code


def test_a_batch_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    data = bytearray(build_batch([(b"k", b"v", [], NOW)]))
    data[-1] ^= 1
    assert refused(open_log(tmp_path), bytes(data)) == ErrorCode.CORRUPT_MESSAGE


def test_a_truncated_batch_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = build_batch([(b"k", b"v", [], NOW)])
    for size in range(len(data)):
        assert refused(log, data[:size]) in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)


def test_two_batches_in_one_append_are_refused(tmp_path: Path) -> None:
    assert refused(open_log(tmp_path), build_batch([(b"k", b"v", [], NOW)]) * 2) == ErrorCode.INVALID_RECORD


def test_a_client_may_not_choose_offsets(tmp_path: Path) -> None:
    assert (
        refused(open_log(tmp_path), build_batch([(b"k", b"v", [], NOW)], base_offset=3))
        == ErrorCode.INVALID_RECORD
    )


def test_a_client_may_not_write_control_records(tmp_path: Path) -> None:
    marker = build_control_batch(
        [(0, b"\0\0\0\0\0\0")], timestamp=NOW, producer_id=1, producer_epoch=0, is_transactional=True
    )
    assert refused(open_log(tmp_path), marker) == ErrorCode.INVALID_RECORD


def test_a_batch_above_max_message_bytes_is_refused(tmp_path: Path) -> None:
    data = build_batch([(b"k", bytes(1000), [], NOW)])
    assert refused(open_log(tmp_path, max_message_bytes=len(data) - 1), data) == ErrorCode.MESSAGE_TOO_LARGE
    open_log(tmp_path, max_message_bytes=len(data)).append_as_leader(data, 0, NOW)


def test_a_batch_above_the_segment_size_is_refused(tmp_path: Path) -> None:
    data = build_batch([(b"k", bytes(1000), [], NOW)])
    assert refused(open_log(tmp_path, segment_bytes=1000), data) == ErrorCode.RECORD_LIST_TOO_LARGE


# --- Raft and followers ---------------------------------------------------------------------------


def test_the_raft_leaders_batches_are_written_as_they_are(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first = build_batch([(None, b"a", [], NOW)], base_offset=0, leader_epoch=7)
    second = build_batch([(None, b"b", [], NOW)], base_offset=1, leader_epoch=7)
    info = log.append_as_leader(first + second, 7, NOW, AppendOrigin.RAFT)
    assert (info.first_offset, info.last_offset) == (0, 1)
    assert log.read_bytes(0, 1000) == first + second
    with pytest.raises(KafkaError):  # another epoch
        log.append_as_leader(
            build_batch([(None, b"c", [], NOW)], base_offset=2, leader_epoch=6), 7, NOW, AppendOrigin.RAFT
        )
    with pytest.raises(UnexpectedAppendOffset):
        log.append_as_leader(
            build_batch([(None, b"c", [], NOW)], base_offset=3, leader_epoch=7), 7, NOW, AppendOrigin.RAFT
        )


def test_a_follower_keeps_offsets_and_epochs_and_ignores_an_incomplete_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first = build_batch([(None, b"a", [], NOW)] * 3, base_offset=0, leader_epoch=2)
    second = build_batch(
        [(None, b"b", [], NOW)], base_offset=10, leader_epoch=5
    )  # a compacted leader has gaps
    third = build_batch([(None, b"c", [], NOW)], base_offset=11, leader_epoch=5)
    info = log.append_as_follower(first + second + third[:-1], NOW)
    assert (info.first_offset, info.last_offset, log.log_end_offset) == (0, 10, 11)
    assert log.epochs.entries() == [(2, 0), (5, 10)]
    assert contents(log) == [(0, b"a"), (1, b"a"), (2, b"a"), (10, b"b")]


def test_a_follower_refuses_records_that_it_already_has(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = build_batch([(None, b"a", [], NOW)] * 3, base_offset=0, leader_epoch=2)
    log.append_as_follower(data)
    with pytest.raises(UnexpectedAppendOffset) as caught:
        log.append_as_follower(data)
    assert (caught.value.first_offset, caught.value.last_offset) == (0, 2)


def test_a_follower_refuses_a_batch_with_a_wrong_checksum_and_those_around_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    good = build_batch([(None, b"a", [], NOW)], base_offset=0, leader_epoch=2)
    bad = bytearray(build_batch([(None, b"a", [], NOW)], base_offset=1, leader_epoch=2))
    bad[-1] ^= 1
    with pytest.raises(KafkaError):
        log.append_as_follower(good + bytes(bad))
    assert log.log_end_offset == 0


# --- reading --------------------------------------------------------------------------------------


@pytest.fixture
def long_log(tmp_path: Path):
    log = open_log(tmp_path, segment_bytes=30_000)
    for i in range(300):
        put(log, b"%d" % i * 100, b"x", timestamp=NOW + i)
    assert len(log.segments) > 3
    return log


@pytest.mark.parametrize("max_bytes", [1, 500, 5_000, 1 << 20])
def test_everything_is_read_with_any_fetch_size(long_log, max_bytes: int) -> None:
    expected = [(i, b"%d" % (i // 2) * 100 if i % 2 == 0 else b"x") for i in range(600)]
    assert contents(long_log, max_bytes=max_bytes) == expected


def test_a_read_begins_with_the_batch_that_holds_the_offset(long_log) -> None:
    for offset in range(600):
        data = long_log.read(offset, 1)
        assert data.first_batch_offset == offset // 2 * 2
        assert parse_header(b"".join(part.read() for part in data.parts)).base_offset == offset // 2 * 2


@pytest.mark.parametrize("upper", [0, 1, 2, 7, 100, 301, 600, 601])
def test_a_read_stops_before_the_batch_at_the_upper_offset(long_log, upper: int) -> None:
    found = contents(long_log, upper_offset=upper)
    assert len(found) == min(upper, 600) // 2 * 2


def test_a_region_has_the_bytes_of_the_file(long_log) -> None:
    data = long_log.read(10, 2_000)
    assert sum(len(part) for part in data.parts) == data.size == 2_000
    assert b"".join(part.read() for part in data.parts) == long_log.read_bytes(10, 2_000)


def test_min_one_gives_a_first_batch_that_is_larger_than_the_limit(long_log) -> None:
    assert len(list(iter_batches(long_log.read_bytes(0, 10, min_one=True)))) == 1
    assert long_log.read_bytes(0, 10, min_one=False) == b""


@pytest.mark.parametrize("offset", [-1, 601])
def test_offsets_outside_of_the_log_are_refused(long_log, offset: int) -> None:
    with pytest.raises(KafkaError) as caught:
        long_log.read(offset, 100)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_reads_survive_the_eviction_of_their_file(tmp_path: Path) -> None:
    files = OpenFiles(1)
    first, second = open_log(tmp_path, files), open_log(tmp_path, files, name="other-0")
    put(first, b"a")
    data = first.read(0, 100)
    put(second, b"b")
    assert first.segments[0].log_path not in files
    fd = data.parts[0].fd_owner.fileno()
    raw = data.parts[0].read()
    assert parse_header(raw).count == 1
    data.parts.clear()
    link = Path(f"/proc/self/fd/{fd}")
    assert not link.exists() or str(link.readlink()) != first.segments[0].log_path


def test_the_next_offset_of_a_read_bounds_what_was_read(long_log) -> None:
    for offset in range(0, 600, 7):
        for size in (1, 900, 5000, 100_000):
            data = long_log.read(offset, size)
            last = [h.next_offset for h, _ in iter_batches(b"".join(p.read() for p in data.parts))][-1]
            assert last <= data.next_offset <= 600


# --- time -----------------------------------------------------------------------------------------


def test_the_first_record_of_a_time_is_found(long_log) -> None:
    for i in (0, 1, 57, 150, 299):
        assert long_log.offset_for_timestamp(NOW + i) == (NOW + i, 2 * i, 0)
    assert long_log.offset_for_timestamp(NOW - 1000) == (NOW, 0, 0)
    assert long_log.offset_for_timestamp(NOW + 300) is None


def test_a_search_fails_at_a_record_above_the_limit_of_decompressed_records(tmp_path: Path) -> None:
    """As in Kafka, where the limit may be lowered after larger records were stored."""
    rows = [(None, b"v" * size, [], NOW + i) for i, size in enumerate((10, 1000, 10))]
    log = open_log(tmp_path)
    log.append_as_leader(build_batch(rows, compression=Compression.GZIP), 0, NOW)
    log.update_config(LogConfig(max_decompressed_message_bytes=500))
    assert log.offset_for_timestamp(NOW) == (NOW, 0, 0)
    for search in (lambda: log.offset_for_timestamp(NOW + 2), log.offset_of_max_timestamp):
        with pytest.raises(InvalidRecordError, match="exceeds the configured maximum record size of 500"):
            search()


def test_times_below_the_log_start_are_passed_over(long_log) -> None:
    long_log.high_watermark = 600
    long_log.increment_log_start_offset(101, "test")
    assert long_log.offset_for_timestamp(NOW) == (NOW + 50, 101, 0)


def test_the_greatest_timestamp_is_found_even_if_it_is_not_the_last(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=2_000)
    assert log.offset_of_max_timestamp() is None
    for i in range(40):
        put(log, b"v" * 100, b"w", timestamp=NOW + (1000 if i == 13 else i), epoch=i // 10)
    assert log.offset_of_max_timestamp() == (NOW + 1000, 26, 1)


# --- leader epochs --------------------------------------------------------------------------------


def test_epochs_are_taken_from_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for epoch in (2, 2, 3, 7):
        put(log, b"a", b"b", epoch=epoch)
    assert (log.latest_epoch, log.epochs.entries()) == (7, [(2, 0), (3, 4), (7, 6)])
    table = {1: (1, 0), 2: (2, 4), 3: (3, 6), 5: (3, 6), 7: (7, 8), 8: (-1, -1), -1: (-1, -1)}
    assert {epoch: log.end_offset_for_epoch(epoch) for epoch in table} == table
    assert [log.epochs.epoch_for(offset) for offset in range(8)] == [2, 2, 2, 2, 3, 3, 7, 7]


def test_an_epoch_without_records_is_recorded(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, b"a", epoch=1)
    log.epochs.assign(4, 1)
    assert log.end_offset_for_epoch(3) == (1, 1) and log.latest_epoch == 4


# --- truncation -----------------------------------------------------------------------------------


def test_truncation_removes_complete_batches_their_timestamps_and_their_epochs(long_log) -> None:
    long_log.high_watermark = 600
    assert long_log.truncate_to(401) and not long_log.truncate_to(401)  # the batch has 400 and 401
    assert (long_log.log_end_offset, long_log.high_watermark) == (400, 400)
    assert [offset for offset, _ in contents(long_log)] == list(range(400))
    assert long_log.offset_of_max_timestamp() == (NOW + 199, 398, 0)
    put(long_log, b"new", epoch=9)
    assert contents(long_log)[-1] == (400, b"new") and long_log.epochs.entries() == [(0, 0), (9, 400)]


def test_truncation_forgets_later_epochs(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for epoch in range(5):
        put(log, b"a", epoch=epoch)
    log.truncate_to(2)
    assert log.epochs.entries() == [(0, 0), (1, 1)]


def test_truncation_below_the_log_starts_over(long_log) -> None:
    long_log.high_watermark = 600
    long_log.truncate_fully_and_start_at(1000)
    assert (long_log.log_start_offset, long_log.high_watermark, long_log.log_end_offset) == (1000, 1000, 1000)
    assert long_log.epochs.entries() == [] and contents(long_log) == []
    put(long_log, b"x", epoch=3)
    assert contents(long_log) == [(1000, b"x")]
    long_log.truncate_to(500)
    assert (long_log.log_start_offset, long_log.log_end_offset) == (500, 500)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_starts_above_0_has_files_before_its_first_append(tmp_path: Path, clean: bool) -> None:
    """As in Kafka, only the name of an empty segment on disk shows where the log starts."""
    log = open_log(tmp_path)
    log.truncate_fully_and_start_at(70)
    assert {"00000000000000000070.log", "partition.metadata"} <= files_of(log)
    if clean:
        log.close()
    again = open_log(tmp_path, clean_shutdown=clean)
    assert (again.log_start_offset, again.high_watermark, again.log_end_offset) == (70, 70, 70)
    put(again, b"x")
    assert contents(again) == [(70, b"x")]


def test_a_log_that_starts_over_at_0_needs_no_files(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.truncate_fully_and_start_at(0)
    assert not log.dir.exists()


@pytest.mark.parametrize("start", [1000, 192, 190], ids=["above the log", "inside of it", "where it began"])
@pytest.mark.parametrize("step", range(30))
def test_a_crash_inside_of_a_full_truncation_leaves_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, step: int
) -> None:
    """A directory without a segment would begin at offset 0 again."""
    log = open_log(tmp_path, segment_bytes=300)
    for i in range(20):
        put(log, b"%d" % i, b"x" * 100)
    log.truncate_fully_and_start_at(190)
    for i in range(2):
        put(log, b"%d" % i, b"x" * 100)
    log.roll(NOW)
    steps = itertools.count()

    def crashing(name: str) -> None:
        real = getattr(os, name)

        def call(*args: object, **options: object) -> object:
            if next(steps) >= step:
                raise OSError(f"crashed before {name}")
            return real(*args, **options)

        monkeypatch.setattr(os, name, call)

    for name in ("rename", "replace", "unlink", "open", "truncate", "ftruncate"):
        crashing(name)
    with contextlib.suppress(LogDirFailure):
        log.truncate_fully_and_start_at(start)
    monkeypatch.undo()
    again = open_log(tmp_path, segment_bytes=300)
    assert again.log_end_offset in {start, 194}
    assert put(again, b"next").first_offset >= 190


# --- rolling --------------------------------------------------------------------------------------


def test_a_full_segment_rolls(long_log) -> None:
    assert all(segment.size <= 30_000 for segment in long_log.segments)
    assert [s.base_offset for s in long_log.segments] == sorted(
        int(p.name[:20]) for p in long_log.dir.glob("*.log")
    )
    assert long_log.recovery_point == long_log.segments[-1].base_offset


def test_a_segment_rolls_when_its_records_span_segment_ms(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=1000)
    for timestamp in (NOW, NOW + 1000, NOW + 1001, NOW + 2001, NOW + 2002):
        put(log, b"a", timestamp=timestamp)
    assert [s.base_offset for s in log.segments] == [0, 2, 4]


def test_a_segment_of_records_without_time_rolls_by_the_clock(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=1000)
    for now_ms in (NOW, NOW + 1000, NOW + 1001):
        put(log, b"a", timestamp=-1, now_ms=now_ms)
    assert [s.base_offset for s in log.segments] == [0, 2]


def test_a_segment_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_index_bytes=60, index_interval_bytes=1)  # 5 time entries, one kept free
    for i in range(12):
        put(log, b"a" * 10, timestamp=NOW + i)
    assert len(log.segments) > 1 and len(contents(log)) == 12


def test_a_segment_rolls_before_relative_offsets_overflow(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    far = 2**31 + 5
    log.append_as_follower(build_batch([(None, b"a", [], NOW)], base_offset=0, leader_epoch=1))
    log.append_as_follower(build_batch([(None, b"b", [], NOW)], base_offset=far, leader_epoch=1))
    assert [s.base_offset for s in log.segments] == [0, far]
    assert contents(log) == [(0, b"a"), (far, b"b")]


def test_indexes_have_an_entry_after_every_interval(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=500)
    positions, position, since = [], 0, 0
    for i in range(100):
        size = put(log, b"v" * (i % 37 * 5), timestamp=NOW + i).size_bytes
        if since > 500:
            positions.append((i, position))
            since = 0
        position, since = position + size, since + size
    log.close()
    raw = (log.dir / "00000000000000000000.index").read_bytes()
    assert list(struct.iter_unpack(">ii", raw)) == positions
    times = list(struct.iter_unpack(">qi", (log.dir / "00000000000000000000.timeindex").read_bytes()))
    assert times == [(NOW + i, i) for i, _ in positions] + [(NOW + 99, 99)]


# --- the rest -------------------------------------------------------------------------------------


def test_the_high_watermark_only_rises_and_stays_in_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, b"a", b"b", b"c")
    for given, expected in ((2, 2), (1, 2), (99, 3), (-5, 3)):
        log.high_watermark = given
        assert log.high_watermark == expected


def test_flush_messages_takes_effect(tmp_path: Path) -> None:
    log = open_log(tmp_path, flush_messages=3)
    put(log, b"a", b"b")
    assert log.recovery_point == 0
    put(log, b"c")
    assert log.recovery_point == 3


def test_another_topics_directory_is_refused(tmp_path: Path) -> None:
    put(open_log(tmp_path), b"a")
    with pytest.raises(KafkaError) as caught:
        open_log(tmp_path, topic_id=bytes(15) + b"\7")
    assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert open_log(tmp_path, topic_id=None).topic_id == TOPIC_ID


def test_a_deleted_logs_name_is_free_at_once(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, b"a")
    renamed = Path(log.rename_for_delete())
    assert renamed.name.startswith("topic-0.") and renamed.name.endswith("-delete") and renamed.exists()
    assert not (tmp_path / "topic-0").exists()


def test_the_name_of_a_deleted_log_fits_the_file_system(tmp_path: Path) -> None:
    log = open_log(tmp_path, name="t" * 249 + "-12345")
    put(log, b"a")
    renamed = Path(log.rename_for_delete())
    assert len(renamed.name) == 255 and "-12345." in renamed.name


def test_the_offset_of_a_batch_is_outside_of_its_checksum(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, b"a")
    put(log, b"a")
    first, second = (bytes(data) for _, data in iter_batches(log.read_bytes(0, 1000)))
    assert first[b.CRC :] == second[b.CRC :]
