"""What the leader's state machine has proposed and is not yet written: cut into batches when the log
can take them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quorate.raft.types import MAX_BATCH_BYTES, BatchTooLargeError, CommittedBatch
from quorate.records.batch import BATCH_OVERHEAD, build_metadata_batch

RECORD_OVERHEAD = 24  # at most: length 5, attributes 1, deltas 1 + 5, key 1, value length 5, headers 1


class Proposals:
    """Values in order, with the offsets that they will have."""

    __slots__ = ("_groups", "next_offset")

    def __init__(self) -> None:
        self._groups: list[
            tuple[Sequence[bytes], int]
        ] = []  # (values that stay together, their size at most)
        self.next_offset = 0

    @property
    def pending(self) -> bool:
        return bool(self._groups)

    def reset(self, next_offset: int) -> None:
        """Nothing is pending and the next record gets this offset."""
        self.clear()
        self.next_offset = next_offset

    def clear(self) -> None:
        self._groups.clear()

    def add(self, values: Sequence[bytes], atomic: bool) -> int:
        """Offset of the last one. Raises BatchTooLargeError, ValueError for none at all."""
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
        """Everything pending as batches, as few as the size limit allows; then nothing is pending."""
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
