"""Appends the records of all requests of one turn of the event loop as one batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic

from quorate.broker.coordinators.context import Answer, CoordinatorContext, ShardT, WriteBatch
from quorate.broker.coordinators.result import CoordinatorResult, StepTime, operation_error
from quorate.clock import Clock
from quorate.protocol.errors import ErrorCode

BATCH_BYTES = 16_384
"""The size of a batch of several requests, as Kafka's producers fill it: below a millisecond of the event
loop."""

WRITE_SLICE_S = 0.003
"""The time for batches of several requests in one turn of the event loop."""

CHUNK_BYTES = 512 * 1024
"""The largest batch of records that need not be atomic: half of the default `max.message.bytes`."""


def chunks(
    records: list[Any], encode_record: Callable[[Any], tuple[bytes, bytes | None]], limit: int
) -> Iterator[list[Any]]:
    """Divides records that need not be atomic into batches of at most `limit` and CHUNK_BYTES. A larger
    record has a batch of its own."""
    limit = min(limit, CHUNK_BYTES)
    chunk: list[Any] = []
    size = 0
    for record in records:
        key, value = encode_record(record)
        added = len(key) + len(value or b"") + 32
        if chunk and size + added > limit:
            yield chunk
            chunk, size = [], 0
        chunk.append(record)
        size += added
    if chunk:
        yield chunk


class BatchWriter(Generic[ShardT]):
    """For each partition, appends the records of all requests of one turn of the event loop as one
    batch. Kafka's coordinators do the same by default (`group.coordinator.append.linger.ms` is -1):
    a batch is appended after the requests that had arrived.

    A step or a read that depends on the newest state calls `flush` before. Therefore the log has the order of
    the requests, and a failed append reverts only its own batch.
    """

    __slots__ = ("_clock", "_limit", "_unwritten", "_write")

    def __init__(
        self,
        clock: Clock,
        limit: Callable[[int], int],
        write: Callable[[CoordinatorContext[ShardT], CoordinatorResult, Any], None],
    ) -> None:
        """`limit` returns the largest size of a batch of a partition. `write` carries out a result; its last
        argument is the state before it."""
        self._clock = clock
        self._limit = limit
        self._write = write
        self._unwritten: deque[CoordinatorContext[ShardT]] = deque()

    def add(self, context: CoordinatorContext[ShardT], records: list[Any], size: int, value: Any) -> Answer:
        """Adds records of at most `size` bytes. The future returns `value` when the records are committed, or
        fails with a KafkaError that is meant for the client."""
        loop = asyncio.get_running_loop()
        batch = context.batch
        if batch is None or not batch.has_room(size):
            self.flush(context)
            batch = context.batch = WriteBatch(min(BATCH_BYTES, self._limit(context.partition)))
            if not self._unwritten:
                loop.call_soon(self._flush_all)
            self._unwritten.append(context)
        answer: Answer = loop.create_future()
        batch.add(records, size, answer, value)
        return answer

    def flush(self, context: CoordinatorContext[ShardT]) -> None:
        """Appends the records of a partition now."""
        batch = context.batch
        if batch is None:
            return
        context.batch = None
        context.pending_batches.add(batch)

        def complete(error: ErrorCode, _: StepTime) -> CoordinatorResult:
            context.pending_batches.discard(batch)
            batch.complete(operation_error(error))
            return CoordinatorResult()

        self._write(context, CoordinatorResult(batch.records, after=complete), context.shard.state)

    def _flush_all(self) -> None:
        ends = self._clock.now() + WRITE_SLICE_S
        while self._unwritten:
            self.flush(self._unwritten.popleft())
            if self._clock.now() >= ends:
                break
        if self._unwritten:
            asyncio.get_running_loop().call_soon(self._flush_all)
