"""Reads the committed metadata log of a running quorum into a sink, as an observer without an id.

A leader whose log does not begin at offset 0 sends its snapshot first. A reader that loses the leader keeps
what it has, and continues with the next leader.
"""

from __future__ import annotations

import io
from typing import Protocol

from quorate.admin.errors import KafkaError, NetError
from quorate.admin.metadata_log import LEADER_ERRORS, Fetched, MetadataObserver, first_readable_offset
from quorate.dataclass import dataclass
from quorate.protocol.metadata_partition import METADATA_TOPIC

MAX_WAIT_MS = 500
"""How long the controller may wait for new records before it answers a Fetch."""


class AnotherLogError(Exception):
    """The quorum no longer has the records that were read: it is another cluster than before."""


@dataclass(slots=True, frozen=True)
class SnapshotOfLeader:
    """A snapshot that a leader sends, and the log that it has."""

    end_offset: int
    epoch: int
    log_start_offset: int
    leader_epoch: int

    @property
    def first_readable_offset(self) -> int:
        """Where the log of the leader can be read from, with `leader_epoch`."""
        return first_readable_offset(self.log_start_offset)


class Sink(Protocol):
    """Receives the committed log of a quorum, and its snapshot if the log begins later."""

    @property
    def end_offset(self) -> int:
        """The offset that is fetched next."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the record before it."""

    def take(self, data: bytes, name: str, *, end: int | None = None) -> None:
        """Receives batches. Those up to `end` are committed. Raises MetadataError."""

    def load(self, data: memoryview, found: SnapshotOfLeader) -> None:
        """Receives the content of a snapshot, because the leader does not have `end_offset` in its
        log. Raises MetadataError."""


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

        Once the log has been read, the leader may wait `max_wait_ms` for new ones. Raises
        KafkaError, NetError, AnotherLogError, and the errors of the sink.
        """
        before = self._sink.end_offset
        found = await observer.fetch(
            before, self._sink.last_epoch, max_wait_ms=max_wait_ms if self.caught_up else 0
        )
        if found.snapshot is not None:
            await self._fetch_snapshot(observer, found)
            return True
        if found.diverging_end_offset is not None:  # only committed records were read: another cluster
            raise AnotherLogError("the metadata log of the quorum is another than before")
        if found.records:
            self._sink.take(found.records, METADATA_TOPIC, end=found.high_watermark)
        self.log_start_offset = found.log_start_offset
        if self._sink.end_offset >= found.high_watermark:
            self.caught_up = True
        return self._sink.end_offset > before

    async def _fetch_snapshot(self, observer: MetadataObserver, found: Fetched) -> None:
        assert found.snapshot is not None
        content = io.BytesIO()
        await observer.download(found.snapshot, content)
        self._sink.load(
            content.getbuffer(),
            SnapshotOfLeader(*found.snapshot, found.log_start_offset, observer.leader_epoch),
        )
        self.snapshot_end_offset = found.snapshot.end_offset
