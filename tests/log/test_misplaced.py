"""Bytes that no checksum covers: the base offset of a batch is checked against its position, and the end of
a log against its high watermark."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from quorate.log.config import LogConfig
from quorate.log.directories.manager import LogManager
from quorate.log.errors import LogDirFailure
from quorate.log.files import OpenFiles
from quorate.log.partition.partition_log import PartitionLog
from quorate.records.batch import iter_batches
from quorate.records.errors import CorruptRecordError

from .logs import NOW, SEGMENT, TOPIC_ID, open_log, put


def reopened(log: PartitionLog, **options: int) -> PartitionLog:
    return PartitionLog.open(
        log.dir, log.config, files=OpenFiles(8), now_ms=NOW, clean_shutdown=True, **options
    )


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0xFF
    path.write_bytes(raw)


@pytest.mark.parametrize("byte", range(8))
@pytest.mark.parametrize("batch", [0, 2, 3])
def test_a_lookup_that_finds_a_batch_with_a_wrong_base_offset_fails(
    tmp_path: Path, batch: int, byte: int
) -> None:
    """Without an error its records would be skipped, or a reader would wait for them forever."""
    log = open_log(tmp_path, index_interval_bytes=50)
    for i in range(6):
        put(log, b"%d" % i, b"x")
    position = log.segments[0].find(batch * 2).position
    log.close()
    flip(log.dir / f"{SEGMENT}.log", position + byte)
    again = reopened(log)
    with pytest.raises(CorruptRecordError):
        again.read_bytes(batch * 2, 1 << 20)
    assert batch == 0 or again.read_bytes(0, 1)


@pytest.mark.parametrize("byte", range(8))
def test_the_end_of_a_log_is_not_taken_from_a_batch_with_a_wrong_base_offset(
    tmp_path: Path, byte: int
) -> None:
    log = open_log(tmp_path)
    for i in range(5):
        put(log, b"%d" % i, b"x")
    position = log.segments[0].find(8).position
    log.close()
    flip(log.dir / f"{SEGMENT}.log", position + byte)
    try:
        assert reopened(log, recovery_point=10).log_end_offset == 8  # cut, as an end that is not whole
    except LogDirFailure as e:
        assert f"{SEGMENT}.log" in str(e)


@pytest.mark.parametrize(
    ("batch", "byte"),
    [(b, i) for b in (2, 4) for i in (0, 3, 6, 8, 16) if (b, i) not in ((4, 6), (4, 0), (4, 3))] + [(2, 11)],
)
def test_a_cleanly_closed_log_is_not_truncated_at_a_damaged_header(
    tmp_path: Path, batch: int, byte: int
) -> None:
    """Recovery after a kill may truncate the log there, as in Kafka. A log that was closed cleanly was
    complete."""
    log = open_log(tmp_path)
    for i in range(5):
        put(log, b"%d" % i, b"x")
    position = log.segments[0].find(2 * batch).position
    log.close()
    flip(path := log.dir / f"{SEGMENT}.log", position + byte)
    before = path.read_bytes()
    with pytest.raises(LogDirFailure, match=f"{SEGMENT}.log"):
        reopened(log, recovery_point=10)
    assert path.read_bytes() == before


def test_a_damaged_batch_does_not_cause_a_rebuild_of_the_indexes_at_each_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quorate.log.segment.segment import Segment

    log = open_log(tmp_path, index_interval_bytes=50)
    for i in range(20):
        put(log, b"%d" % i * 20)
    position = log.segments[0].find(15).position
    log.close()
    flip(log.dir / f"{SEGMENT}.log", position + 16)  # the magic byte
    again = reopened(log)
    rebuilt: list[int] = []
    original = Segment.rebuild_indexes
    monkeypatch.setattr(
        Segment, "rebuild_indexes", lambda self, end: rebuilt.append(end) or original(self, end)
    )
    for _ in range(5):
        with pytest.raises(CorruptRecordError):
            again.read_bytes(15, 1 << 20)
    assert len(rebuilt) <= 1


def test_the_records_after_a_damaged_batch_stay_readable(tmp_path: Path) -> None:
    """This holds while the log is open and after a clean stop, which would otherwise save indexes that end
    there."""
    log = open_log(tmp_path, index_interval_bytes=300)
    for i in range(60):
        put(log, bytes(100), timestamp=NOW + i)
    log.roll(NOW)
    put(log, b"end", timestamp=NOW + 60)
    log.close()
    log = reopened(log, recovery_point=61)
    segment = log.segments[0]
    flip(Path(segment.log_path), segment.find(20).position + 16)  # the magic byte
    with pytest.raises(CorruptRecordError):
        log.read_bytes(20, 100)
    assert next(iter_batches(log.read_bytes(45, 100)))[0].base_offset == 45
    assert log.offset_for_timestamp(NOW + 45) == (NOW + 45, 45, 0)
    assert segment.largest_timestamp() == NOW + 59
    log.close()
    log = reopened(log, recovery_point=61)
    assert log.log_end_offset == 61
    assert next(iter_batches(log.read_bytes(45, 100)))[0].base_offset == 45


def test_a_closed_log_opens_after_a_damaged_batch_was_read(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=300)
    for i in range(60):
        put(log, bytes(100), timestamp=NOW + i)
    log.close()
    log = reopened(log, recovery_point=60)
    flip(Path(log.segments[0].log_path), log.segments[0].find(20).position + 16)
    with pytest.raises(CorruptRecordError):
        log.read_bytes(20, 100)
    put(log, b"one more")
    log.close()
    assert reopened(log, recovery_point=61).log_end_offset == 61


@pytest.mark.parametrize("left", [0, 0.5])
def test_the_number_of_lost_records_is_logged_if_a_log_ends_before_its_high_watermark(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, left: float
) -> None:
    directory = tmp_path / "d"
    directory.mkdir()

    def manager() -> LogManager:
        return LogManager([directory], LogConfig(), OpenFiles(8), now_ms=lambda: NOW)

    logs = manager()
    logs.load()
    log = logs.get_or_create("t", 0, TOPIC_ID)
    for _ in range(10):
        put(log, b"a", b"b")
    log.high_watermark = 20
    logs.close()
    path = directory / "t-0" / f"{SEGMENT}.log"
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * left))
    again = manager()
    assert again.load() == []
    end = again.get("t", 0).log_end_offset  # type: ignore[union-attr]
    assert end == int(20 * left)
    lost = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(lost) == 1 and str(directory / "t-0") in lost[0] and f"{20 - end} record" in lost[0]
