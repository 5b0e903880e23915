"""The leader epochs of one log and their start offsets (KIP-101, KIP-279). Does no I/O.

`leader-epoch-checkpoint` must hold all epochs of the records below the recovery point; recovery finds
later ones in the batches. The file is therefore written when the log is flushed, rolled or closed,
and not for each new epoch or truncation. At the start of a broker each of its partitions gets a new epoch,
which would otherwise cost thousands of fsyncs.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right

UNDEFINED = -1


class EpochCache:
    """Entries with ascending epochs and start offsets (Kafka's LeaderEpochFileCache). `dirty` is set when
    they change; the log resets it when it writes the checkpoint. `entries` may be called in any thread."""

    __slots__ = ("_epochs", "_lock", "_starts", "dirty")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._lock = threading.Lock()
        """Held while both lists change or are read together."""
        self.dirty = False
        for epoch, start in entries or ():
            self.assign(epoch, start)
        self.dirty = False

    def entries(self) -> list[tuple[int, int]]:
        with self._lock:
            return list(zip(self._epochs, self._starts, strict=True))

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs[-1] if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Adds an epoch that begins at `start_offset`, and removes entries that contradict it. Returns
        whether the cache has changed. Raises ValueError."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"Received invalid partition leader epoch entry ({epoch}, {start_offset})")
        if self._epochs and self._epochs[-1] == epoch and self._starts[-1] <= start_offset:
            return False  # the common case: one more batch of the same epoch
        with self._lock:
            while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
                self._epochs.pop()
                self._starts.pop()
            self._epochs.append(epoch)
            self._starts.append(start_offset)
            self.dirty = True
        return True

    def correct(self, epoch: int, offset: int) -> None:
        """Corrects the entries by a batch of this epoch at this offset. After a crash the checkpoint may
        be newer than the log, if the log was truncated and written again."""
        if epoch < 0 or self.epoch_for(offset) == epoch:
            return
        with self._lock:
            while self._epochs and (self._epochs[-1] > epoch or self._starts[-1] > offset):
                self._epochs.pop()
                self._starts.pop()
                self.dirty = True
        self.assign(epoch, offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch not above `epoch`; (-1, -1) if it is unknown."""
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
        """The epoch of the record at `offset`, None if it is unknown."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else None

    def earliest(self) -> tuple[int, int] | None:
        return (self._epochs[0], self._starts[0]) if self._epochs else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Removes the epochs that begin at or after `end_offset`."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            with self._lock:
                del self._starts[keep:], self._epochs[keep:]
                self.dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Lets the epoch of `start_offset` begin there, and removes the epochs before it."""
        at = bisect_right(self._starts, start_offset)
        if at and (at > 1 or self._starts[0] != start_offset):
            with self._lock:
                del self._starts[: at - 1], self._epochs[: at - 1]
                self._starts[0] = start_offset
                self.dirty = True

    def clear(self) -> None:
        if self._epochs:
            with self._lock:
                self._epochs.clear()
                self._starts.clear()
                self.dirty = True
