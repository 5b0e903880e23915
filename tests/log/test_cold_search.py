"""Searches by offset and by timestamp in files that are not in the page cache."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from quorate.log.config import LogConfig
from quorate.log.partition import loader, retention, timestamp_search
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.segment import header_scan, segment
from quorate.protocol.file_region import FileRegion, HasFileno
from quorate.records.errors import CorruptRecordError

from .logs import NOW, open_log, put

PAGE = 4096
ROUNDS = 8


class Pages:
    """A page cache that is empty at first. A read of what it lacks would wait for the disk."""

    def __init__(self) -> None:
        self.cached: set[tuple[int, int]] = set()
        self.missed: list[tuple[int, int]] = []

    @staticmethod
    def _of(fd: int, position: int, length: int) -> set[tuple[int, int]]:
        status = os.fstat(fd)
        end = min(position + length, status.st_size)
        return {(status.st_ino, page) for page in range(position // PAGE, -(-end // PAGE))}

    def resident_bytes(self, fd: int, position: int, length: int) -> int:
        return length if self._of(fd, position, length) <= self.cached else 0

    def read_resident(self, owner: HasFileno, position: int, length: int) -> bytes | None:
        fd = owner.fileno()
        return os_pread(fd, length, position) if self.resident_bytes(fd, position, length) else None

    def load(self, fd: int, position: int, length: int) -> None:
        self.cached |= self._of(fd, position, length)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        self.missed += self._of(fd, position, length) - self.cached
        return os_pread(fd, length, position)


os_pread = os.pread


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Four segments of 60 batches, whose timestamps rise by 10 with each batch."""
    log = open_log(tmp_path, index_interval_bytes=8192)
    for number in range(240):
        if number and not number % 60:
            log.roll(NOW)
        put(log, bytes(3000), timestamp=NOW + 10 * number)
    log.high_watermark = log.log_end_offset
    log.close()
    again = open_log(tmp_path, index_interval_bytes=8192, clean_shutdown=True, recovery_point=240)
    again.high_watermark = 240
    return again


