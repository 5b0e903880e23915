"""A disk that is slow on demand, for real nodes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


class SlowDisk:
    """Delays the fsyncs, the reads that miss the page cache, and the changes of directories (files that are
    renamed, removed or truncated) of nodes that are started with `env`."""

    def __init__(self, directory: Path) -> None:
        library = directory / "slow_disk.so"
        source = Path(__file__).with_suffix(".c")
        try:
            subprocess.run(
                ["gcc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"],
                check=True,
                capture_output=True,
            )
        except FileNotFoundError:
            pytest.skip("gcc is missing: it builds the library that makes a disk slow")
        self._delays = directory / "delays"
        self._broken = directory / "broken"
        self.set()
        self.env = {
            "LD_PRELOAD": str(library),
            "SLOW_DISK": str(self._delays),
            "BROKEN_DISK": str(self._broken),
        }

    def set(self, *, fsync_ms: int = 0, read_ms: int = 0, change_ms: int = 0) -> None:
        """From now on; also for nodes that run already."""
        temporary = self._delays.with_suffix(".new")
        temporary.write_text(f"{fsync_ms} {read_ms} {change_ms}\n")
        temporary.replace(self._delays)

    def fail_fsyncs(self, directory: Path) -> None:
        """From now on, of all files below it."""
        temporary = self._broken.with_suffix(".new")
        temporary.write_text(str(directory))
        temporary.replace(self._broken)


def drop_from_page_cache(directory: Path) -> None:
    """Whoever reads the files below `directory` next has to wait for the disk."""
    for path in directory.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
