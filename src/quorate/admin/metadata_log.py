"""Reads the metadata log of a running quorum from its active controller.

The reader is an observer without an id, so that the quorum does not record it (KIP-595). Where the
log does not begin at 0, the active controller offers its newest snapshot instead (KIP-630).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import IO, Final, NamedTuple, TypeAlias

from quorate.admin.client import AdminClient
from quorate.admin.errors import ErrorCode, KafkaError, NetError, check
from quorate.protocol import messages
from quorate.protocol.metadata_partition import METADATA_TOPIC, METADATA_TOPIC_ID

MAX_FETCH_BYTES: Final = 8 << 20
"""The bytes that one response holds at most; a controller sends no more to any replica."""


LEADER_ERRORS: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""The errors of a node that is no longer the leader, or not yet. The leader must be found again."""


def first_readable_offset(log_start_offset: int) -> int:
    """The first offset that can be fetched from a log with the epoch of its leader.

    At the start of its log, a leader compares the epoch with that of the snapshot before it. For offset 0 it
    offers its snapshot, if it has one, though its log may have all records. The batch at the offset after the
    start usually has the first record, too.
    """
    return log_start_offset + 1


class SnapshotId(NamedTuple):
    """The name of a snapshot. It covers the offsets below `end_offset`."""

    end_offset: int
    epoch: int


class Fetched(NamedTuple):
    """The response of the active controller to a Fetch."""

    records: bytes
    """Batches from the one on that contains the offset. The last one may be cut, and records from the high
    watermark on are not committed."""
    high_watermark: int
    """-1 as long as a new active controller does not know it."""
    log_start_offset: int
    snapshot: SnapshotId | None = None
    """The snapshot to load instead, because the log no longer has the offset."""
    diverging_end_offset: int | None = None
    """Where the log of the quorum ends at most in the epoch of the Fetch, if it does not contain
    the offset."""

    def needs_no_snapshot(self, offset: int) -> bool:
        """Whether the log has all records from the offset of the Fetch on, though a snapshot is offered.

        It can be read from `first_readable_offset` on: a batch of its own at offset 0 has a
        LeaderChange only.
        """
        return offset == self.log_start_offset == 0


PartOfSnapshot: TypeAlias = tuple[int, bytes]
"""The size of a snapshot, and some of its bytes."""

Attempts: TypeAlias = Callable[[Callable[[], Awaitable[PartOfSnapshot]]], Awaitable[PartOfSnapshot]]
"""Makes a request for a part of a snapshot, again after an error if it wants to."""


async def _once(request: Callable[[], Awaitable[PartOfSnapshot]]) -> PartOfSnapshot:
    return await request()


class MetadataObserver:
    """Fetches batches and snapshots. It finds the active controller anew after an error."""

    def __init__(self, admin: AdminClient, cluster_id: str | None = None) -> None:
        """`admin` must connect to controllers.

        With a `cluster_id`, a controller of another cluster refuses.
        """
        self._admin = admin
        self._cluster_id = cluster_id
        self.leader_epoch = -1
        """The epoch of the leader that was asked last, or -1 if it must be found again."""

    async def cluster_id(self) -> str:
        """Returns the id of the cluster."""
        transport = self._admin.transport
        cluster = transport.cluster or await transport.refresh()
        return cluster.cluster_id

    async def fetch(
        self, offset: int, epoch: int | None, *, max_wait_ms: int = 0, max_bytes: int = MAX_FETCH_BYTES
    ) -> Fetched:
        """Fetches from an offset on, once. At least one batch is complete if there is one.

        `epoch` is that of the record before the offset, which the controller compares with its log.
        None is for offsets of which the epoch is not known: then only the end of the log is
        compared. Raises KafkaError and NetError.
        """
        try:
            return await self._fetch(offset, epoch, max_wait_ms, max_bytes)
        except (KafkaError, NetError):
            self.forget_leader()
            raise

    async def download(self, snapshot: SnapshotId, file: IO[bytes], attempts: Attempts = _once) -> int:
        """Writes a snapshot to a file and returns its size. `attempts` makes each of the requests.

        Raises the errors of `fetch_snapshot`.
        """
        position, size = 0, -1
        while size < 0 or position < size:

            async def request(position: int = position) -> PartOfSnapshot:
                return await self.fetch_snapshot(snapshot, position)

            size, part = await attempts(request)
            file.write(part)
            position += len(part)
        return size

    async def fetch_snapshot(self, snapshot: SnapshotId, position: int) -> PartOfSnapshot:
        """Returns the size of a snapshot and a part of it from a position on.

        Raises KafkaError and NetError, and SNAPSHOT_NOT_FOUND if the active controller does not have it.
        """
        try:
            return await self._fetch_snapshot(snapshot, position)
        except (KafkaError, NetError):
            self.forget_leader()
            raise

    def forget_leader(self) -> None:
        """Makes the next request find the active controller and its epoch again."""
        self.leader_epoch = -1
        self._admin.transport.doubt()

    async def _fetch(self, offset: int, epoch: int | None, max_wait_ms: int, max_bytes: int) -> Fetched:
        leader_epoch = await self._epoch()
        if epoch is not None and epoch > leader_epoch:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"The quorum is in epoch {leader_epoch}, which is before epoch {epoch} of offset "
                f"{offset - 1}.",
            )
        partition = messages.FetchRequest.FetchPartition(
            partition=0,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=leader_epoch if epoch is None else epoch,
            partition_max_bytes=max_bytes,
        )
        request = messages.FetchRequest(
            cluster_id=self._cluster_id,
            max_wait_ms=max_wait_ms,
            max_bytes=max_bytes,
            topics=[
                messages.FetchRequest.FetchTopic(
                    topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
                )
            ],
        )
        transport = self._admin.transport
        answer = await transport.ask(await transport.controller_address(), request)
        check(answer.error_code)
        found = answer.responses[0].partitions[0]
        check(found.error_code)
        snapshot, diverging = found.snapshot_id, found.diverging_epoch
        return Fetched(
            bytes(found.records or b""),
            found.high_watermark,
            found.log_start_offset,
            SnapshotId(snapshot.end_offset, snapshot.epoch) if snapshot.end_offset >= 0 else None,
            diverging.end_offset if diverging.end_offset >= 0 else None,
        )

    async def _fetch_snapshot(self, snapshot: SnapshotId, position: int) -> PartOfSnapshot:
        part = messages.FetchSnapshotRequest.PartitionSnapshot(
            partition=0,
            current_leader_epoch=await self._epoch(),
            snapshot_id=messages.FetchSnapshotRequest.SnapshotId(
                end_offset=snapshot.end_offset, epoch=snapshot.epoch
            ),
            position=position,
        )
        request = messages.FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            max_bytes=MAX_FETCH_BYTES,
            topics=[messages.FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=[part])],
        )
        transport = self._admin.transport
        answer = await transport.ask(await transport.controller_address(), request)
        check(answer.error_code)
        found = answer.topics[0].partitions[0]
        check(found.error_code)
        data = bytes(found.unaligned_records or b"")
        if not data and position < found.size:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, "The active controller sent an empty part of its snapshot."
            )
        return found.size, data

    async def _epoch(self) -> int:
        if self.leader_epoch < 0:
            self.leader_epoch = (await self._admin.describe_quorum()).leader_epoch
        return self.leader_epoch
