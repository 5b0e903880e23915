"""Checkpoints, the epoch cache, partition.metadata, the clean-shutdown marker, open files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.config.definitions import ConfigError
from quorate.config.topic_defs import TOPIC_CONFIGS
from quorate.log import checkpoints
from quorate.log.config import LogConfig
from quorate.log.directories import clean_shutdown
from quorate.log.errors import CheckpointError
from quorate.log.files import OpenFiles, write_atomically
from quorate.log.partition.epoch_cache import EpochCache
from quorate.log.partition.partition_metadata import read_topic_id, write_topic_id
from quorate.records.batch import TimestampType
from quorate.records.compression import Compression

# --- checkpoints ----------------------------------------------------------------------------------


def test_an_offset_checkpoint_has_kafkas_bytes_and_is_read_back(tmp_path: Path) -> None:
    path = str(tmp_path / "c")
    offsets = {("a", 0): 5, ("b.c-d", 12): 0}
    checkpoints.write_offsets(path, offsets)
    assert Path(path).read_bytes() == b"0\n2\na 0 5\nb.c-d 12 0\n"
    assert checkpoints.read_offsets(path) == offsets
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_an_epoch_checkpoint_has_kafkas_bytes_and_is_read_back(tmp_path: Path) -> None:
    path = str(tmp_path / "c")
    checkpoints.write_epochs(path, [(0, 0), (3, 17)])
    assert Path(path).read_bytes() == b"0\n2\n0 0\n3 17\n"
    assert checkpoints.read_epochs(path) == [(0, 0), (3, 17)]


def test_a_large_checkpoint_is_read_back(tmp_path: Path) -> None:
    path = str(tmp_path / "c")
    offsets = {(f"some-topic-name-{i}", i % 7): i * 1000 for i in range(10_000)}
    checkpoints.write_offsets(path, offsets)
    assert checkpoints.read_offsets(path) == offsets


@pytest.mark.parametrize("content", [None, b""])
def test_a_missing_or_empty_checkpoint_has_no_entries(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "c").write_bytes(content)
    assert checkpoints.read_offsets(str(tmp_path / "c")) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n",
        b"x\n0\n",
        b"0\n",
        b"0\nx\n",
        b"0\n2\na 0 5\n",
        b"0\n0\na 0 5\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 5 6\n",
        b"0\n1\na b 5\n",
        b"0\n1\na 0 c\n",
        b"\xff\xfe",
    ],
)
def test_a_checkpoint_that_does_not_follow_its_format_is_refused_by_name(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(CheckpointError, match=str(tmp_path / "c")):
        checkpoints.read_offsets(str(tmp_path / "c"))


def test_an_atomic_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c"
    path.write_bytes(b"old")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("quorate.log.files.write_all", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(str(path), b"new")
    assert path.read_bytes() == b"old"


# --- epochs ---------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=30))
def test_epochs_and_their_starts_always_ascend(assignments: list[tuple[int, int]]) -> None:
    cache = EpochCache()
    for epoch, start in assignments:
        before = cache.entries()
        changed = cache.assign(epoch, start)
        entries = cache.entries()
        assert changed == (entries != before)
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(entries))
        assert entries[-1][0] == epoch


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (0, [(1, 0), (2, 10), (5, 20)]),
        (5, [(1, 5), (2, 10), (5, 20)]),
        (10, [(2, 10), (5, 20)]),
        (15, [(2, 15), (5, 20)]),
        (99, [(5, 99)]),
    ],
)
def test_truncation_from_the_start(start: int, expected: list[tuple[int, int]]) -> None:
    cache = EpochCache([(1, 0), (2, 10), (5, 20)])
    cache.truncate_from_start(start)
    assert cache.entries() == expected and cache.dirty == (start > 0)


@pytest.mark.parametrize(("end", "kept"), [(0, 0), (1, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_truncation_from_the_end(end: int, kept: int) -> None:
    cache = EpochCache([(1, 0), (2, 10), (5, 20)])
    cache.truncate_from_end(end)
    assert len(cache) == kept and cache.dirty == (kept < 3)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, (-1, -1)), (0, (0, 5)), (1, (1, 10)), (2, (2, 20)), (3, (2, 20)), (5, (5, 33)), (6, (-1, -1))],
)
def test_the_end_of_an_epoch(epoch: int, expected: tuple[int, int]) -> None:
    assert EpochCache([(1, 5), (2, 10), (5, 20)]).end_offset_for(epoch, 33) == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda cache: cache.assign(3, 15),
        lambda cache: cache.correct(2, 30),
        lambda cache: cache.truncate_from_end(15),
        lambda cache: cache.truncate_from_start(12),
        lambda cache: cache.clear(),
    ],
    ids=["assign", "correct", "truncate from the end", "truncate from the start", "clear"],
)
def test_a_change_leaves_the_lists_alone_that_a_flush_reads_in_its_thread(
    change: Callable[[EpochCache], object],
) -> None:
    entries = [(1, 0), (2, 10), (5, 20)]
    cache = EpochCache(entries)
    read_by_the_flush = cache._columns
    change(cache)
    assert list(zip(*read_by_the_flush, strict=True)) == entries != cache.entries()


# --- partition.metadata and the marker ------------------------------------------------------------


def test_partition_metadata_is_read_back(tmp_path: Path) -> None:
    path = str(tmp_path / "partition.metadata")
    assert read_topic_id(path) is None
    write_topic_id(path, bytes(range(16)))
    assert Path(path).read_bytes() == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert read_topic_id(path) == bytes(range(16))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 0",
        b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: 0\ntopic_id: x",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
    ],
)
def test_partition_metadata_that_does_not_follow_its_format_is_refused_by_name(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "partition.metadata"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=str(path)):
        read_topic_id(str(path))


@pytest.mark.parametrize(
    ("content", "epoch"),
    [(None, None), (b"", -1), (b'{"version":0,"brokerEpoch":42}', 42), (b"{", -1), (b'{"version":0}', -1)],
)
def test_the_clean_shutdown_marker(tmp_path: Path, content: bytes | None, epoch: int | None) -> None:
    if content is not None:
        (tmp_path / ".kafka_cleanshutdown").write_bytes(content)
    assert clean_shutdown.read(str(tmp_path)) == epoch
    clean_shutdown.remove(str(tmp_path))
    assert clean_shutdown.read(str(tmp_path)) is None
    clean_shutdown.write(str(tmp_path), 7)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":7}'


# --- open files -----------------------------------------------------------------------------------


def test_the_cache_keeps_to_its_limit_and_drops_the_least_used(tmp_path: Path) -> None:
    files = OpenFiles(2)
    paths = [str(tmp_path / name) for name in "abc"]
    a, b = files.get(paths[0], create=True), files.get(paths[1], create=True)
    assert files.get(paths[0]) is a
    files.get(paths[2], create=True)
    assert len(files) == 2 and paths[1] not in files and paths[0] in files
    assert files.get(paths[1]) is b  # still in use


def test_files_in_use_take_their_descriptors_from_the_cache(tmp_path: Path) -> None:
    files = OpenFiles(64)
    paths = [str(tmp_path / str(i)) for i in range(200)]
    before = len(list(Path("/proc/self/fd").iterdir()))
    used = [files.get(path, create=True) for path in paths[:40]]
    for path in paths[100:]:
        files.get(path, create=True)
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 64 and not files.is_exhausted
    used += [files.get(path, create=True) for path in paths[40:100]]
    assert files.is_exhausted
    used.clear()
    assert not files.is_exhausted


def test_an_evicted_file_that_is_still_in_use_is_not_opened_again(tmp_path: Path) -> None:
    files = OpenFiles(32)
    paths = [str(tmp_path / str(i)) for i in range(32)]
    used = [files.get(path, create=True) for path in paths]
    before = len(list(Path("/proc/self/fd").iterdir()))
    for i in range(20):
        files.get(str(tmp_path / f"other{i}"), create=True)
    assert paths[0] not in files
    assert [files.get(path) for path in paths] == used
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 16


def test_a_forgotten_file_that_is_still_in_use_is_opened_again(tmp_path: Path) -> None:
    files, path = OpenFiles(8), str(tmp_path / "a")
    for forget in (files.forget, lambda _: files.forget_under(str(tmp_path)), lambda _: files.close()):
        used = files.get(path, create=True)
        forget(path)
        Path(path).rename(path + ".deleted")
        assert files.get(path, create=True) is not used
        assert os.fstat(used.fileno()).st_ino != os.fstat(files.get(path).fileno()).st_ino


def test_forgetting_a_directory_forgets_only_its_files(tmp_path: Path) -> None:
    files = OpenFiles(8)
    (tmp_path / "d").mkdir()
    (tmp_path / "d2").mkdir()
    for name in ("d/x", "d/y", "d2/x"):
        files.get(str(tmp_path / name), create=True)
    files.forget_under(str(tmp_path / "d"))
    assert len(files) == 1 and str(tmp_path / "d2/x") in files


# --- configuration --------------------------------------------------------------------------------


def test_topic_configs_by_kafkas_names() -> None:
    config = LogConfig().with_overrides(
        {
            "retention.ms": "5",
            "cleanup.policy": "compact, delete",
            "compression.type": "lz4",
            "message.timestamp.type": "LogAppendTime",
            "unclean.leader.election.enable": "true",
            "segment.bytes": 1048576,
            "follower.replication.throttled.replicas": "*",
            "min.cleanable.dirty.ratio": "0.3",
        }
    )
    assert (config.retention_ms, config.deletes, config.compacts, config.segment_bytes) == (
        5,
        True,
        True,
        1048576,
    )
    assert (
        config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        and config.unclean_leader_election_enable
    )
    assert (
        config.target_compression(Compression.GZIP) is Compression.LZ4
        and config.min_cleanable_dirty_ratio == 0.3
    )


@pytest.mark.parametrize("around", [" {} ", "\t{}", "{}\n", "\x1f{}", "{}\u00a0", "\x85{}"])
@pytest.mark.parametrize(
    "value", ["LogAppendTime", "gzip", "1", "+1", "-1", "TRUE", "0.5", "compact, delete", "1048576"]
)
def test_what_is_accepted_for_a_topic_is_read(value: str, around: str) -> None:
    """A broker that could not read a stored value would end, and end again at each start."""
    text = around.format(value)
    for name, definition in TOPIC_CONFIGS.items():
        try:
            definition.validate(text)
        except ConfigError:
            continue
        LogConfig().with_overrides({name: text}).target_compression(Compression.NONE)


@pytest.mark.parametrize(
    ("name", "value"), [("retention.ms", "x"), ("message.timestamp.type", "Never"), ("preallocate", "maybe")]
)
def test_a_wrong_topic_config_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        LogConfig().with_overrides({name: value})
