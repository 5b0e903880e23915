"""A large snapshot of the state machine is encoded in slices between turns of the event loop, and written in
a thread."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.raft.storage.snapshots import writer as snapshot_writing
from quorate.raft.storage.snapshots.files import SnapshotWriter
from quorate.raft.storage.snapshots.writer import write_snapshot
from quorate.raft.types import OffsetEpoch

ID = OffsetEpoch(40, 3)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_writing, "SLICE_S", 0.0)
    monkeypatch.setattr(snapshot_writing, "WRITE_BYTES", 1000)


class Parts:
    """Encodes a hundred parts on demand, and records which ones."""

    def __init__(self, count: int = 100) -> None:
        self.made = 0
        self.count = count

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(self.count):
            self.made += 1
            yield b"%02d" % (self.made % 100) * 50


def test_the_loop_runs_after_each_part_and_the_thread_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()
    for name in ("pwritev", "fsync"):
        real = getattr(os, name)

        def noting(*args: object, real: object = real) -> object:
            threads.add(threading.get_ident())
            return real(*args)  # type: ignore[operator]

        monkeypatch.setattr(os, name, noting)

    async def main() -> None:
        parts = Parts()
        writing = asyncio.get_running_loop().create_task(
            write_snapshot(SnapshotWriter(tmp_path, ID), iter(parts))
        )
        while not writing.done():
            before = parts.made
            await asyncio.sleep(0)
            assert parts.made - before <= 1
        await writing

    asyncio.run(main())
    [path] = tmp_path.iterdir()
    assert path.read_bytes() == b"".join(Parts())
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("how", ["cancelled", "bad state", "full disk"])
def test_an_abandoned_snapshot_file_is_deleted(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> Iterator[bytes]:
        yield from Parts(30)
        raise ValueError("cannot be encoded")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    async def main() -> None:
        writer = SnapshotWriter(tmp_path, ID)
        parts = failing() if how == "bad state" else iter(Parts())
        writing = asyncio.get_running_loop().create_task(write_snapshot(writer, parts))
        if how == "full disk":
            monkeypatch.setattr(os, "fsync", full)
        while writer.size < 2000 and not writing.done():
            await asyncio.sleep(0)
        if how == "cancelled":
            writing.cancel()
        with pytest.raises(
            {"cancelled": asyncio.CancelledError, "bad state": ValueError, "full disk": OSError}[how]
        ):
            await writing
        assert writer.fd == -1

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails_while_the_node_stops_is_one_line_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The fsync fails after the writing was cancelled, and the file cannot be deleted.

    Nothing has a traceback.
    """
    syncing, may_fail = threading.Event(), threading.Event()

    def failing(fd: int) -> None:
        syncing.set()
        assert may_fail.wait(10)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def read_only(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(os, "fsync", failing)
    monkeypatch.setattr(Path, "unlink", read_only)
    unexpected: list[dict[str, object]] = []

    async def main() -> str:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unexpected.append(context))
        writer = SnapshotWriter(tmp_path, ID)
        writing = loop.create_task(write_snapshot(writer, iter(Parts())))
        assert await loop.run_in_executor(None, syncing.wait, 10)
        writing.cancel()
        loop.call_soon(may_fail.set)
        with pytest.raises(asyncio.CancelledError):
            await writing
        del writing
        gc.collect()  # asyncio reports an exception that nobody has asked for when its future is deleted
        await asyncio.sleep(0)
        return str(writer.path)

    path = asyncio.run(main())
    assert not unexpected
    assert caplog.messages == [
        f"SnapshotWriter.freeze failed after its caller was cancelled: [Errno 5] Input/output error: '{path}'"
    ]
    assert caplog.records[0].exc_info is None
