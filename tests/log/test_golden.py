"""Directories that Apache Kafka 4.1.1 and 4.4.0 have written: they are loaded completely, and
written back with the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.log.checkpoints import read_offsets
from quorate.log.config import LogConfig
from quorate.log.directories.manager import LogManager
from quorate.log.files import OpenFiles
from quorate.log.partition.producer_snapshots import decode_snapshot, encode_snapshot
from quorate.records.batch import (
    Compression,
    build_batch,
    decode_records,
    iter_batches,
    parse_header,
    verify_crc,
)

from .logs import NOW

Copy = Callable[[str], Path]
EXPECTED = sorted(
    [f"__consumer_offsets-{n}" for n in range(3)]
    + [f"__transaction_state-{n}" for n in range(2)]
    + [f"plain-{n}" for n in range(3)]
    + ["compact-0"]
)


def loaded(directory: Path) -> LogManager:
    logs = LogManager([directory], LogConfig(retention_ms=-1), OpenFiles(8), now_ms=lambda: NOW)
    assert logs.load() == []
    return logs


def batches_of(directory: Path) -> list[bytes]:
    return [
        bytes(data)
        for path in sorted(directory.glob("*-*/*.log"))
        for _, data in iter_batches(path.read_bytes())
    ]


@pytest.mark.parametrize("state", ["data", "running"])
def test_every_partition_is_loaded_with_its_records(golden: Copy, state: str) -> None:
    directory = golden(state)
    assert (directory / ".kafka_cleanshutdown").exists() == (state == "data")
    watermarks = read_offsets(str(directory / "replication-offset-checkpoint"))
    logs = loaded(directory)
    assert sorted(log.name for log in logs.all_logs()) == EXPECTED
    for log in logs.all_logs():
        on_disk = b"".join(path.read_bytes() for path in sorted(log.dir.glob("*.log")))
        assert log.read_bytes(log.log_start_offset, 1 << 24) == on_disk
        assert log.high_watermark == watermarks[log.topic, log.partition]
        last = [header for header, _ in iter_batches(on_disk)][-1:]
        assert log.log_end_offset == (last[0].next_offset if last else 0)
        assert log.topic_id is not None and (log.latest_epoch is None) == (not on_disk)


@pytest.mark.parametrize("state", ["data", "running"])
def test_transactions_are_loaded(golden: Copy, state: str) -> None:
    logs = loaded(golden(state))
    log = logs.get("plain", 0)
    assert log is not None
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == log.log_end_offset
    aborted = log.aborted_transactions(0, log.log_end_offset)
    assert len(aborted) == 1
    producer, first = aborted[0]
    header = parse_header(log.read_bytes(first, 1))
    assert (header.producer_id, header.base_offset, header.is_transactional) == (producer, first, True)


def test_the_same_producers_are_loaded_after_a_clean_stop_and_after_a_kill(golden: Copy) -> None:
    def producers(state: str) -> dict[str, list[tuple[int, int, int]]]:
        found = {}
        for log in loaded(golden(state)).all_logs():
            found[log.name] = sorted(
                (p.producer_id, p.producer_epoch, p.last_sequence) for p in log.active_producers()
            )
        return found

    stopped, killed = producers("data"), producers("running")
    assert stopped == killed and any(stopped.values())


def test_snapshots_are_written_as_they_were_read(golden: Copy) -> None:
    paths = [p for p in golden("data").glob("*-*/*.snapshot") if p.stat().st_size > 10]
    assert paths
    for path in paths:
        data = path.read_bytes()
        assert encode_snapshot(decode_snapshot(data)) == data


def test_a_directory_that_we_close_has_kafkas_files(golden: Copy) -> None:
    directory = golden("running")
    logs = loaded(directory)
    logs.close(broker_epoch=5)
    twin = golden("data")
    for log_dir in EXPECTED:
        for suffix in (".index", ".timeindex", ".txnindex"):
            ours = {p.name: p.read_bytes() for p in (directory / log_dir).glob(f"*{suffix}")}
            theirs = {p.name: p.read_bytes() for p in (twin / log_dir).glob(f"*{suffix}")}
            assert ours == theirs, (log_dir, suffix)
        names = ["partition.metadata"]
        if (directory / log_dir / "00000000000000000000.log").stat().st_size:
            names.append("leader-epoch-checkpoint")  # the epoch of an empty log is noted by its next leader
        for name in names:
            assert (directory / log_dir / name).read_bytes() == (twin / log_dir / name).read_bytes()


def test_every_batch_is_valid_and_all_codecs_are_there(golden: Copy) -> None:
    batches = batches_of(golden("data"))
    assert all(verify_crc(data) for data in batches)
    assert {parse_header(data).compression for data in batches} == set(Compression)
    assert all(len(decode_records(data)) == parse_header(data).count for data in batches)


def test_uncompressed_batches_are_built_again_byte_by_byte(golden: Copy) -> None:
    count = 0
    for data in batches_of(golden("data")):
        header = parse_header(data)
        if header.compression is Compression.NONE:
            again = build_batch(
                decode_records(data),
                base_offset=header.base_offset,
                leader_epoch=header.leader_epoch,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                is_control=header.is_control,
                is_transactional=header.is_transactional,
            )
            assert again == data
            count += 1
    assert count > 5
