"""The directories that Apache Kafka 4.1.1 and 4.4.0 wrote (tests/golden): `running/`, of a node
that runs, and `data/`, after it stopped.

An archive holds 240 MB, nearly all of it the zeros of preallocated indexes. It is read once in a
process, without them, and unpacked into files with holes.
"""

from __future__ import annotations

import functools
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ARCHIVES = Path(__file__).parents[1] / "golden"
KINDS = ("dynamic", "static")
"""Of 4.1.1: the voters in the log, or in the properties."""
NEW_KINDS = ("4.4 dynamic", "4.4 static")
ALL_KINDS = (*KINDS, *NEW_KINDS)
CHUNK = 1 << 20
ZEROS = bytes(CHUNK)


@dataclass(frozen=True)
class GoldenFile:
    """What a file begins with, and its size; the rest is zeros."""

    start: bytes
    size: int

    @property
    def data(self) -> bytes:
        return self.start.ljust(self.size, b"\0")

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            out.write(self.start)
            out.truncate(self.size)


@functools.cache
def golden_files(kind: str) -> Mapping[str, GoldenFile]:
    """Every file of a quorum with static or dynamic voters, by its path: `data/__cluster_metadata-0/...`."""
    found = {}
    release, _, voters = kind.rpartition(" ")
    with tarfile.open(ARCHIVES / f"kafka-{'4.4.0' if release else '4.1.1'}-{voters}.tar.xz") as archive:
        for member in archive:
            if (file := archive.extractfile(member)) is not None:
                start, end = bytearray(), 0
                while chunk := file.read(CHUNK):
                    if not ZEROS.startswith(chunk):
                        start = start.ljust(end, b"\0") + chunk
                    end += len(chunk)
                found[member.name.removeprefix("./")] = GoldenFile(bytes(start), end)
    return found


def unpack_golden(kind: str, target: Path, under: str = "") -> Path:
    """Writes the files whose path begins with `under` below a directory, and returns that directory."""
    for path, file in golden_files(kind).items():
        if path.startswith(under):
            file.write(target / path)
    return target
