"""Leader epochs of one log and the offset where each began (KIP-101, KIP-279), kept in
`leader-epoch-checkpoint`.

The file must know all epochs of the records below the recovery point; those above are found again in
the batches that recovery scans. So it is written when the log is flushed, rolled, truncated or closed,
and not on each new epoch: starting a broker with thousands of partitions gives each a new epoch, and
costs no thousand fsyncs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

UNDEFINED = -1


class EpochCache:
    """Entries ascend in epoch and in start offset. Pure; the log saves `entries()` when `dirty`."""

    __slots__ = ("_epochs", "_starts", "dirty")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.dirty = False
        for epoch, start in entries or ():
            self.assign(epoch, start)
        self.dirty = False

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs[-1] if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Notes that `epoch` begins at `start_offset`; entries that contradict it go. Whether anything
        changed.

        Raises ValueError.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"Received invalid partition leader epoch entry ({epoch}, {start_offset})")
        if self._epochs and self._epochs[-1] == epoch and self._starts[-1] <= start_offset:
            return False  # the common case: one more batch of the same epoch
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.dirty = True
        return True

    def correct(self, epoch: int, offset: int) -> None:
        """A batch of this epoch stands at this offset: entries that say otherwise go. (A crash may
        bring back a log that had been truncated and written anew, while the file of the newer epochs
        was durable.)"""
        if epoch < 0 or self.epoch_for(offset) == epoch:
            return
        while self._epochs and (self._epochs[-1] > epoch or self._starts[-1] > offset):
            self._epochs.pop()
            self._starts.pop()
            self.dirty = True
        self.assign(epoch, offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch not above `epoch`; (-1, -1) when it is not known."""
        if epoch == UNDEFINED or not self._epochs:
            return UNDEFINED, UNDEFINED
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return UNDEFINED, UNDEFINED
        end = self._starts[above]
        return (self._epochs[above - 1], end) if above else (epoch, end)

    def epoch_for(self, offset: int) -> int | None:
        """The epoch of the record at `offset`."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else None

    def earliest(self) -> tuple[int, int] | None:
        return (self._epochs[0], self._starts[0]) if self._epochs else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Forgets epochs that begin at or after `end_offset`."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._starts[keep:], self._epochs[keep:]
            self.dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """The epoch in force at `start_offset` begins there now; those before it go."""
        at = bisect_right(self._starts, start_offset)
        if at and (at > 1 or self._starts[0] != start_offset):
            del self._starts[: at - 1], self._epochs[: at - 1]
            self._starts[0] = start_offset
            self.dirty = True

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self.dirty = True
