"""Follows the committed log of a quorum: finds out up to where it can be read, and plans the tasks for that.

This runs on the driver and reads no more than one batch at a time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from quorate.admin.metadata_log import Fetched, SnapshotId
from quorate.pipeline.datasource.tasks import RangeTask
from quorate.pipeline.live.offsets import (
    UNKNOWN_EPOCH,
    OffsetError,
    Range,
    Start,
    StartingOffset,
    StreamOffset,
    check_order,
)
from quorate.pipeline.live.quorum import Quorum
from quorate.records.batch import parse_header

WAIT_MS: Final = 500
"""How long the active controller may wait for a new record before it answers."""

RETRY_S: Final = 0.05
"""The pause while the newest records are uncommitted: the controller then answers at once."""

ELECTION_TIMEOUT_S: Final = 60.0
"""How long the high watermark may be unknown, which it is until a new active controller has a majority."""

_ONE_BATCH: Final = 1
"""A limit of bytes that one batch reaches. A response has at least one."""


class QuorumTail:
    """The committed log of a running quorum."""

    def __init__(
        self,
        controllers: str,
        properties: Mapping[str, str],
        offsets_per_task: int,
        cluster_id: str | None = None,
    ) -> None:
        """Connects. Raises OffsetError if the cluster has another id than `cluster_id`."""
        self._quorum = Quorum(controllers, properties, cluster_id)
        self._offsets_per_task = offsets_per_task

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self._quorum.cluster_id

    def available(self, offset: int) -> tuple[int, int]:
        """From where on the log can be read if the records from an offset on are wanted, and the
        high watermark.

        The first is the offset itself, or the end of a snapshot if the log no longer has it. Raises
        OffsetError if the log ends before the offset.
        """
        position = StreamOffset(offset, cluster_id=self.cluster_id)
        found = self._fetch_committed(position)
        return _base(position, found).offset, found.high_watermark

    def batch_at(self, offset: int) -> bytes | None:
        """The batch that contains an offset, or None if the log does not have it."""
        found = self._quorum.fetch(offset, UNKNOWN_EPOCH, max_bytes=_ONE_BATCH)
        if not found.records:
            return None
        header = parse_header(found.records)
        return found.records[: header.size_bytes] if header.base_offset <= offset else None

    def first(self, starting: StartingOffset) -> StreamOffset:
        """The offset of a stream without a checkpoint."""
        match starting:
            case Start.EARLIEST:
                return StreamOffset(0, 0, self._quorum.cluster_id)
            case Start.LATEST:
                high_watermark = self._fetch_committed(StreamOffset(0, 0)).high_watermark
                return self._at(high_watermark, StreamOffset(0, 0), high_watermark, whole_batches=False)
            case StreamOffset():
                check_order(starting, replace(starting, cluster_id=self._quorum.cluster_id))
                return replace(starting, cluster_id=self._quorum.cluster_id)

    def advance(
        self, position: StreamOffset, limit: int | None = None, *, wait_ms: int = WAIT_MS
    ) -> StreamOffset:
        """The next offset up to which the stream can be read, at most `limit` records after `position`.

        With a limit, it is the end of a batch. Returns `position` itself if nothing is committed within
        `wait_ms`.
        """
        check_order(position, replace(position, cluster_id=self._quorum.cluster_id))
        found = self._fetch_committed(position, wait_ms)
        committed = found.high_watermark
        if committed <= position.offset:  # less if the active controller is new and does not know all yet
            if found.records:
                time.sleep(RETRY_S)
            return position
        base = _base(position, found)
        if base.offset >= committed:
            return replace(base, high_watermark=committed)
        end = committed if limit is None else min(committed, base.offset + limit)
        return self._at(end, base, committed, whole_batches=limit is not None)

    def plan(self, start: StreamOffset, end: StreamOffset) -> list[RangeTask]:
        """The tasks that read between two offsets. If the log no longer has the start, the first one reads a
        snapshot.

        A controller offers its snapshot also for offset 0 of a log that has all of its records.
        Such a log is read instead (see `Fetched.needs_no_snapshot`).
        """
        check_order(start, end)
        check_order(start, replace(start, cluster_id=self._quorum.cluster_id))
        if start.offset == end.offset:
            return []
        found = self._quorum.fetch(start.offset, start.epoch, max_bytes=_ONE_BATCH)
        base = _base(start, found)
        cluster_id = self._quorum.cluster_id
        ranges = []
        if base.offset > start.offset:
            until = min(base.offset, end.offset)
            ranges.append(Range(start.offset, until, start.epoch, cluster_id, begins_with_snapshot=True))
        epoch = base.epoch
        for first in range(base.offset, end.offset, self._offsets_per_task):
            last = min(first + self._offsets_per_task, end.offset)
            ranges.append(Range(first, last, epoch, cluster_id))
            epoch = UNKNOWN_EPOCH
        return [RangeTask(part) for part in ranges]

    def close(self) -> None:
        """Closes the connections to the controllers."""
        self._quorum.close()

    def _fetch_committed(self, position: StreamOffset, wait_ms: int = 0) -> Fetched:
        """Fetches one batch at a position, once the active controller knows the high watermark."""
        deadline = time.monotonic() + ELECTION_TIMEOUT_S
        while True:
            found = self._quorum.fetch(
                position.offset, position.epoch, max_wait_ms=wait_ms, max_bytes=_ONE_BATCH
            )
            if found.high_watermark >= 0:
                return found
            if time.monotonic() > deadline:
                raise OffsetError(
                    f"the active controller of {self._quorum.name} has had no majority of voters for "
                    f"{ELECTION_TIMEOUT_S:g} s"
                )
            time.sleep(RETRY_S)

    def _at(self, end: int, base: StreamOffset, high_watermark: int, *, whole_batches: bool) -> StreamOffset:
        """The offset `end` with the epoch of the record before it.

        With `whole_batches`, a batch that extends beyond `end` is left for later, or taken in if it
        is the first after `base`.
        """
        cluster_id = self._quorum.cluster_id
        if end == 0:
            return StreamOffset(0, 0, cluster_id, high_watermark)
        # A controller that has deleted older records compares the epoch at the start of its log.
        epoch = base.epoch if end - 1 == base.offset else UNKNOWN_EPOCH
        found = self._quorum.fetch(end - 1, epoch, max_bytes=_ONE_BATCH)
        if not found.records:
            return StreamOffset(end, UNKNOWN_EPOCH, cluster_id, high_watermark)
        header = parse_header(found.records)
        if whole_batches and header.last_offset >= end:
            if header.base_offset > base.offset:
                return self._at(header.base_offset, base, high_watermark, whole_batches=False)
            end = min(header.last_offset + 1, high_watermark)
        return StreamOffset(end, header.leader_epoch, cluster_id, high_watermark)


def _base(position: StreamOffset, found: Fetched) -> StreamOffset:
    """The offset from which on the log is read: after the snapshot if the log no longer has the position."""
    snapshot: SnapshotId | None = found.snapshot
    if snapshot is None or found.needs_no_snapshot(position.offset):
        return position
    return replace(position, offset=snapshot.end_offset, epoch=snapshot.epoch)
