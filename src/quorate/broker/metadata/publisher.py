"""Follows the metadata log on a broker: committed batches become images, and the steps between images
are published.

The broker role reads through the interface that an observer uses, also in a combined process.
Subscribers are called in the order in which they registered, each with the whole step; what a
subscriber reads from the cache is already the new image.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from quorate.metadata.errors import MetadataError
from quorate.metadata.image import EMPTY, MetadataDelta
from quorate.metadata.shared_replay import SharedReplay, too_many_at_once

if TYPE_CHECKING:
    from quorate.broker.metadata.cache import MetadataCache
    from quorate.metadata.image import MetadataImage
    from quorate.metadata.snapshot_emitter import SnapshotEmitter
    from quorate.raft.runtime.delivery import Steps
    from quorate.raft.types import CommittedBatch, LeaderAndEpoch, OffsetEpoch

log_ = logging.getLogger("quorate.broker.metadata")

Subscriber = Callable[["MetadataDelta"], None]


class BrokerMetadataListener:
    """A RaftListener. Until `start_publishing`, images are made but not shown: a broker that is
    catching up must not act on history."""

    def __init__(
        self,
        node_id: int,
        cache: MetadataCache,
        loop: asyncio.AbstractEventLoop,
        on_fault: Callable[[BaseException], None],
        replay: SharedReplay | None = None,
        snapshots: SnapshotEmitter | None = None,
    ) -> None:
        self._node_id = node_id
        self._replay = replay or SharedReplay()
        self._snapshots = snapshots
        self._cache = cache
        self._loop = loop
        self._on_fault = on_fault
        self._subscribers: list[tuple[str, Subscriber]] = []
        self._leader_listeners: list[Callable[[LeaderAndEpoch], None]] = []
        self._publishing = False
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._conditions: list[tuple[Callable[[MetadataImage], bool], asyncio.Future[None]]] = []
        self._order = itertools.count()
        self.image: MetadataImage = EMPTY
        """The image of everything delivered, published or not; in a combined node it may be ahead of that."""
        self.offset = -1
        """The last metadata offset that was delivered, control records included; what heartbeats report."""

    # --- RaftListener -----------------------------------------------------------------------------

    def on_commit(self, batches: list[CommittedBatch]) -> Steps | None:
        if not batches:
            return None
        if too_many_at_once(batches):
            return self._take_in_steps(batches)
        try:
            image = self._replay.apply(self.image, batches, ahead=True)
        except MetadataError as error:
            self._on_fault(error)
            raise
        self._taken(batches, image)
        return None

    def _take_in_steps(self, batches: list[CommittedBatch]) -> Steps:
        try:
            image = yield from self._replay.apply_steps(self.image, batches, ahead=True)
        except MetadataError as error:
            self._on_fault(error)
            raise
        self._taken(batches, image)

    def _taken(self, batches: list[CommittedBatch], image: MetadataImage) -> None:
        self.offset = batches[-1].last_offset
        self._advance(image)
        if self._snapshots is not None:
            size = sum(batch.size_bytes for batch in batches)
            self._snapshots.committed(image, self.offset, size, self._loop.time())

    def on_snapshot(self, snapshot_id: OffsetEpoch, batches: Iterator[CommittedBatch]) -> Steps:
        log_.info(
            "[MetadataListener id=%d] Loading snapshot %d-%d",
            self._node_id,
            snapshot_id.offset,
            snapshot_id.epoch,
        )
        try:
            image = yield from self._replay.load_steps(
                snapshot_id.offset, snapshot_id.epoch, batches, ahead=True
            )
        except MetadataError as error:
            self._on_fault(error)
            raise
        self.offset = snapshot_id.offset - 1
        if self._snapshots is not None:
            self._snapshots.loaded(snapshot_id.offset)
        self._advance(image)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        for listener in self._leader_listeners:
            listener(leader)

    def on_high_watermark(self, hwm: int) -> None:
        pass

    # --- publishing -------------------------------------------------------------------------------

    def subscribe(self, name: str, subscriber: Subscriber) -> None:
        """`name` is for the log."""
        self._subscribers.append((name, subscriber))

    def on_leader(self, listener: Callable[[LeaderAndEpoch], None]) -> None:
        self._leader_listeners.append(listener)

    def start_publishing(self) -> MetadataImage:
        """Shows the current image in the cache; from now on each step is published. The caller acts on
        this first image."""
        self._publishing = True
        self._cache.image = self.image
        return self.image

    def _advance(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        if self._publishing and image is not old:
            self._cache.image = image
            if self._subscribers:
                delta = MetadataDelta(old, image)
                for name, subscriber in self._subscribers:
                    try:
                        subscriber(delta)
                    except Exception as error:
                        log_.exception(
                            "[MetadataListener id=%d] %s failed to take metadata up to offset %d",
                            self._node_id,
                            name,
                            self.offset,
                        )
                        self._on_fault(error)
        while self._waiters and self._waiters[0][0] <= self.offset:
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)
        if self._conditions:
            self._conditions = [entry for entry in self._conditions if not _settled(entry, image)]

    # --- waiting ----------------------------------------------------------------------------------

    async def wait_for_offset(self, offset: int, timeout_s: float) -> bool:
        """Whether everything up to `offset` was delivered within the time."""
        if offset <= self.offset:
            return True
        future: asyncio.Future[None] = self._loop.create_future()
        heapq.heappush(self._waiters, (offset, next(self._order), future))
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        return True

    async def wait_until(self, condition: Callable[[MetadataImage], bool], timeout_s: float | None) -> bool:
        """Whether an image for which `condition` holds was delivered within the time; looked at once
        per delivery."""
        if condition(self.image):
            return True
        future: asyncio.Future[None] = self._loop.create_future()
        self._conditions.append((condition, future))
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        return True


def _settled(
    entry: tuple[Callable[[MetadataImage], bool], asyncio.Future[None]], image: MetadataImage
) -> bool:
    condition, future = entry
    if future.done():
        return True
    if condition(image):
        future.set_result(None)
        return True
    return False
