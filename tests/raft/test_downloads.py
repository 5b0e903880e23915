"""The partial file of a snapshot download: resumption, rejected data, and cleanup."""

from __future__ import annotations

import asyncio
import os
from collections import namedtuple
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from quorate.raft.core.effects import SnapshotChunk, SnapshotStart
from quorate.raft.core.events import Event, SnapshotOpened, SnapshotRejected, SnapshotWritten
from quorate.raft.storage.snapshots.download import SnapshotDownloads
from quorate.raft.storage.snapshots.files import read_batches, snapshot_name
from quorate.raft.storage.snapshots.partial import fetched_parts, remove_useless_parts
from quorate.raft.types import LeaderAndEpoch, OffsetEpoch
from tests.raft.test_verifying import ID, WHOLE, batches, fed

DATA = b"".join(WHOLE)
LEADER = LeaderAndEpoch(1, 5)
NEXT_LEADER = LeaderAndEpoch(2, 6)


class Downloading:
    """A driver that only performs downloads."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events: list[Event] = []
        self.installed: list[OffsetEpoch] = []
        self.failures: list[BaseException] = []
        self.downloads = SnapshotDownloads(
            directory, self.events.append, self.installed.append, self.failures.append
        )

    async def start(
        self, leader: LeaderAndEpoch = LEADER, snapshot: OffsetEpoch = ID, fresh: bool = False
    ) -> SnapshotOpened:
        self.downloads.add(SnapshotStart(snapshot, leader, fresh))
        await self.idle()
        opened = self.events.pop()
        assert isinstance(opened, SnapshotOpened)
        return opened

    async def take(self, start: int, end: int, data: bytes = DATA, size: int | None = None) -> list[Event]:
        """Delivers the bytes [start, end). Returns the event that reports the result."""
        size = len(data) if size is None else size
        self.downloads.add(SnapshotChunk(ID, start, memoryview(data)[start:end], end == size, size))
        await self.idle()
        events, self.events[:] = list(self.events), []
        return events

    async def idle(self) -> None:
        while self.downloads._task is not None:
            await asyncio.wait([self.downloads._task])

    def names(self) -> list[str]:
        return sorted(p.name for p in self.directory.iterdir())


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


async def broken_off(directory: Path, at: int) -> None:
    """Downloads the given number of bytes, then ends the process."""
    before = Downloading(directory)
    assert (await before.start()).position == 0
    if at:
        assert isinstance((await before.take(0, at))[0], SnapshotWritten)
    await before.downloads.close()


def test_a_snapshot_in_parts_is_renamed_when_it_is_complete(tmp_path: Path) -> None:
    async def main() -> None:
        d = Downloading(tmp_path)
        assert (await d.start()).position == 0
        for at in range(0, len(DATA) - 50, 50):
            [event] = await d.take(at, at + 50)
            assert isinstance(event, SnapshotWritten)
            assert event.position == at + 50
            assert d.names()[0].endswith("-from-1-5.checkpoint.part")
        assert await d.take(len(DATA) - len(DATA) % 50, len(DATA)) == []
        assert d.installed == [ID]
        assert d.names() == [snapshot_name(ID)]
        assert [bytes(v) for b in read_batches(tmp_path / snapshot_name(ID), 3) for v in b.values][:2] == [
            b"a",
            b"b",
        ]
        await d.downloads.close()
        assert not d.failures

    run(main())


@pytest.mark.parametrize("at", [0, 30, len(WHOLE[0]), len(WHOLE[0]) + 20, len(DATA) - 1])
def test_after_a_restart_a_download_continues_after_the_last_complete_batch(tmp_path: Path, at: int) -> None:
    async def main() -> None:
        await broken_off(tmp_path, at)
        d = Downloading(tmp_path)
        opened = await d.start()
        ends = [sum(map(len, WHOLE[:i])) for i in range(len(WHOLE))]
        assert opened.position == max(e for e in ends if e <= at)
        assert opened.prefix_digest is None, "the same leader in the same epoch has the same file"
        assert await d.take(opened.position, len(DATA)) == []
        assert (tmp_path / snapshot_name(ID)).read_bytes() == DATA
        await d.downloads.close()

    run(main())


def test_a_torn_batch_of_a_download_is_dropped(tmp_path: Path) -> None:
    async def main() -> None:
        await broken_off(tmp_path, len(DATA) - 1)
        [(_, _, path)] = fetched_parts(tmp_path)
        start = len(WHOLE[0]) + len(WHOLE[1])
        with path.open("r+b") as file:  # a block in the middle never arrived
            file.seek(start + 100)
            file.write(bytes(50))
        d = Downloading(tmp_path)
        assert (await d.start()).position == start
        assert await d.take(start, len(DATA)) == []
        assert (tmp_path / snapshot_name(ID)).read_bytes() == DATA
        await d.downloads.close()

    run(main())


@pytest.mark.parametrize("restarted", [False, True])
def test_another_leader_has_to_confirm_the_bytes_of_an_incomplete_download(
    tmp_path: Path, restarted: bool
) -> None:
    async def main() -> None:
        at = len(WHOLE[0]) + 20
        d = Downloading(tmp_path)
        await d.start()
        await d.take(0, at)
        if restarted:
            await d.downloads.close()
            d = Downloading(tmp_path)
            at = len(WHOLE[0])
        opened = await d.start(NEXT_LEADER)
        assert (opened.position, opened.prefix_digest) == (at, fed(WHOLE[0]).digest())
        opened = await d.start(NEXT_LEADER, fresh=True)
        assert (opened.position, opened.prefix_digest) == (0, None)
        await d.take(0, 60)
        await d.downloads.close()
        assert [n.partition("-from-")[2] for n in d.names()] == ["2-6.checkpoint.part"]

    run(main())


def test_the_bytes_must_be_confirmed_even_by_a_leader_that_was_asked_before(tmp_path: Path) -> None:
    """For example, a pre-vote between the request and its response: afterwards the replica follows the same
    leader in the same epoch again."""

    async def main() -> None:
        at = len(WHOLE[0])
        d = Downloading(tmp_path)
        await d.start()
        await d.take(0, at)
        for _ in range(2):
            assert (await d.start(NEXT_LEADER)).prefix_digest is not None
        assert d.names()[0].endswith("-from-1-5.checkpoint.part")
        await d.take(at, at + 50)
        assert d.names()[0].endswith("-from-2-6.checkpoint.part")
        assert (await d.start(NEXT_LEADER)).prefix_digest is None
        await d.downloads.close()

    run(main())


def test_the_download_of_another_snapshot_deletes_the_incomplete_one(tmp_path: Path) -> None:
    async def main() -> None:
        d = Downloading(tmp_path)
        await d.start()
        await d.take(0, 100)
        assert (await d.start(snapshot=OffsetEpoch(50, 3))).position == 0
        assert [n[:20] for n in d.names()] == [f"{50:020d}"]
        assert await d.take(100, 200) == [], "what was still on its way is dropped"
        await d.downloads.close()

    run(main())


def test_a_wrong_checksum_is_refused_at_once_and_nothing_is_left(tmp_path: Path) -> None:
    async def main() -> None:
        bad = bytearray(DATA)
        bad[len(WHOLE[0]) + 70] ^= 1
        d = Downloading(tmp_path)
        await d.start()
        [event] = await d.take(0, len(DATA) - 200, bytes(bad))
        assert isinstance(event, SnapshotRejected)
        assert "wrong checksum" in event.reason
        assert d.names() == []
        assert (await d.start()).position == 0
        assert await d.take(0, len(DATA)) == []
        assert d.installed == [ID]
        await d.downloads.close()

    run(main())


def test_parts_of_two_different_snapshots_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        other = b"".join(batches([b"b", b"a"], [b"c" * 300], [b"d"]))
        at = len(WHOLE[0]) + 65  # inside of a batch that differs
        d = Downloading(tmp_path)
        await d.start()
        await d.take(0, at)
        [event] = await d.take(at, len(other), other)
        assert isinstance(event, SnapshotRejected)
        assert d.names() == []
        await d.downloads.close()

    run(main())


def test_a_snapshot_without_its_footer_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        cut = DATA[: -len(WHOLE[-1])]
        d = Downloading(tmp_path)
        await d.start()
        [event] = await d.take(0, len(cut), cut)
        assert isinstance(event, SnapshotRejected)
        assert event.reason == "it ends without a footer"
        assert (d.installed, d.names()) == ([], [])
        await d.downloads.close()

    run(main())


def test_a_snapshot_that_does_not_fit_on_the_disk_is_refused_before_it_fills_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        Disk = namedtuple("Disk", "f_bavail f_frsize")
        monkeypatch.setattr(os, "statvfs", lambda path: Disk(10, 4096))
        d = Downloading(tmp_path)
        await d.start()
        [event] = await d.take(0, 100, size=40_961)
        assert isinstance(event, SnapshotRejected)
        assert event.reason == "its 40961 bytes do not fit: 40960 are free"
        assert d.names() == []
        await d.downloads.close()

    run(main())


def test_a_failing_disk_is_reported_and_nothing_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        d = Downloading(tmp_path)
        await d.start()

        def fail(fd: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fsync", fail)
        assert await d.take(0, len(DATA)) == []
        assert [type(f) for f in d.failures] == [OSError]
        assert d.installed == []

    run(main())


def test_parts_that_the_log_has_overtaken_are_removed(tmp_path: Path) -> None:
    for offset in (10, 20, 30):
        (tmp_path / f"{offset:020d}-{3:010d}-from-1-5.checkpoint.part").write_bytes(b"")
    remove_useless_parts(tmp_path, 15)
    assert [s.offset for s, _, _ in fetched_parts(tmp_path)] == [30], "one is enough"
    remove_useless_parts(tmp_path, 30)
    assert fetched_parts(tmp_path) == []
