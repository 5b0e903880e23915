"""`quorate doctor --fix` across mount points: a log directory is often one, and in a container the
properties file."""

from __future__ import annotations

import subprocess
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.log.directories.meta_properties import MetaProperties, write
from quorate.tools.doctor import fixes
from quorate.tools.quorate import main
from tests.tools.test_doctor_properties import text_of

Usage = namedtuple("Usage", "total used free")


class Mounts:
    """Mounts that end with the test."""

    def __init__(self) -> None:
        self._made: list[Path] = []

    def add(self, target: Path, *words: str) -> None:
        done = subprocess.run(["mount", *words, str(target)], check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"this user may not mount: {done.stderr.strip()}")
        self._made.append(target)

    def remove_all(self) -> None:
        for target in reversed(self._made):
            subprocess.run(["umount", str(target)], check=True)


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    found = Mounts()
    try:
        yield found
    finally:
        found.remove_all()


@pytest.fixture
def data(tmp_path: Path, mounts: Mounts) -> Path:
    """A formatted log directory that is a mount point, with a leftover and a deleted partition."""
    directory = tmp_path / "data"
    directory.mkdir()
    mounts.add(directory, "-t", "tmpfs", "-o", "size=1m", "tmpfs")
    write(directory, MetaProperties("abc", 1, bytes(15) + bytes([200])))
    (directory / "meta.properties.tmp").write_bytes(b"x")
    deleted = directory / "gone-0.b745be7e4e904cd2836cbbb1f0f4f2e8-delete"
    deleted.mkdir()
    (deleted / "00000000000000000000.log").write_bytes(b"y" * 1000)
    return directory


def test_a_properties_file_that_is_a_mount_point_is_corrected(
    tmp_path: Path, mounts: Mounts, capsys: pytest.CaptureFixture[str]
) -> None:
    outside, file = tmp_path / "outside.properties", tmp_path / "server.properties"
    text = text_of({"log.dirs": str(tmp_path / "data")})
    outside.write_bytes(b"zookeeper.connect=z\n" + text)
    outside.chmod(0o640)
    file.touch()
    mounts.add(file, "--bind", str(outside))
    main(["doctor", "--fix", "--only-file", str(file)])
    assert file.read_bytes() == outside.read_bytes() == text
    assert outside.stat().st_mode & 0o777 == 0o640
    [backup] = tmp_path.glob("server.properties.before-doctor-*")
    assert backup.read_bytes() == b"zookeeper.connect=z\n" + text
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["outside.properties", "server.properties", backup.name]
    )


def test_leftovers_of_a_mounted_directory_are_moved_beside_it(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["doctor", "--fix", str(data)])
    assert [path.name for path in data.iterdir()] == ["meta.properties"]
    [backup] = data.parent.glob("data.before-doctor-*")
    kept = {str(path.relative_to(backup)): path.read_bytes() for path in backup.rglob("*") if path.is_file()}
    assert kept == {
        "meta.properties.tmp": b"x",
        "gone-0.b745be7e4e904cd2836cbbb1f0f4f2e8-delete/00000000000000000000.log": b"y" * 1000,
    }


def test_nothing_is_removed_if_its_backup_has_no_room(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixes.shutil, "disk_usage", lambda path: Usage(100, 100, 0))
    assert main(["doctor", "--fix", str(data)]) != 0
    assert "No room for the backup of" in capsys.readouterr().err
    assert len(list(data.iterdir())) == 3
