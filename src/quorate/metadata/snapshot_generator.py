"""Decides when a node writes a snapshot of its metadata (KIP-630): after a number of committed bytes, or
after some time if anything changed.

Every node writes snapshots, brokers included, since its log would otherwise only grow. The image is a
value, so that the snapshot is written in slices while more records are applied. Only one snapshot is
written at a time, and none inside a metadata transaction. Source: Kafka's SnapshotGenerator and
SnapshotGenerator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from quorate.lazy import lazy_module
from quorate.metadata.errors import MetadataError
from quorate.metadata.image import MetadataImage
from quorate.protocol.errors import KafkaError

if TYPE_CHECKING:
    from quorate.metadata import snapshot
else:  # a node needs it when it writes its first snapshot
    snapshot = lazy_module("quorate.metadata.snapshot")

logger = logging.getLogger(__name__)


class SnapshotStore(Protocol):
    """The owner of the log, which writes snapshots: the Raft client."""

    @property
    def kraft_version_finalised(self) -> int: ...
    async def create_snapshot(
        self, end_offset: int, epoch: int, last_timestamp_ms: int, batches: Iterable[bytes]
    ) -> Any: ...


class SnapshotGenerator:
    """Counts the committed bytes and starts the writing of snapshots. `interval_s` is 0 if time alone
    does not cause a snapshot."""

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
        self.loaded_count = 0
        """Snapshots that were loaded since the start."""
        self.latest_bytes = 0
        """The size of the batches of the newest snapshot that was written; 0 without one."""
        self.latest_ms = now_ms()
        """When the newest snapshot was written, or when this object was created."""

    def loaded(self, end_offset: int) -> None:
        """Notes that the metadata was loaded from a snapshot."""
        self.end_offset = end_offset
        self._bytes = 0
        self.loaded_count += 1

    def committed(self, image: MetadataImage, last_offset: int, size_bytes: int, now: float) -> None:
        """Notes committed batches up to `last_offset`, and writes a snapshot if one is due. `image` is
        the metadata that has been replayed; `now` is the monotonic time in seconds."""
        if self._last_at is None:
            self._last_at = now
        self._bytes += size_bytes
        by_time = 0 < self._interval_s <= now - self._last_at
        if self._bytes < self._max_bytes and not by_time:
            return
        if self._task is not None or self._closed or image.transaction is not None:
            return
        if image.provenance.offset != last_offset or last_offset < self.end_offset:
            return  # only a part of a write has been replayed, or there is nothing new
        self._bytes = 0
        self._last_at = now
        self._task = asyncio.get_running_loop().create_task(self._write(image))

    async def _write(self, image: MetadataImage) -> None:
        end_offset, epoch, timestamp_ms = (
            image.provenance.offset + 1,
            image.provenance.epoch,
            image.provenance.timestamp_ms,
        )
        size = 0

        def counted(batches: Iterable[bytes]) -> Iterator[bytes]:
            nonlocal size
            for batch in batches:
                size += len(batch)
                yield batch

        try:
            batches = snapshot.data_batches(
                image,
                base_offset=snapshot.data_base_offset(self._store.kraft_version_finalised),
                epoch=epoch,
                timestamp_ms=self._now_ms(),
            )
            await self._store.create_snapshot(end_offset, epoch, timestamp_ms, counted(batches))
            self.end_offset = end_offset
            self.written += 1
            self.latest_bytes, self.latest_ms = size, self._now_ms()
        except (MetadataError, ValueError, OSError, KafkaError) as error:
            # KafkaError means that a log directory failed. The log still has all records, so the node
            # continues, and the next attempt logs its own error.
            logger.error(
                "[SnapshotGenerator id=%d] Snapshot at offset %d failed: %s", self._node_id, end_offset, error
            )
        finally:
            self._task = None

    async def settled(self) -> None:
        """Waits until no snapshot is being written."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Cancels a snapshot that is being written."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
