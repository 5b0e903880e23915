"""When a controller writes a snapshot (KIP-630): by bytes committed since the last one, or by time if anything changed.

The image is a value, so that writing goes on in slices while the next records are applied. One at a time, never inside
a metadata transaction.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from quorate.metadata.errors import MetadataError
from quorate.metadata.image import MetadataImage
from quorate.metadata.snapshot import data_base_offset, data_batches

if TYPE_CHECKING:
    from quorate.controller.driver import QuorumController

log = logging.getLogger(__name__)


class SnapshotEmitter:
    """Counts what is committed and has snapshots written."""

    def __init__(self, controller: QuorumController) -> None:
        self._controller = controller
        self._bytes = 0
        self._last_at: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._disabled = False
        self.end_offset = 0
        """The first offset that the newest snapshot does not contain; 0 without one."""
        self.written = 0

    def loaded(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self._bytes = 0

    def committed(self, size_bytes: int, now: float) -> None:
        """size_bytes: of the batches that the present image has more than the last."""
        if self._last_at is None:
            self._last_at = now
        self._bytes += size_bytes
        config = self._controller.config
        by_time = config.snapshot_interval_s > 0 and now - self._last_at >= config.snapshot_interval_s
        if self._bytes >= config.snapshot_bytes or by_time:
            self._begin(self._controller.image, now)

    def _begin(self, image: MetadataImage, now: float) -> None:
        controller = self._controller
        if self._task is not None or self._disabled or image.transaction is not None:
            return
        if image.provenance.offset != controller.committed_offset or image.provenance.offset < self.end_offset:
            return  # in the midst of a write that takes several batches, or nothing new
        self._bytes = 0
        self._last_at = now
        self._task = asyncio.get_running_loop().create_task(self._write(image))

    async def _write(self, image: MetadataImage) -> None:
        raft, provenance = self._controller.raft, image.provenance
        try:
            batches = data_batches(
                image,
                base_offset=data_base_offset(raft.kraft_version_finalised),
                epoch=provenance.epoch,
                timestamp_ms=self._controller.clock.now_ms(),
            )
            await raft.create_snapshot(provenance.offset + 1, provenance.epoch, provenance.timestamp_ms, batches)
            self.end_offset = provenance.offset + 1
            self.written += 1
        except (MetadataError, ValueError, OSError) as error:
            # The log still has everything: the node goes on, and says so at the next attempt again.
            log.error(
                "[SnapshotEmitter id=%d] Snapshot at offset %d failed: %s",
                self._controller.config.node_id,
                provenance.offset + 1,
                error,
            )
        finally:
            self._task = None

    async def settled(self) -> None:
        """Waits for a snapshot under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        self._disabled = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
