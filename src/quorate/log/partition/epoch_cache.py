"""The leader epochs of one log and their start offsets (KIP-101, KIP-279). Does no I/O.

`leader-epoch-checkpoint` must hold all epochs of the records below the recovery point; recovery finds
later ones in the batches. The file is therefore written when the log is flushed, rolled or closed,
and not for each new epoch or truncation. At the start of a broker each of its partitions gets a new epoch,
which would otherwise cost thousands of fsyncs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quorate.records.batch import BatchHeader

UNDEFINED = -1


class EpochCache:
    """Entries with ascending epochs and start offsets (Kafka's LeaderEpochFileCache). `dirty` is set when
    they change; the log resets it when it writes the checkpoint. `entries` may be called in any thread."""

    __slots__ = ("_columns", "_saved", "dirty")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._columns: tuple[list[int], list[int]] = ([], [])
        """The epochs and their start offsets. A change replaces both lists at once and never changes them, so
        that a reader in another thread sees either state."""
        self.dirty = False
        for epoch, start in entries or ():
            self.assign(epoch, start)
        self._saved = self._columns
        """The columns in the checkpoint."""
        self.dirty = False

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(*self._columns, strict=True))

    def is_saved_below(self, offset: int) -> bool:
        """Whether the checkpoint has the same entries that begin below `offset`."""
        (epochs, starts), (saved_epochs, saved_starts) = self._columns, self._saved
        keep = bisect_left(starts, offset)
        return (
            keep == bisect_left(saved_starts, offset)
            and starts[:keep] == saved_starts[:keep]
            and epochs[:keep] == saved_epochs[:keep]
        )

    def begin_save(self) -> list[tuple[int, int]]:
        """The entries for a checkpoint that is written now. An entry that is added meanwhile counts as
        unsaved."""
        self.dirty = False
        self._saved = self._columns
        return list(zip(*self._saved, strict=True))

    def save_failed(self) -> None:
        """Notes that the checkpoint may have any content."""
        self.dirty = True
        self._saved = ([-1], [0])

    def _replace(self, epochs: list[int], starts: list[int]) -> None:
        self._columns = (epochs, starts)
        self.dirty = True

    def __len__(self) -> int:
        return len(self._columns[0])

    @property
    def latest_epoch(self) -> int | None:
        return self._columns[0][-1] if self._columns[0] else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Adds an epoch that begins at `start_offset`, and removes entries that contradict it. Returns
        whether the cache has changed. Raises ValueError."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"Received invalid partition leader epoch entry ({epoch}, {start_offset})")
        epochs, starts = self._columns
        if epochs and epochs[-1] == epoch and starts[-1] <= start_offset:
            return False  # the common case: one more batch of the same epoch
        keep = min(bisect_left(epochs, epoch), bisect_left(starts, start_offset))
        self._replace([*epochs[:keep], epoch], [*starts[:keep], start_offset])
        return True

    def copy_from(self, other: EpochCache) -> None:
        """Replaces all entries by those of a log with the same records."""
        self._replace(*other._columns)

    def correct(self, epoch: int, offset: int) -> None:
        """Corrects the entries by a batch of this epoch at this offset. After a crash the checkpoint may
        be newer than the log, if the log was truncated and written again."""
        epochs, starts = self._columns
        if epochs and epochs[-1] == epoch and starts[-1] <= offset:
            return  # the common case: one more batch of the same epoch
        if epoch < 0 or self.epoch_for(offset) == epoch:
            return
        keep = min(bisect_right(epochs, epoch), bisect_right(starts, offset))
        if keep < len(epochs):
            self._replace(epochs[:keep], starts[:keep])
        self.assign(epoch, offset)

    def rebuild(self, headers: Iterable[BatchHeader]) -> None:
        """Replaces all entries by those of the batches of a log."""
        self.clear()
        for header in headers:
            self.correct(header.leader_epoch, header.base_offset)
        self.dirty = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch not above `epoch`; (-1, -1) if it is unknown."""
        if epoch == UNDEFINED or not self._columns[0]:
            return UNDEFINED, UNDEFINED
        if epoch == self._columns[0][-1]:
            return epoch, log_end_offset
        above = bisect_right(self._columns[0], epoch)
        if above == len(self._columns[0]):
            return UNDEFINED, UNDEFINED
        end = self._columns[1][above]
        return (self._columns[0][above - 1], end) if above else (epoch, end)

    def epoch_for(self, offset: int) -> int | None:
        """The epoch of the record at `offset`, None if it is unknown."""
        at = bisect_right(self._columns[1], offset)
        return self._columns[0][at - 1] if at else None

    def earliest(self) -> tuple[int, int] | None:
        return (self._columns[0][0], self._columns[1][0]) if self._columns[0] else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Removes the epochs that begin at or after `end_offset`."""
        keep = bisect_left(self._columns[1], end_offset)
        if keep < len(self._columns[1]):
            self._replace(self._columns[0][:keep], self._columns[1][:keep])

    def truncate_from_start(self, start_offset: int) -> None:
        """Lets the epoch of `start_offset` begin there, and removes the epochs before it."""
        at = bisect_right(self._columns[1], start_offset)
        if at and (at > 1 or self._columns[1][0] != start_offset):
            self._replace(self._columns[0][at - 1 :], [start_offset, *self._columns[1][at:]])

    def clear(self) -> None:
        if self._columns[0]:
            self._replace([], [])
