"""The simulated disk: what is readable, what is durable, what a power failure leaves."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.log.files import fsync_directory, write_atomically
from simulation.nodes.disk import Disk, File
from simulation.nodes.filesystem import SimulatedFilesystem
from simulation.nodes.loop import CrashError


@pytest.fixture
def disk() -> Iterator[Disk]:
    files = SimulatedFilesystem(lambda: 1)
    disk = files.add(Disk("d", random.Random(1)))
    with files.installed():
        yield disk


def write(path: Path, data: bytes, *, sync: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, data)
    if sync:
        os.fsync(fd)
    os.close(fd)


def test_what_is_written_is_read_at_once(disk: Disk) -> None:
    path = Path(disk.path) / "a"
    write(path, b"hello", sync=False)
    assert path.read_bytes() == b"hello"
    assert path.stat().st_size == 5
    assert path.exists()
    assert [e.name for e in os.scandir(disk.path)] == ["a"]
    path.rename(path.with_name("b"))
    assert not path.exists()
    path.with_name("b").unlink()
    assert list(Path(disk.path).iterdir()) == []


def test_paths_elsewhere_are_the_real_ones(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"real")
    assert (tmp_path / "x").read_bytes() == b"real"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_file_that_was_synced_needs_its_directory_synced_too() -> None:
    kept = set()
    for seed in range(20):
        files = SimulatedFilesystem(lambda: 1)
        disk = files.add(Disk("d", random.Random(seed)))
        with files.installed():
            write(Path(disk.path) / "a", b"hello", sync=True)
            disk.lose_power()
            kept.add(Path(disk.path, "a").exists())
    assert kept == {True, False}


def test_what_and_where_were_synced_survives(disk: Disk) -> None:
    path = Path(disk.path) / "a"
    write(path, b"hello", sync=True)
    fsync_directory(disk.path)
    for _ in range(20):
        disk.lose_power()
        assert path.read_bytes() == b"hello"


def test_writes_after_the_sync_survive_in_order_the_last_one_torn() -> None:
    contents = set()
    for seed in range(300):
        files = SimulatedFilesystem(lambda: 1)
        disk = files.add(Disk("d", random.Random(seed)))
        with files.installed():
            path = Path(disk.path) / "a"
            write(path, b"0123", sync=True)
            fsync_directory(disk.path)
            fd = os.open(path, os.O_RDWR)
            os.pwrite(fd, b"abcd", 4)
            os.pwrite(fd, b"efgh", 8)
            os.close(fd)
            disk.lose_power()
            contents.add(path.read_bytes())
    assert b"0123" in contents
    assert b"0123abcdefgh" in contents
    assert b"0123ab" in contents
    assert b"0123abcdef" in contents
    whole = b"0123abcdefgh"
    assert all(c.rstrip(b"\0") == whole[: len(c.rstrip(b"\0"))] for c in contents)
    assert any(c.endswith(b"\0") for c in contents)


def test_an_atomic_replacement_leaves_the_old_or_the_new_whole() -> None:
    contents = set()
    for seed in range(60):
        files = SimulatedFilesystem(lambda: 1)
        disk = files.add(Disk("d", random.Random(seed)))
        with files.installed():
            path = Path(disk.path) / "state"
            write_atomically(str(path), b"old")
            disk.crash_after_changes = seed % 6
            try:
                write_atomically(str(path), b"new one")
            except CrashError:
                pass
            disk.lose_power()
            contents.add(path.read_bytes())
    assert contents == {b"old", b"new one"}


def test_a_replacement_without_fsync_of_the_file_may_leave_it_empty() -> None:
    contents = set()
    for seed in range(60):
        files = SimulatedFilesystem(lambda: 1)
        disk = files.add(Disk("d", random.Random(seed)))
        with files.installed():
            path = Path(disk.path) / "state"
            write_atomically(str(path), b"old")
            write(path.with_name("tmp"), b"new", sync=False)
            path.with_name("tmp").replace(path)
            fsync_directory(disk.path)
            disk.lose_power()
            contents.add(path.read_bytes().rstrip(b"\0"))
    assert b"" in contents
    assert b"old" not in contents


def test_descriptors_of_a_killed_process_are_dead(disk: Disk) -> None:
    path = Path(disk.path) / "a"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    disk.kill()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(fd, b"x")
    os.close(fd)
    assert path.exists()


def test_a_broken_disk_refuses_changes_and_syncs(disk: Disk) -> None:
    path = Path(disk.path) / "a"
    write(path, b"x", sync=True)
    fd = os.open(path, os.O_RDWR)
    disk.failing_errno = 28
    for change in (
        lambda: os.write(fd, b"y"),
        lambda: os.fsync(fd),
        lambda: os.ftruncate(fd, 0),
        lambda: path.unlink(),
    ):
        with pytest.raises(OSError, match="No space left"):
            change()
    assert path.read_bytes() == b"x"


def test_what_is_durable_can_be_looked_at_without_a_failure(disk: Disk) -> None:
    path = Path(disk.path) / "a"
    write(path, b"hello", sync=False)
    assert disk.durable("a") is None
    fsync_directory(disk.path)
    node = disk.durable("a")
    assert isinstance(node, File)
    assert node.durable == b""
    write(path, b"hello", sync=True)
    assert node.durable == b"hello"
