"""The runtime's view of one partition: its shard, its loading, its committed state, and the batch that is
being filled (`CoordinatorContext`, `SnapshottableCoordinator` and `CoordinatorBatch` in Kafka)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Generic, TypeVar

from quorate.broker.coordinators.shard import CoordinatorShard
from quorate.protocol.errors import ErrorCode, KafkaError

ShardT = TypeVar("ShardT", bound=CoordinatorShard)

Answer = asyncio.Future[Any]
"""The future of a response. Shards see it as a token."""


class WriteBatch:
    """Records of several requests that are appended as one batch. They are applied to the state when they are
    appended."""

    __slots__ = ("_answers", "_limit", "_size", "records")

    def __init__(self, limit: int) -> None:
        self.records: list[Any] = []
        self._answers: list[tuple[Answer, Any]] = []
        self._limit = limit
        self._size = 0

    def has_room(self, size: int) -> bool:
        """Whether records of at most `size` bytes fit."""
        return self._size + size <= self._limit

    def add(self, records: list[Any], size: int, answer: Answer, value: Any) -> None:
        """Adds the records of a request that is answered with `value`."""
        self.records += records
        self._answers.append((answer, value))
        self._size += size

    def complete(self, error: ErrorCode) -> None:
        """Answers the requests, or fails them with `error`."""
        for answer, value in self._answers:
            if answer.done():
                continue
            if error is ErrorCode.NONE:
                answer.set_result(value)
            else:
                answer.set_exception(KafkaError(error))


class CoordinatorContext(Generic[ShardT]):
    """A shard, loading at first, then active until the broker stops leading its partition."""

    __slots__ = (
        "_committed",
        "_uncommitted",
        "batch",
        "deleted_topics",
        "error",
        "leader_epoch",
        "loader",
        "partition",
        "pending",
        "pending_batches",
        "shard",
        "uncommitted_at_load",
    )

    def __init__(self, partition: int, leader_epoch: int, shard: ShardT) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.shard = shard
        self._committed: Any = shard.state
        self._uncommitted: deque[tuple[int, Any]] = deque()
        """For each batch that is not committed yet: its end offset, and the state after it."""
        self.uncommitted_at_load: tuple[int, Any] | None = None
        """The end offset of the loaded log and the state there, or None when the high watermark has passed
        it. Until then an earlier leader may have acknowledged records that are not known to be committed
        here."""
        self.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """The error of requests to this shard; NONE when it is active."""
        self.pending: set[Answer] = set()
        """Unanswered requests. They fail with NOT_COORDINATOR when the partition moves away."""
        self.batch: WriteBatch | None = None
        """The batch that is being filled."""
        self.pending_batches: set[WriteBatch] = set()
        """The batches that are appended and not committed."""
        self.loader: asyncio.Task[None] | None = None
        self.deleted_topics: set[str] = set()
        """Topics that were deleted before the loading ended."""

    def update_last_written_offset(self, end_offset: int) -> None:
        """Notes that the newest state contains the log up to `end_offset`."""
        self._uncommitted.append((end_offset, self.shard.state))

    def committed_state(self, high_watermark: int) -> Any:
        """The state of the log up to the high watermark, which never decreases while this broker leads."""
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] <= high_watermark:
            self._committed = uncommitted.popleft()[1]
        if self.uncommitted_at_load is not None and self.uncommitted_at_load[0] <= high_watermark:
            self.uncommitted_at_load = None
        return self._committed

    def is_committed(self, high_watermark: int) -> bool:
        """Whether the newest state is committed."""
        self.committed_state(high_watermark)
        return not self._uncommitted

    def add_pending(self, answer: Answer) -> None:
        """Keeps a request until it is answered."""
        self.pending.add(answer)
        answer.add_done_callback(self.pending.discard)

    def fail_pending(self, error: ErrorCode) -> None:
        """Ends the unanswered requests with an error."""
        for answer in list(self.pending):
            if not answer.done():
                answer.set_exception(KafkaError(error))
        self.pending.clear()
        for batch in (*self.pending_batches, *([] if self.batch is None else [self.batch])):
            batch.complete(error)
        self.pending_batches.clear()
        self.batch = None
