"""When a node writes a snapshot of its metadata (KIP-630): by bytes committed since the last one, or by
time if anything changed. Every node does, brokers too, or its log would only grow.

The image is a value, so that writing goes on in slices while the next records are applied. One at a
time, never inside a metadata transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from quorate.metadata.errors import MetadataError
from quorate.metadata.image import MetadataImage
from quorate.metadata.snapshot import data_base_offset, data_batches
from quorate.protocol.errors import KafkaError

log = logging.getLogger(__name__)


class SnapshotStore(Protocol):
    """Who keeps the log: the Raft client."""

    @property
    def kraft_version_finalised(self) -> int: ...
    async def create_snapshot(
        self, end_offset: int, epoch: int, last_timestamp_ms: int, batches: Iterable[bytes]
    ) -> Any: ...


class SnapshotEmitter:
    """Counts what is committed and has snapshots written. interval_s: 0 for none by time."""

    def __init__(
        self,
        store: SnapshotStore,
        node_id: int,
        *,
        max_bytes: int,
        interval_s: float,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._node_id = node_id
        self._max_bytes = max_bytes
        self._interval_s = interval_s
        self._now_ms = now_ms
        self._bytes = 0
        self._last_at: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.end_offset = 0
        """The first offset that the newest snapshot does not contain; 0 without one."""
        self.written = 0

    def loaded(self, end_offset: int) -> None:
        """The state was taken from a snapshot."""
        self.end_offset = end_offset
        self._bytes = 0

    def committed(self, image: MetadataImage, last_offset: int, size_bytes: int, now: float) -> None:
        """More is committed, up to last_offset; image: as far as it has been replayed. now: monotonic
        seconds."""
        if self._last_at is None:
            self._last_at = now
        self._bytes += size_bytes
        by_time = 0 < self._interval_s <= now - self._last_at
        if self._bytes < self._max_bytes and not by_time:
            return
        if self._task is not None or self._closed or image.transaction is not None:
            return
        if image.provenance.offset != last_offset or last_offset < self.end_offset:
            return  # in the midst of a write that takes several batches, or nothing new
        self._bytes = 0
        self._last_at = now
        self._task = asyncio.get_running_loop().create_task(self._write(image))

    async def _write(self, image: MetadataImage) -> None:
        end_offset, epoch, timestamp_ms = (
            image.provenance.offset + 1,
            image.provenance.epoch,
            image.provenance.timestamp_ms,
        )
        try:
            batches = data_batches(
                image,
                base_offset=data_base_offset(self._store.kraft_version_finalised),
                epoch=epoch,
                timestamp_ms=self._now_ms(),
            )
            await self._store.create_snapshot(end_offset, epoch, timestamp_ms, batches)
            self.end_offset = end_offset
            self.written += 1
        except (
            MetadataError,
            ValueError,
            OSError,
            KafkaError,
        ) as error:  # KafkaError: a log directory failed
            # The log still has everything: the node goes on, and says so at the next attempt again.
            log.error(
                "[SnapshotEmitter id=%d] Snapshot at offset %d failed: %s", self._node_id, end_offset, error
            )
        finally:
            self._task = None

    async def settled(self) -> None:
        """Waits for a snapshot under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
