"""Follows the metadata log on a broker: makes images from committed batches and publishes the deltas
between them (`BrokerMetadataPublisher` in Kafka).

The broker reads the log as an observer does, also in a combined process. Subscribers are called in the
order of their registration, each with the complete delta. The cache has the new image at that time.
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
    from quorate.metadata.snapshot_generator import SnapshotGenerator
    from quorate.raft.runtime.delivery import Steps
    from quorate.raft.types import CommittedBatch, LeaderAndEpoch, OffsetEpoch

logger = logging.getLogger("quorate.broker.metadata")

Subscriber = Callable[["MetadataDelta"], None]


class BrokerMetadataListener:
    """A RaftListener that publishes images. Before `start_publishing` images are not published, because a
    broker that is catching up must not act on old metadata. `on_fault` is called with the error of a record
    that cannot be replayed, after which the broker must stop."""

    def __init__(
        self,
        node_id: int,
        cache: MetadataCache,
        loop: asyncio.AbstractEventLoop,
        on_fault: Callable[[BaseException], None],
        replay: SharedReplay | None = None,
        snapshots: SnapshotGenerator | None = None,
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
        """The image of all delivered batches, published or not. In a combined node it may be ahead."""
        self.offset = -1
        """The last delivered offset, including control records. Heartbeats report it."""
        self.apply_errors = 0
        """How often a subscriber has raised an error. The broker continues, as in Kafka: a record that one
        subscriber cannot apply would otherwise stop all brokers at the same time."""

    # --- RaftListener -----------------------------------------------------------------------------

    def on_commit(self, batches: list[CommittedBatch]) -> Steps | None:
        """Applies committed batches to the image of the broker."""
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
        """Replaces the image of the broker by a snapshot."""
        logger.info(
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
        """Calls the listeners for the new leader."""
        for listener in self._leader_listeners:
            listener(leader)

    def on_high_watermark(self, hwm: int) -> None:
        """Does nothing: only committed batches are delivered."""

    # --- publishing -------------------------------------------------------------------------------

    def subscribe(self, name: str, subscriber: Subscriber) -> None:
        """Calls `subscriber` with every delta. `name` is for the log."""
        self._subscribers.append((name, subscriber))

    def on_leader(self, listener: Callable[[LeaderAndEpoch], None]) -> None:
        """Calls `listener` after every change of the leader of the metadata log."""
        self._leader_listeners.append(listener)

    def start_publishing(self) -> MetadataImage:
        """Publishes the current image to the cache, and from now on each delta. Returns the image, which the
        caller applies, as subscribers get no delta for it."""
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
                    except Exception:
                        self.apply_errors += 1
                        logger.exception(
                            "[MetadataListener id=%d] %s failed to apply the metadata up to offset %d",
                            self._node_id,
                            name,
                            self.offset,
                        )
        while self._waiters and self._waiters[0][0] <= self.offset:
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)
        if self._conditions:
            self._conditions = [entry for entry in self._conditions if not _settled(entry, image)]

    # --- waiting ----------------------------------------------------------------------------------

    async def wait_for_offset(self, offset: int, timeout_s: float) -> bool:
        """Waits until `offset` was delivered. Returns False after the timeout."""
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
        """Waits for an image that satisfies `condition`, which is called once for each delivery. Returns
        False after the timeout."""
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