@pytest.mark.parametrize("log_start", [0, 100])
@pytest.mark.parametrize("timestamp", [0, NOW, NOW + 5, NOW + 995, NOW + 1500, NOW + 2390, NOW + 9999, None])
def test_after_reading_ahead_a_search_does_not_wait_for_the_disk(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch, timestamp: int | None, log_start: int
) -> None:
    log.increment_log_start_offset(log_start, "test")
    pages = Pages()
    for module in (segment, header_scan, timestamp_search):
        monkeypatch.setattr(module, "resident_bytes", pages.resident_bytes)
    monkeypatch.setattr(header_scan, "read_resident", pages.read_resident)
    monkeypatch.setattr(os, "pread", pages.pread)
    rounds = 0
    while cold := log.cold_regions_for_timestamp(timestamp):
        rounds += 1
        for region in cold:
            assert isinstance(region, FileRegion)
            pages.load(region.fd_owner.fileno(), region.position, region.length)
    assert rounds <= ROUNDS
    if timestamp is None:
        assert log.offset_of_max_timestamp() == (NOW + 2390, 239, 0)
    else:
        first = max(log_start, -(-(timestamp - NOW) // 10))
        found = log.offset_for_timestamp(timestamp)
        assert found == ((NOW + 10 * first, first, 0) if first < 240 else None)
    assert not pages.missed


def test_a_search_by_offset_reads_its_headers_once(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.read(110, max_bytes=1)  # loads the index
    pages = Pages()
    monkeypatch.setattr(os, "pread", pages.pread)
    assert log.cold_regions(100) == []
    assert log.read(100, max_bytes=1).first_batch_offset == 100
    assert not pages.missed, "the search for cold regions has found the batch without waiting"


def test_what_was_found_is_forgotten_with_the_batches(log: PartitionLog) -> None:
    active = log._log.segments[-1]
    cut = active.find(185)
    assert cut is not None
    assert active.cold_regions(190) == []
    active.truncate_to_position(cut.position, 185)
    assert active.find(190) is None


def test_a_long_search_is_made_in_slices(tmp_path: Path) -> None:
    """The time index has no entry where timestamps do not rise."""
    log = open_log(tmp_path)
    for _ in range(950):
        put(log, b"early", timestamp=NOW)
    put(log, b"late", timestamp=NOW + 10)
    scan = timestamp_search.Scan()
    calls = 1
    while not log.cold_regions_for_timestamp(NOW + 5, scan) and scan.is_long:
        calls += 1
    assert calls == 10
    assert log.offset_for_timestamp(NOW + 5, scan) == (NOW + 10, 950, 0)


def test_a_search_does_not_go_on_in_what_was_written_after_a_truncation(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(300):
        put(log, b"early", timestamp=NOW)
    put(log, b"late", timestamp=NOW + 10)
    scan = timestamp_search.Scan()
    assert log.cold_regions_for_timestamp(NOW + 5, scan) == [] and scan.is_long
    log.truncate_to(50)
    for _ in range(300):
        put(log, b"later", timestamp=NOW + 20)
    assert log.offset_for_timestamp(NOW + 5, scan) == (NOW + 20, 50, 0)


def _remove(path: Path) -> None:
    path.unlink()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def _overwrite(path: Path) -> None:
    path.write_bytes(b"\xff" * path.stat().st_size)


def _shift(path: Path) -> None:
    """Each entry names a place or a time that is not in the log."""
    raw = bytearray(path.read_bytes())
    last = slice(7, None, 8 if path.suffix == ".index" else 12)
    raw[last] = bytes(byte ^ 1 for byte in raw[last])
    path.write_bytes(raw)


@pytest.mark.parametrize("damage", [_remove, _cut, _overwrite, _shift])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_is_rebuilt_in_the_thread_that_reads_ahead(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch, suffix: str, damage: Callable[[Path], None]
) -> None:
    """A rebuild reads all batch headers of a segment: many seconds if it is large."""
    damage(Path(log._log.segments[1].stem + suffix))
    threads: list[int] = []
    rebuild = segment.Segment.rebuild_indexes

    def recording(one: segment.Segment, end: int) -> None:
        threads.append(threading.get_ident())
        rebuild(one, end)

    monkeypatch.setattr(segment.Segment, "rebuild_indexes", recording)
    with ThreadPoolExecutor(1) as pool:
        for search in (log.cold_regions, lambda at: log.cold_regions_for_timestamp(NOW + 10 * at)):
            for _ in range(ROUNDS):
                if not (cold := search(110)):
                    break
                for work in cold:
                    pool.submit(work.read).result()
    assert log.read(110, max_bytes=1).first_batch_offset == 110
    assert log.offset_for_timestamp(NOW + 1100) == (NOW + 1100, 110, 0)
    assert len(threads) == 1 and threads[0] != threading.get_ident()


def test_a_rebuild_does_not_count_for_what_was_truncated_and_written_meanwhile(log: PartitionLog) -> None:
    active = log._log.segments[-1]
    active.unload_indexes()
    _cut(Path(active.stem + ".index"))
    (first,) = log.cold_regions(190)
    put(log, bytes(3000), timestamp=NOW + 2400)
    assert log.log_end_offset == 241
    log.truncate_to(185)
    for number in range(60):
        put(log, bytes(30), timestamp=NOW + 3000 + number)
    first.read()
    for _ in range(ROUNDS):
        for work in log.cold_regions(200):
            work.read()
    assert log.read(200, max_bytes=1).first_batch_offset == 200
    assert log.log_end_offset == 245


def test_a_rebuild_ends_at_the_damage_of_the_log(log: PartitionLog) -> None:
    one = log._log.segments[1]
    _remove(Path(one.stem + ".index"))
    with open(one.log_path, "r+b") as file:
        file.seek(30 * (one.size // 60) + 16)
        file.write(b"\x09")  # the magic
    (work,) = log.cold_regions(70)
    work.read()
    assert log.cold_regions(70) == []
    assert log.read(70, max_bytes=1).first_batch_offset == 70
    with pytest.raises(CorruptRecordError):
        log.read(110, max_bytes=1)


def test_missing_indexes_are_rebuilt_when_a_log_is_opened(log: PartitionLog) -> None:
    """Also those of old segments, which are read much later, on the event loop."""
    removed = [
        Path(log._log.segments[number].stem + suffix) for number, suffix in ((0, ".timeindex"), (1, ".index"))
    ]
    before = [path.read_bytes() for path in removed]
    for path in removed:
        path.unlink()
    log.close()
    open_log(log.dir.parent, index_interval_bytes=8192, clean_shutdown=True, recovery_point=240)
    assert [path.read_bytes() for path in removed] == before


def test_the_first_append_rebuilds_no_index(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.close()
    monkeypatch.setattr(loader, "_SLOW_REBUILD_BYTES", 100_000)
    _cut(Path(log._log.segments[-1].stem + ".timeindex"))
    again = open_log(log.dir.parent, index_interval_bytes=8192, clean_shutdown=True, recovery_point=240)
    monkeypatch.setattr(segment.Segment, "rebuild_indexes", None)
    assert put(again, b"new", timestamp=NOW + 9000).first_offset == 240


def test_retention_rebuilds_a_time_index_in_a_thread(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    _cut(Path(log._log.segments[0].stem + ".timeindex"))
    log.update_config(LogConfig(retention_ms=1000))
    rounds = 0
    while cold := retention.cold_regions(log.segments, log.config, NOW + 2000):
        rounds += 1
        for work in cold:
            work.read()
    monkeypatch.setattr(segment.Segment, "rebuild_indexes", None)
    assert (rounds, log.delete_old_segments(NOW + 2000)) == (1, 1)
