"""Accumulates the records that the leader's state machine proposes, and divides them into batches.

The counterpart of Kafka's `BatchAccumulator`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quorate.raft.types import MAX_BATCH_BYTES, BatchTooLargeError, CommittedBatch
from quorate.records.batch import BATCH_OVERHEAD, build_metadata_batch

RECORD_OVERHEAD = 24  # at most: length 5, attributes 1, deltas 1 + 5, key 1, value length 5, headers 1


class Proposals:
    """The proposed records that are not in the log yet, in order."""

    __slots__ = ("_groups", "next_offset")

    def __init__(self, next_offset: int = 0) -> None:
        # Values that stay together in one batch, and the greatest size that they can have.
        self._groups: list[tuple[Sequence[bytes], int]] = []
        self.next_offset = next_offset

    @property
    def pending(self) -> bool:
        return bool(self._groups)

    def reset(self, next_offset: int) -> None:
        """Drops what is pending. The next record gets this offset."""
        self.clear()
        self.next_offset = next_offset

    def clear(self) -> None:
        self._groups.clear()

    def add(self, values: Sequence[bytes], atomic: bool) -> int:
        """Adds records and returns the offset of the last one.

        Raises BatchTooLargeError, and ValueError if there are none.
        """
        if not values:
            raise ValueError("an append of no records")
        size = sum(map(len, values)) + RECORD_OVERHEAD * len(values)
        if size <= MAX_BATCH_BYTES - BATCH_OVERHEAD:
            self._groups.append((values, size))
        elif atomic:
            raise BatchTooLargeError(f"{len(values)} records of {size} bytes do not fit one batch")
        else:
            self._split(values)
        self.next_offset += len(values)
        return self.next_offset - 1

    def _split(self, values: Sequence[bytes]) -> None:
        groups: list[tuple[Sequence[bytes], int]] = []
        group: list[bytes] = []
        size = 0
        for value in values:
            one = len(value) + RECORD_OVERHEAD
            if one > MAX_BATCH_BYTES - BATCH_OVERHEAD:
                raise BatchTooLargeError(f"a record of {len(value)} bytes")
            if size + one > MAX_BATCH_BYTES - BATCH_OVERHEAD:
                groups.append((group, size))
                group, size = [], 0
            group.append(value)
            size += one
        groups.append((group, size))
        self._groups += groups

    def take(self, epoch: int, now_ms: int) -> Iterator[tuple[CommittedBatch, bytes]]:
        """Removes everything pending and yields it in as few batches as the size limit allows."""
        groups, count = self._groups, sum(len(g) for g, _ in self._groups)
        self._groups = []
        offset = self.next_offset - count
        at = 0
        while at < len(groups):
            values, size = groups[at]
            at += 1
            if at < len(groups) and size + groups[at][1] <= MAX_BATCH_BYTES - BATCH_OVERHEAD:
                values = list(values)
                while at < len(groups) and size + groups[at][1] <= MAX_BATCH_BYTES - BATCH_OVERHEAD:
                    values += groups[at][0]
                    size += groups[at][1]
                    at += 1
            data = build_metadata_batch(values, base_offset=offset, leader_epoch=epoch, timestamp=now_ms)
            last = offset + len(values) - 1
            yield CommittedBatch(offset, last, epoch, now_ms, values, len(data)), data
            offset = last + 1
