"""Directories that Apache Kafka 4.1.1 wrote, unpacked once (see tests/golden/README.md)."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

import pytest

ARCHIVE = Path(__file__).parent.parent / "golden" / "kafka-4.1.1-dynamic.tar.xz"
CHUNK = 1 << 20


@pytest.fixture(scope="session")
def golden_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`running/` and `data/`; preallocated files keep their size but not their blocks."""
    root = tmp_path_factory.mktemp("golden")
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            parts = Path(member.name).parts
            folder = next((i for i, part in enumerate(parts) if part in ("running", "data")), None)
            if folder is None or not member.isfile():
                continue
            target = root.joinpath(*parts[folder:])
            target.parent.mkdir(parents=True, exist_ok=True)
            source = archive.extractfile(member)
            assert source is not None
            with target.open("wb") as out:
                while chunk := source.read(CHUNK):
                    out.seek(len(chunk), 1) if not any(chunk) else out.write(chunk)
                out.truncate(member.size)
    return root


@pytest.fixture
def golden(golden_archive: Path, tmp_path: Path):
    """`golden("data")`: a copy that may be changed, without the files of the metadata log."""

    def copy(name: str) -> Path:
        ignored = shutil.ignore_patterns("__cluster_metadata-0")

        def link(source: str, target: str) -> str:
            if Path(source).stat().st_size > CHUNK:
                with Path(target).open("wb") as out:
                    out.truncate(Path(source).stat().st_size)
                return target
            return shutil.copy2(source, target)

        return Path(shutil.copytree(golden_archive / name, tmp_path / name, ignore=ignored, copy_function=link))

    return copy


@pytest.fixture(autouse=True)
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were synced, in order. The disk itself is spared: what it does then cannot be seen by a test."""
    paths: list[str] = []

    def note(fd: int) -> None:
        paths.append(str(Path(f"/proc/self/fd/{fd}").readlink()))

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "fdatasync", note)
    return paths
