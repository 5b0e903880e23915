"""The snapshot that is being fetched: verified and written in a thread while the next part is on its
way (KIP-630)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from quorate.raft.core import messages as m
from quorate.raft.storage.snapshots.partial import Part, fetched_parts, part_path, remove_useless_parts
from quorate.raft.storage.snapshots.verification import SnapshotError
from quorate.raft.storage.threads import in_thread
from quorate.raft.types import LeaderAndEpoch, OffsetEpoch

log = logging.getLogger(__name__)
FLUSH_BYTES = 16 << 20  # so much is sent to the disk before the end: the last fsync then has little to do


class SnapshotDownloads:
    """Does what the core's `start_snapshot` and `snapshot_chunk` ask for, in order, beside the loop;
    one file at a time.

    `step` gets the events; `install` a whole, durable snapshot; `failed` what stops the node (OSError).
    """

    def __init__(
        self,
        directory: Path,
        step: Callable[[m.Event], None],
        install: Callable[[OffsetEpoch], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._directory = directory
        self._step = step
        self._install = install
        self._failed = failed
        self._jobs: deque[m.SnapshotStart | m.SnapshotChunk] = deque()
        self._task: asyncio.Task[None] | None = None
        self._part: Part | None = None
        self._leader = LeaderAndEpoch(None, -1)  # who is being asked
        self._flushing: asyncio.Future[None] | None = None
        self._began = 0.0
        self._closed = False

    def add(self, job: m.SnapshotStart | m.SnapshotChunk) -> None:
        self._jobs.append(job)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Leaves the file as it is: a later life goes on with it."""
        self._closed = True
        self._jobs.clear()
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._part is not None:
            await self._flushed()
            self._part.close()

    def clean(self, log_end: int) -> None:
        """While nothing is being downloaded: what was broken off and is of no more use goes. Raises
        OSError."""
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
                event = await (self._open(job) if isinstance(job, m.SnapshotStart) else self._write(job))
                if event is not None and not self._closed:
                    self._step(event)
        except Exception as e:
            self._failed(e)
        finally:
            self._task = None

    async def _open(self, start: m.SnapshotStart) -> m.Event:
        part, self._began = self._part, time.perf_counter()
        if part is None or part.snapshot != start.snapshot or start.fresh:
            await self._abandon()
            self._part = part = await in_thread(self._take_up, start)
        self._leader = start.leader
        if part.size:
            log.info("[Downloads] snapshot %s goes on at byte %d", tuple(start.snapshot), part.size)
        confirm = part.size > 0 and part.leader != start.leader
        return m.SnapshotOpened(start.snapshot, part.size, part.verifier.digest() if confirm else None)

    def _take_up(self, start: m.SnapshotStart) -> Part:
        """What is on disk of it, or an empty file; others are removed."""
        kept: Part | None = None
        for snapshot, leader, path in fetched_parts(self._directory):
            if kept is None and snapshot == start.snapshot and not start.fresh:
                kept = Part.reopen(path, snapshot, leader)
            else:
                path.unlink()
        return kept or Part(
            part_path(self._directory, start.snapshot, start.leader), start.snapshot, start.leader
        )

    async def _write(self, chunk: m.SnapshotChunk) -> m.Event | None:
        part = self._part
        if part is None or part.snapshot != chunk.snapshot or part.size != chunk.position:
            return None  # of a download that has ended
        try:
            await in_thread(part.add, chunk, self._leader)  # who has confirmed what was there, or has sent it
            if chunk.last and not part.verifier.complete:
                raise SnapshotError("it ends without a footer")
        except SnapshotError as e:
            await self._abandon()
            return m.SnapshotRejected(chunk.snapshot, str(e))
        if not chunk.last:
            await self._flush_sometimes(part)
            return m.SnapshotWritten(chunk.snapshot, part.size)
        await self._flushed()
        await in_thread(part.freeze)
        self._part = None
        took = time.perf_counter() - self._began
        log.info(
            "[Downloads] snapshot %s: %d bytes fetched, verified and durable in %.3f s",
            tuple(part.snapshot),
            part.size,
            took,
        )
        if not self._closed:
            self._install(part.snapshot)
        return None

    async def _flush_sometimes(self, part: Part) -> None:
        if part.size - part.flushed < FLUSH_BYTES or (
            self._flushing is not None and not self._flushing.done()
        ):
            return
        await self._flushed()
        part.flushed = part.size
        self._flushing = asyncio.get_running_loop().run_in_executor(None, part.flush)

    async def _flushed(self) -> None:
        """Raises what the last fsync beside the writes has met."""
        flushing, self._flushing = self._flushing, None
        if flushing is not None:
            await flushing

    async def _abandon(self) -> None:
        if self._part is not None:
            await self._flushed()
            self._part.abandon()
            self._part = None
