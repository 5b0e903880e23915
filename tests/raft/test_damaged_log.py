"""A metadata log with one damaged byte is refused. The error names the file and the position; no valid batch
is truncated, and the file is not changed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.log.errors import LogDirFailure
from quorate.raft.storage.snapshots.files import footer_batch, header_batch, snapshot_name
from quorate.raft.types import OffsetEpoch, RaftError
from quorate.records.batch import iter_batches
from tests.raft.nodes import dynamic, metadata, sole
from tests.raft.test_remedies import STATE, lived, refusal

LOG = f"{0:020d}.log"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes three epochs of an only voter, each with a few batches."""
    path = tmp_path_factory.mktemp("written")

    async def life() -> None:
        node = await sole(path)
        for i in range(3):
            await node.commit(b"%d" % i, b"x")
        await node.stop()

    for _ in range(3):
        asyncio.run(life())
    return path


def positions(path: Path) -> list[int]:
    at, found = 0, []
    for header, _ in iter_batches((metadata(path) / LOG).read_bytes()):
        found.append(at)
        at += header.size_bytes
    return found


async def opened(path: Path) -> None:
    node = await sole(path)
    await node.kill()


def batch(number: int) -> Callable[[list[int]], int]:
    return lambda starts: starts[number]


@pytest.mark.parametrize(
    "number", [0, 1, 4, -2, -1], ids=["first", "second", "in the midst", "last but one", "last"]
)
@pytest.mark.parametrize(
    ("byte", "mask"),
    [(b, 0xFF) for b in (0, 3, 4, 6, 7)] + [(13, 0x01), (14, 0x7F), (15, 0x40), (15, 0x02)],
)
def test_offsets_and_epochs_that_no_checksum_covers_are_checked(
    written: Path, tmp_path: Path, number: int, byte: int, mask: int
) -> None:
    path = tmp_path / "copy"
    shutil.copytree(written, path)
    log = metadata(path) / LOG
    raw = bytearray(log.read_bytes())
    raw[positions(path)[number] + byte] ^= mask
    log.write_bytes(raw)
    with pytest.raises((LogDirFailure, RaftError)) as refused:
        asyncio.run(opened(path))
    assert LOG in str(refused.value) or "quorum-state" in str(refused.value)
    assert log.read_bytes() == raw


def test_a_missing_segment_is_refused_by_name(tmp_path: Path) -> None:
    async def life() -> None:
        node = await sole(tmp_path, segment_bytes=400)
        for i in range(20):
            await node.commit(b"%d" % i * 30)
        await node.stop()

    asyncio.run(life())
    segments = sorted(metadata(tmp_path).glob("*.log"))
    assert len(segments) > 4
    before = [s.read_bytes() for s in segments]
    away = segments[2].rename(segments[2].with_suffix(".away"))
    with pytest.raises(LogDirFailure, match=segments[3].name):
        asyncio.run(opened(tmp_path))
    away.rename(segments[2])
    assert [s.read_bytes() for s in segments] == before
    asyncio.run(opened(tmp_path))


# --- a snapshot that is ahead of the log ----------------------------------------------------------


def values_after(path: Path) -> list[bytes]:
    async def main() -> list[bytes]:
        node = await sole(path)
        values = list(node.machine.values)
        await node.stop()
        return values

    return asyncio.run(main())


def put_snapshot(path: Path, snapshot: OffsetEpoch, spoil: bool) -> Path:
    """Writes a snapshot that is ahead of the log, like one that was downloaded just before a crash."""
    data = header_batch(snapshot, 1, 1, 1, dynamic(1)) + footer_batch(snapshot, 3, 1)
    target = metadata(path) / snapshot_name(snapshot)
    target.write_bytes(data[:-1] + b"?" if spoil else data)
    return target


@pytest.mark.parametrize("spoil", [False, True], ids=["of a later epoch than quorum-state", "damaged"])
def test_a_log_is_not_deleted_for_an_invalid_snapshot(tmp_path: Path, spoil: bool) -> None:
    lived(tmp_path)
    snapshot = put_snapshot(tmp_path, OffsetEpoch(9999, 1 if spoil else 9), spoil)
    said = refusal(tmp_path, 1)
    assert str(snapshot) in said
    assert "is restored from a backup" in said
    snapshot.unlink()
    assert values_after(tmp_path) == [b"a", b"b"]


def test_a_log_is_deleted_for_a_valid_snapshot_of_a_known_epoch(tmp_path: Path) -> None:
    lived(tmp_path)
    put_snapshot(tmp_path, OffsetEpoch(9999, 1), False)
    assert values_after(tmp_path) == []


def test_the_greatest_possible_epoch_is_refused_and_the_file_is_named(tmp_path: Path) -> None:
    lived(tmp_path)
    path = metadata(tmp_path) / STATE
    path.write_bytes(path.read_bytes().replace(b'"leaderEpoch":1', b'"leaderEpoch":2147483647'))
    said = refusal(tmp_path, 1)
    assert said.startswith(f"{path}: leaderEpoch 2147483647")
