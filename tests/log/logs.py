"""Helpers of the tests of logs: logs in a temporary directory, and their contents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quorate.log.config import LogConfig
from quorate.log.directories.manager import LogManager
from quorate.log.files import OpenFiles
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.partition.results import AppendInfo
from quorate.records.batch import build_batch, decode_records, iter_batches, verify_crc

NOW = 1_700_000_000_000
SEGMENT = "00000000000000000000"
"""The stem of the first segment's files."""
TOPIC_ID = bytes(range(16))


def open_log(
    directory: Path, files: OpenFiles | None = None, *, name: str = "topic-0", **options: Any
) -> PartitionLog:
    config = {key: options.pop(key) for key in list(options) if key in LogConfig.__slots__}
    options.setdefault("now_ms", NOW)
    options.setdefault("topic_id", TOPIC_ID)
    return PartitionLog.open(
        directory / name, LogConfig(**config), files=OpenFiles(64) if files is None else files, **options
    )


def put(
    log: PartitionLog, *values: bytes, epoch: int = 0, timestamp: int = NOW, now_ms: int = NOW, **options: Any
) -> AppendInfo:
    """Appends one batch as a client would."""
    return log.append_as_leader(
        build_batch([(b"k", v, [], timestamp) for v in values], **options), epoch, now_ms
    )


def contents(
    log: PartitionLog, *, max_bytes: int = 1 << 20, upper_offset: int | None = None
) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record from the log start on, read as a consumer would."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while True:
        data = log.read_bytes(offset, max_bytes, upper_offset=upper_offset)
        if not data:
            return found
        for header, batch in iter_batches(data):
            assert verify_crc(batch)
            found += [(r.offset, r.value) for r in decode_records(batch) if r.offset >= offset]
            offset = header.next_offset


def files_of(log: PartitionLog) -> set[str]:
    return {path.name for path in log.dir.iterdir()}


DIRECTORY_IDS = [bytes([n]) * 16 for n in (101, 102, 103)]


def manager(*dirs: Path, now_ms: int = NOW, files: OpenFiles | None = None, **config: Any) -> LogManager:
    """A log manager of these directories, which are created."""
    for directory in dirs:
        directory.mkdir(exist_ok=True)
    return LogManager(
        list(dirs),
        LogConfig(**config),
        OpenFiles(16) if files is None else files,
        now_ms=lambda: now_ms,
        directory_ids=dict(zip(dirs, DIRECTORY_IDS, strict=False)),
    )


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def all_files(directory: Path) -> dict[str, bytes]:
    """The content of each file under a directory, by its relative path."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


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
    """The contents of a log of `filled` up to offset `n`."""
    return [(i, b"%d" % (i // 2) * 10 if i % 2 == 0 else b"x") for i in range(n)]
