"""The file of an incomplete download: `<snapshot>-from-<leader>-<epoch>.checkpoint.part`.

It survives a change of leader and a restart. A later download of the same snapshot continues after the
last complete batch, if the leader's file begins with the same bytes.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from quorate.log.files import naming
from quorate.raft.core.effects import SnapshotChunk
from quorate.raft.storage.snapshots.files import PART, SnapshotWriter, parse_name
from quorate.raft.storage.snapshots.verification import SnapshotError, SnapshotVerifier
from quorate.raft.types import LeaderAndEpoch, OffsetEpoch

logger = logging.getLogger(__name__)
READ_BYTES = 1 << 20
_SOURCE = re.compile(r"-from-(\d+)-(\d+)" + re.escape(PART) + "$")


def part_path(directory: Path, snapshot: OffsetEpoch, leader: LeaderAndEpoch) -> Path:
    return (
        directory
        / f"{snapshot.offset:020d}-{snapshot.epoch:010d}-from-{leader.leader_id}-{leader.epoch}{PART}"
    )


def fetched_parts(directory: Path) -> list[tuple[OffsetEpoch, LeaderAndEpoch, Path]]:
    """The incomplete downloads in a directory. Raises OSError."""
    found = []
    for entry in os.scandir(directory):
        named, source = parse_name(entry.name), _SOURCE.search(entry.name)
        if named is not None and source is not None:
            found.append((named[0], LeaderAndEpoch(int(source[1]), int(source[2])), Path(entry.path)))
    return found


class Part(SnapshotWriter):
    """The file of a download.

    Its methods run in a thread, one at a time except for `flush`. They raise OSError and SnapshotError.
    """

    def __init__(self, path: Path, snapshot: OffsetEpoch, leader: LeaderAndEpoch) -> None:
        self.leader = leader
        self.verifier = SnapshotVerifier()
        self.flushed = 0
        self._fits: int | None = None  # a size for which there was enough space
        super().__init__(path.parent, snapshot, path)

    @classmethod
    def reopen(cls, path: Path, snapshot: OffsetEpoch, leader: LeaderAndEpoch) -> Part:
        """Opens an incomplete download, and truncates it after the last complete and valid batch."""
        part = cls(path, snapshot, leader)
        position = 0
        with naming(str(path)):
            try:
                while data := os.pread(part.fd, READ_BYTES, position):
                    position += len(data)
                    part.verifier.feed(data)
            except SnapshotError as e:
                logger.info("[SnapshotPart] %s: %s", path, e)
            part.size = part.verifier.back_to_whole()
            os.ftruncate(part.fd, part.size)
        return part

    def add(self, chunk: SnapshotChunk, leader: LeaderAndEpoch) -> None:
        """Adds a chunk of this leader, which has also confirmed the bytes before it."""
        if leader != self.leader:
            renamed = part_path(self.path.parent, self.snapshot, leader)
            self.path.rename(renamed)
            self.path, self.leader = renamed, leader
        if self._fits != chunk.size:
            self._check_free_space(chunk.size)
        self.verifier.feed(chunk.data)
        self.write(chunk.data)

    def _check_free_space(self, size: int) -> None:
        """Raises SnapshotError if the disk has not enough space: a full disk would stop the node."""
        try:
            disk = os.statvfs(self.path.parent)
        except OSError:
            return
        free = disk.f_bavail * disk.f_frsize
        if size - self.size > free:
            raise SnapshotError(f"its {size} bytes do not fit: {free} are free")
        self._fits = size

    def flush(self) -> None:
        with naming(str(self.path)):
            os.fdatasync(self.fd)


def remove_useless_parts(directory: Path, log_end: int) -> None:
    """Deletes downloads that the log has overtaken, and all others but the newest. Raises OSError."""
    parts = sorted(fetched_parts(directory))
    for at, (snapshot, _, path) in enumerate(parts):
        if snapshot.offset <= log_end or at < len(parts) - 1:
            path.unlink(missing_ok=True)
