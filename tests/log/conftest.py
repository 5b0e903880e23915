"""Directories that Apache Kafka 4.1.1 and 4.4.0 wrote, unpacked once (see tests/golden/README.md)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.golden import unpack_golden

CHUNK = 1 << 20


@pytest.fixture(scope="session", params=["dynamic", "4.4 dynamic"])
def golden_archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`running/` and `data/`; preallocated files keep their size but not their blocks."""
    return unpack_golden(request.param, tmp_path_factory.mktemp("golden"))


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

        return Path(
            shutil.copytree(golden_archive / name, tmp_path / name, ignore=ignored, copy_function=link)
        )

    return copy


@pytest.fixture(autouse=True)
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were synced, in order. No fsync is performed, because a test cannot observe its effect
    on the disk."""
    paths: list[str] = []

    def note(fd: int) -> None:
        paths.append(str(Path(f"/proc/self/fd/{fd}").readlink()))

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "fdatasync", note)
    return paths
