"""Follows the committed log in directories that nodes write: finds out up to where it can be read,
and plans the tasks for that. This runs on the driver.

Nothing in the directory of one of several controllers says up to where its log is committed, except its
snapshots. With the directories of a majority, the stream reaches the newest records.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql.datasource import InputPartition

from quorate.dataclass import dataclass
from quorate.pipeline.datasource.bounds import Bounds
from quorate.pipeline.datasource.tasks import FileTask
from quorate.pipeline.directories.committed import committed_end
from quorate.pipeline.directories.copies import Copy, find_copies, merge, ranked
from quorate.pipeline.directories.files import LOCAL, Files
from quorate.pipeline.directories.layout import Layout, SnapshotFile, group, slices
from quorate.pipeline.live.offsets import (
    UNKNOWN_EPOCH,
    OffsetError,
    Start,
    StartingOffset,
    StreamOffset,
    check_order,
)

LOOK_S: Final = 0.5
"""The pause after a look at the directories that has found nothing new."""


@dataclass(frozen=True, slots=True)
class Found:
    """The directories at one moment."""

    copies: tuple[Copy, ...]
    """The most advanced one first: another one may have had records that others replaced."""
    layout: Layout
    end: int
    """The records before this offset are known to be committed."""

    @property
    def cluster_id(self) -> str | None:
        return next((copy.cluster_id for copy in self.copies if copy.cluster_id is not None), None)

    def epoch_before(self, offset: int) -> int:
        """The leader epoch of the record before an offset, or UNKNOWN_EPOCH."""
        in_snapshots = [found.epoch for found in self.layout.snapshots if found.end_offset == offset]
        in_copies = [
            copy.last_epoch if copy.end_offset == offset > 0 else copy.epoch_at(offset - 1)
            for copy in self.copies
        ]
        return next((epoch for epoch in (*in_snapshots, *in_copies) if epoch is not None), UNKNOWN_EPOCH)

    def snapshot_after(self, position: StreamOffset) -> SnapshotFile | None:
        """The snapshot that replaces the records from a position on, if the logs no longer have it."""
        if position.offset >= self.layout.log_start_offset:
            return None
        return self.layout.base_snapshot()


class DirectoryTail:
    """The committed log in directories."""

    def __init__(
        self, paths: Sequence[str], slice_bytes: int, *, snapshots: bool = True, files: Files = LOCAL
    ) -> None:
        self._paths = paths
        self._files = files
        self._slice_bytes = slice_bytes
        self._snapshots = snapshots

    def first(self, starting: StartingOffset) -> StreamOffset:
        """The offset of a stream without a checkpoint."""
        found = self._look()
        match starting:
            case Start.EARLIEST:
                return StreamOffset(0, 0, found.cluster_id)
            case Start.LATEST:
                return self._at(found.end, found)
            case StreamOffset():
                self._check(starting, found)
                return replace(starting, cluster_id=found.cluster_id)

    def advance(self, position: StreamOffset, limit: int | None = None) -> StreamOffset:
        """The next offset up to which the stream can be read, at most `limit` records after `position`.

        Returns `position` itself if no more is known to be committed.
        """
        found = self._look()
        self._check(position, found)
        if found.end <= position.offset:
            time.sleep(LOOK_S)
            return position
        snapshot = found.snapshot_after(position)
        base = position.offset if snapshot is None else snapshot.end_offset
        end = found.end if limit is None else min(found.end, base + limit)
        return self._at(max(base, end), found)

    def plan(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        """The tasks that read between two offsets.

        If the logs no longer have the start, one reads a snapshot.
        """
        check_order(start, end)
        found = self._look()
        self._check(start, found)
        if start.offset == end.offset:
            return []
        snapshot = found.snapshot_after(start)
        base = start.offset if snapshot is None else snapshot.end_offset
        parts = slices(
            found.layout,
            snapshots=[snapshot] if snapshot is not None and self._snapshots else [],
            start_offset=base,
            end_offset=max(base, end.offset),
            slice_bytes=self._slice_bytes,
            committed=end.offset,
            files=self._files,
        )
        bounds = Bounds(base, max(base, end.offset))
        return [FileTask(task, bounds) for task in group(parts, self._slice_bytes)]

    def close(self) -> None:
        """Does nothing: no file stays open."""

    def _look(self) -> Found:
        copies = ranked(find_copies(self._paths, self._files))
        return Found(tuple(copies), merge(copies), committed_end(copies, self._files))

    def _at(self, offset: int, found: Found) -> StreamOffset:
        return StreamOffset(offset, found.epoch_before(offset), found.cluster_id, found.end)

    def _check(self, position: StreamOffset, found: Found) -> None:
        """Raises OffsetError if the directories do not have what was read up to a position."""
        check_order(position, replace(position, cluster_id=found.cluster_id))
        end = max([found.end, *[copy.end_offset for copy in found.copies]])
        if end < position.offset:
            check_order(position, replace(position, offset=end))
        epoch = found.epoch_before(position.offset)
        if UNKNOWN_EPOCH not in (epoch, position.epoch) and position.offset > 0 and epoch != position.epoch:
            raise OffsetError(
                f"the log in {', '.join(self._paths)} has another history than what was read: the "
                f"record before offset {position.offset} is of epoch {epoch}, and not "
                f"{position.epoch}"
            )
