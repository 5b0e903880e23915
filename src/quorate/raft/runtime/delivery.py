"""Delivers committed batches to the listeners: the controller and the broker's metadata listener.

A listener that has kept up gets new batches from memory, in the turn of the loop in which they commit.
A listener that is behind, because it has just been registered or a large Fetch response has arrived, is
served from the snapshot and the log in slices. The loop runs between two slices.

A listener that needs more than milliseconds for a delivery returns an iterator, which does the work in
small steps. The next delivery waits for its end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from quorate.log.errors import trace_of
from quorate.raft.types import CommittedBatch, LeaderAndEpoch, OffsetEpoch

logger = logging.getLogger(__name__)

SLICE_S = 0.003  # plus one step: no callback should hold the loop for more than 5 ms
SLOW_LOAD_S = 0.5  # a snapshot whose load takes longer is logged
MIN_SLICE_BYTES = 16 << 10
MAX_SLICE_BYTES = 1 << 20
INLINE_BYTES = 512 << 10  # a larger commit is delivered in slices
RECENT_BYTES = 32 << 20  # uncommitted batches kept in memory; a listener finds older ones in the log


Steps = Iterator[None]  # each a few milliseconds of work at most


class RaftListener(Protocol):
    """A state machine on the metadata log. Its methods are called in the order of the log."""

    def on_commit(self, batches: list[CommittedBatch]) -> Steps | None: ...
    def on_snapshot(self, snapshot_id: OffsetEpoch, batches: Iterator[CommittedBatch]) -> Steps | None: ...
    def on_leader_change(self, leader: LeaderAndEpoch) -> None: ...
    def on_high_watermark(self, hwm: int) -> None: ...


class Source(Protocol):
    """The log and snapshots from which committed batches are read."""

    @property
    def start_offset(self) -> int: ...
    def read_committed(self, offset: int, end: int, max_bytes: int) -> list[CommittedBatch]: ...
    def latest_snapshot(self) -> OffsetEpoch | None: ...
    def snapshot_batches(self, snapshot: OffsetEpoch) -> Iterator[CommittedBatch]: ...
    def snapshot_size(self, snapshot: OffsetEpoch) -> int | None: ...


class _Reader:
    """A listener and the next offset to deliver to it."""

    __slots__ = ("listener", "next_offset", "notified", "pump", "slice_bytes")

    def __init__(self, listener: RaftListener) -> None:
        self.listener = listener
        self.next_offset = -1  # nothing yet: begins with the latest snapshot
        self.pump: asyncio.Task[None] | None = None
        self.slice_bytes = 256 << 10
        self.notified: LeaderAndEpoch | None = None


class Delivery:
    """Delivers to all registered listeners.

    If one raises, its state is undefined and the node must stop: `failed` is called with the error.
    """

    def __init__(self, source: Source, failed: Callable[[BaseException], None]) -> None:
        self._source = source
        self._failed = failed
        self._readers: list[_Reader] = []
        self._recent: deque[CommittedBatch] = deque()
        self._recent_bytes = 0
        self._leader = LeaderAndEpoch(None, 0)
        self._epoch_start: int | None = None  # of this replica's own epoch while it leads
        self._closed = False
        self.hwm = 0
        self.loading: tuple[int, int] | None = None
        """The bytes of a snapshot that have been loaded, and its size, while one is loaded."""

    @property
    def delivered(self) -> int:
        """The offset up to which every listener has got the log. -1 before a snapshot is loaded."""
        return min((reader.next_offset for reader in self._readers), default=-1)

    # --- the driver's reports ---------------------------------------------------------------------

    def register(self, listener: RaftListener) -> None:
        reader = _Reader(listener)
        self._readers.append(reader)
        self._advance(reader)

    def unregister(self, listener: RaftListener) -> None:
        for reader in [r for r in self._readers if r.listener is listener]:
            self._readers.remove(reader)
            if reader.pump is not None:
                reader.pump.cancel()

    def appended(self, batch: CommittedBatch) -> None:
        """Keeps an appended batch in memory until it commits.

        A batch that does not continue the kept ones replaces them.
        """
        if self._recent and self._recent[-1].last_offset + 1 != batch.base_offset:
            self.restarted()
        self._recent.append(batch)
        self._recent_bytes += batch.size_bytes
        while self._recent_bytes > RECENT_BYTES:
            self._recent_bytes -= self._recent.popleft().size_bytes

    def truncated(self, end_offset: int) -> None:
        while self._recent and self._recent[-1].last_offset >= end_offset:
            self._recent_bytes -= self._recent.pop().size_bytes

    def restarted(self) -> None:
        """Drops the kept batches, because the log was replaced by a snapshot or has grown by too much."""
        self._recent.clear()
        self._recent_bytes = 0

    def committed(self, hwm: int) -> None:
        """Delivers the batches below a new high watermark."""
        if hwm <= self.hwm:
            return
        self.hwm = hwm
        recent = self._recent
        batches: list[CommittedBatch] = []
        size = 0
        while recent and recent[0].last_offset < hwm:
            batch = recent.popleft()
            self._recent_bytes -= batch.size_bytes
            size += batch.size_bytes
            batches.append(batch)
        whole = bool(batches) and batches[-1].last_offset + 1 == hwm and size <= INLINE_BYTES
        for reader in list(self._readers):
            if whole and reader.pump is None and reader.next_offset == batches[0].base_offset:
                self._deliver(reader, batches)
            else:
                self._advance(reader)

    def leader_changed(self, leader: LeaderAndEpoch, epoch_start: int | None) -> None:
        """Tells the listeners about a change of leader or epoch.

        Args:
            epoch_start: The start offset of the epoch if this replica leads it. A listener learns that
                it leads when it has received everything before this offset, so that its proposals
                follow the LeaderChange record and commit with it. The first leader of a quorum waits
                for that record as well, since the first voters come with it.
        """
        self._leader = leader
        self._epoch_start = epoch_start
        for reader in list(self._readers):
            self._notify_leader(reader)

    def close(self) -> None:
        self._closed = True
        for reader in self._readers:
            if reader.pump is not None:
                reader.pump.cancel()

    async def settled(self) -> None:
        """Waits until every listener has received all that is committed."""
        while pumps := [r.pump for r in self._readers if r.pump is not None]:
            await asyncio.wait(pumps)

    # --- one listener -----------------------------------------------------------------------------

    def _deliver(self, reader: _Reader, batches: Sequence[CommittedBatch]) -> None:
        if self._closed:
            return
        try:
            steps = reader.listener.on_commit(list(batches))
            if steps is not None:
                reader.pump = asyncio.get_running_loop().create_task(
                    self._pump(reader, steps, batches[-1].last_offset + 1)
                )
                return
            self._delivered(reader, batches[-1].last_offset + 1)
        except Exception as e:
            self._broken(reader, e)
            return
        self._notify_leader(reader)

    def _delivered(self, reader: _Reader, next_offset: int) -> None:
        reader.next_offset = next_offset
        reader.listener.on_high_watermark(self.hwm)

    def _broken(self, reader: _Reader, error: Exception) -> None:
        what = f"{type(reader.listener).__name__} failed at"
        logger.error(
            "[RaftDelivery] %s offset %d: %s", what, reader.next_offset, error, exc_info=trace_of(error)
        )
        self._failed(error)

    def _notify_leader(self, reader: _Reader) -> None:
        if self._closed or reader.notified == self._leader:
            return
        start = self._epoch_start
        if start is not None and (reader.next_offset < start or start == 0 == reader.next_offset):
            return
        reader.notified = self._leader
        try:
            reader.listener.on_leader_change(self._leader)
        except Exception as e:
            name = type(reader.listener).__name__
            logger.error("[RaftDelivery] %s failed at a change of leader: %s", name, e, exc_info=trace_of(e))
            self._failed(e)

    def _advance(self, reader: _Reader) -> None:
        if reader.pump is None and reader.next_offset < self.hwm and not self._closed:
            reader.pump = asyncio.get_running_loop().create_task(self._pump(reader))
        elif reader.pump is None:
            self._notify_leader(reader)

    async def _pump(self, reader: _Reader, steps: Steps | None = None, then: int = 0) -> None:
        """Delivers until the listener has all that is committed.

        Begins with the rest of a delivery, if `steps` are given: at its end the next offset is `then`.
        """
        try:
            if steps is not None:
                await self._run_steps(reader, steps, then)
            while reader.next_offset < self.hwm and not self._closed:
                if reader.next_offset < self._source.start_offset or reader.next_offset < 0:
                    await self._load_snapshot(reader)
                    await asyncio.sleep(0)
                    continue
                started = time.perf_counter()
                batches = self._source.read_committed(reader.next_offset, self.hwm, reader.slice_bytes)
                if not batches:
                    raise EOFError(f"no committed batch at offset {reader.next_offset} below {self.hwm}")
                steps = reader.listener.on_commit(batches)
                took = time.perf_counter() - started
                if took > SLICE_S:
                    reader.slice_bytes = max(MIN_SLICE_BYTES, reader.slice_bytes // 2)
                elif took < SLICE_S / 3:
                    reader.slice_bytes = min(MAX_SLICE_BYTES, reader.slice_bytes * 2)
                await self._run_steps(reader, steps, batches[-1].last_offset + 1)
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            raise
        except Exception as e:
            self._broken(reader, e)
            return
        finally:
            reader.pump = None
        self._notify_leader(reader)

    async def _run_steps(self, reader: _Reader, steps: Steps | None, next_offset: int) -> None:
        """Does the steps of a delivery, in slices."""
        if steps is not None:
            until = time.perf_counter() + SLICE_S
            for _ in steps:
                if time.perf_counter() >= until:
                    await asyncio.sleep(0)
                    if self._closed:
                        return
                    until = time.perf_counter() + SLICE_S
        self._delivered(reader, next_offset)

    async def _load_snapshot(self, reader: _Reader) -> None:
        snapshot = self._source.latest_snapshot()
        if snapshot is None or snapshot.offset <= 0:
            if self._source.start_offset > max(reader.next_offset, 0):
                raise EOFError(f"the log begins at {self._source.start_offset} and there is no snapshot")
            reader.next_offset = 0
            return
        if snapshot.offset < reader.next_offset:
            raise EOFError(f"snapshot {tuple(snapshot)} is older than offset {reader.next_offset}")
        started = time.perf_counter()
        size = self._source.snapshot_size(snapshot) or 0
        try:
            steps = reader.listener.on_snapshot(snapshot, self._counted(snapshot, size))
            await self._run_steps(reader, steps, snapshot.offset)
        finally:
            self.loading = None
        took = time.perf_counter() - started
        if took > SLOW_LOAD_S:
            name = type(reader.listener).__name__
            logger.info("[RaftDelivery] %s has loaded snapshot %s in %.3f s", name, tuple(snapshot), took)

    def _counted(self, snapshot: OffsetEpoch, size: int) -> Iterator[CommittedBatch]:
        """The batches of a snapshot. Counts their bytes as loaded when the next one is taken."""
        done = 0
        for batch in self._source.snapshot_batches(snapshot):
            self.loading = (done, size)
            yield batch
            done += batch.size_bytes
