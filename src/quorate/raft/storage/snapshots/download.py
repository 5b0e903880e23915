"""Downloads snapshots: verifies and writes a chunk in a thread while the next one is fetched (KIP-630)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from quorate.raft.core.effects import SnapshotChunk, SnapshotStart
from quorate.raft.core.events import Event, SnapshotOpened, SnapshotRejected, SnapshotWritten
from quorate.raft.storage.snapshots.partial import Part, fetched_parts, part_path, remove_useless_parts
from quorate.raft.storage.snapshots.verification import SnapshotError
from quorate.raft.types import LeaderAndEpoch, OffsetEpoch
from quorate.threads import in_thread

logger = logging.getLogger(__name__)
FLUSH_BYTES = 16 << 20  # flushed during the download, so that the last fsync is short


class SnapshotDownloads:
    """Performs the core's `start_snapshot` and `snapshot_chunk` in order, one file at a time.

    Calls `step` with the events, `install` with a complete and durable snapshot, and `failed` with an
    OSError, which must stop the node.
    """

    def __init__(
        self,
        directory: Path,
        step: Callable[[Event], None],
        install: Callable[[OffsetEpoch], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._directory = directory
        self._step = step
        self._install = install
        self._failed = failed
        self._jobs: deque[SnapshotStart | SnapshotChunk] = deque()
        self._task: asyncio.Task[None] | None = None
        self._part: Part | None = None
        self._leader = LeaderAndEpoch(None, -1)  # the leader that sends it
        self._flushing: asyncio.Future[None] | None = None
        self._began = 0.0
        self._closed = False

    def add(self, job: SnapshotStart | SnapshotChunk) -> None:
        self._jobs.append(job)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Stops, and keeps the file: after a restart the download continues."""
        self._closed = True
        self._jobs.clear()
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._part is not None:
            await self._finish_flush()
            self._part.close()

    def clean(self, log_end: int) -> None:
        """Deletes incomplete downloads that are useless, unless one is in progress. Raises OSError."""
        if self._task is not None or (self._part is not None and self._part.snapshot.offset > log_end):
            return
        if self._part is not None:
            self._part.abandon()
            self._part = None
        remove_useless_parts(self._directory, log_end)

    async def _work(self) -> None:
        try:
            while self._jobs:
                job = self._jobs.popleft()
                event = await (self._open(job) if isinstance(job, SnapshotStart) else self._write(job))
                if event is not None and not self._closed:
                    self._step(event)
        except Exception as e:
            self._failed(e)
        finally:
            self._task = None

    async def _open(self, start: SnapshotStart) -> Event:
        part, self._began = self._part, time.perf_counter()
        if part is None or part.snapshot != start.snapshot or start.fresh:
            await self._abandon()
            self._part = part = await in_thread(self._open_part, start)
        self._leader = start.leader
        if part.size:
            logger.info("[Downloads] snapshot %s goes on at byte %d", tuple(start.snapshot), part.size)
        confirm = part.size > 0 and part.leader != start.leader
        digest = part.verifier.digest() if confirm else None
        return SnapshotOpened(start.snapshot, part.size, digest, start.leader)

    def _open_part(self, start: SnapshotStart) -> Part:
        """Opens the incomplete download of this snapshot, or creates a file. Deletes all other downloads."""
        kept: Part | None = None
        for snapshot, leader, path in fetched_parts(self._directory):
            if kept is None and snapshot == start.snapshot and not start.fresh:
                kept = Part.reopen(path, snapshot, leader)
            else:
                path.unlink()
        return kept or Part(
            part_path(self._directory, start.snapshot, start.leader), start.snapshot, start.leader
        )

    async def _write(self, chunk: SnapshotChunk) -> Event | None:
        part = self._part
        if part is None or part.snapshot != chunk.snapshot or part.size != chunk.position:
            return None  # it belongs to a download that has ended
        try:
            await in_thread(part.add, chunk, self._leader)
            if chunk.last and not part.verifier.complete:
                raise SnapshotError("it ends without a footer")
        except SnapshotError as e:
            await self._abandon()
            return SnapshotRejected(chunk.snapshot, str(e))
        if not chunk.last:
            await self._flush_if_due(part)
            return SnapshotWritten(chunk.snapshot, part.size)
        await self._finish_flush()
        await in_thread(part.freeze)
        self._part = None
        took = time.perf_counter() - self._began
        logger.info(
            "[Downloads] snapshot %s: %d bytes fetched, verified and durable in %.3f s",
            tuple(part.snapshot),
            part.size,
            took,
        )
        if not self._closed:
            self._install(part.snapshot)
        return None

    async def _flush_if_due(self, part: Part) -> None:
        if part.size - part.flushed < FLUSH_BYTES or (
            self._flushing is not None and not self._flushing.done()
        ):
            return
        await self._finish_flush()
        part.flushed = part.size
        self._flushing = asyncio.get_running_loop().run_in_executor(None, part.flush)

    async def _finish_flush(self) -> None:
        """Waits for the flush that runs beside the writes. Raises its error."""
        flushing, self._flushing = self._flushing, None
        if flushing is not None:
            await flushing

    async def _abandon(self) -> None:
        if self._part is not None:
            await self._finish_flush()
            self._part.abandon()
            self._part = None
