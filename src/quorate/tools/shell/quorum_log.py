"""Fetches the committed metadata log of a running quorum, as an observer without an id.

A leader whose log does not begin at offset 0 sends its snapshot first. An observer that loses the leader keeps
what it has, and continues with the next leader.
"""

from __future__ import annotations

from typing import Protocol

from quorate.admin.errors import KafkaError, NetError
from quorate.admin.metadata_log import LEADER_ERRORS, Fetched, MetadataObserver
from quorate.metadata.errors import MetadataError
from quorate.metadata.snapshot import Snapshot, read_snapshot
from quorate.protocol.metadata_partition import METADATA_TOPIC
from quorate.tools.shell.source import SnapshotOfLeader

MAX_WAIT_MS = 500
"""How long the controller may wait for new records before it answers a Fetch."""


class Sink(Protocol):
    """Receives the log."""

    @property
    def end_offset(self) -> int:
        """The offset that is fetched next."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the record before it."""

    def take(self, data: bytes, name: str, *, end: int | None = None) -> None:
        """Receives batches. Those up to `end` are committed. Raises MetadataError."""

    def load(self, snapshot: Snapshot, found: SnapshotOfLeader) -> None:
        """Receives a snapshot, because the leader does not have `end_offset` in its log. Raises
        MetadataError."""


class QuorumLog:
    """The log of a quorum, which `fetch` and `step` read into a sink.

    Attributes:
        caught_up: Whether the sink has had the committed log once.
        lost: The error because of which the leader could not be asked last, or None.
        log_start_offset: Where the log of the leader begins.
        snapshot_end_offset: Where the snapshot ends that was read before the log, 0 without one.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.caught_up = False
        self.lost: Exception | None = None
        self.log_start_offset = 0
        self.snapshot_end_offset = 0

    async def step(self, observer: MetadataObserver) -> bool:
        """Fetches once, and returns whether there were records. An error of the network is kept in `lost`
        once the log has been read, and raised before."""
        try:
            progress = await self.fetch(observer, MAX_WAIT_MS)
            self.lost = None
        except (KafkaError, NetError) as error:
            if not self.caught_up and not (isinstance(error, KafkaError) and error.code in LEADER_ERRORS):
                raise
            self.lost = error
            return False
        return progress

    async def fetch(self, observer: MetadataObserver, max_wait_ms: int) -> bool:
        """Reads the next records. Returns whether there were any.

        Once the log has been read, the leader may wait `max_wait_ms` for new ones. Raises KafkaError, NetError and
        MetadataError.
        """
        before = self._sink.end_offset
        found = await observer.fetch(
            before, self._sink.last_epoch, max_wait_ms=max_wait_ms if self.caught_up else 0
        )
        if found.snapshot is not None:
            await self._fetch_snapshot(observer, found)
            return True
        if found.diverging_end_offset is not None:  # only committed records were read: another cluster
            raise MetadataError("the metadata log of the quorum is another than before")
        if found.records:
            self._sink.take(found.records, METADATA_TOPIC, end=found.high_watermark)
        self.log_start_offset = found.log_start_offset
        if self._sink.end_offset >= found.high_watermark:
            self.caught_up = True
        return self._sink.end_offset > before

    async def _fetch_snapshot(self, observer: MetadataObserver, found: Fetched) -> None:
        assert found.snapshot is not None
        data = bytearray()
        size = -1
        while size < 0 or len(data) < size:
            size, part = await observer.fetch_snapshot(found.snapshot, len(data))
            data += part
        self._sink.load(
            read_snapshot(memoryview(data)),
            SnapshotOfLeader(*found.snapshot, found.log_start_offset, observer.leader_epoch),
        )
        self.snapshot_end_offset = found.snapshot.end_offset
