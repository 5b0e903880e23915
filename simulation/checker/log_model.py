"""The model of a log, for the invariants: its batches, each with a digest of the log up to its end.

Two logs agree below an offset exactly if their digests there are equal, so one comparison checks a prefix.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from quorate.raft.core.events import ControlRecord
from quorate.raft.types import OffsetEpoch


class Batch:
    """Records with the offsets from `base` to below `end`.

    before    digest of the log before this batch
    controls  (type, value) of each control record
    digest    digest of the log up to `end`; `nonce` makes it differ from other batches at this place
    """

    __slots__ = ("base", "before", "controls", "digest", "end", "epoch", "values")

    def __init__(
        self,
        before: int,
        base: int,
        epoch: int,
        values: Sequence[Any],
        controls: Sequence[tuple[int, Any]],
        nonce: int,
    ) -> None:
        self.before = before
        self.base = base
        self.end = base + max(len(values), len(controls))
        self.epoch = epoch
        self.values = values
        self.controls = controls
        self.digest = hash((before, base, epoch, self.end, nonce))

    def __repr__(self) -> str:
        return (
            f"Batch({self.base}..{self.end - 1} epoch={self.epoch} "
            f"{[k for k, _ in self.controls] or list(self.values)})"
        )

    def control_records(self) -> list[ControlRecord]:
        return [ControlRecord(self.base + i, kind, value) for i, (kind, value) in enumerate(self.controls)]


class LogModel:
    """The batches of a log from its start on.

    Of the deleted part before the start only the digest is known.
    """

    __slots__ = ("batches", "ends", "start", "start_digest", "start_epoch")

    def __init__(self) -> None:
        self.start = 0
        self.start_epoch = 0
        self.start_digest = 0
        self.batches: list[Batch] = []
        self.ends: list[int] = []

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else self.start

    @property
    def last_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else self.start_epoch

    @property
    def end_digest(self) -> int:
        return self.batches[-1].digest if self.batches else self.start_digest

    def digest_at(self, offset: int) -> int | None:
        """Returns the digest of the log below `offset`, or None if no batch ends there."""
        if offset == self.start:
            return self.start_digest
        at = bisect_left(self.ends, offset)
        return self.batches[at].digest if at < len(self.ends) and self.ends[at] == offset else None

    def between(self, offset: int, end: int) -> list[Batch]:
        """Returns the batches that begin at or after `offset` and end at or before `end`."""
        return self.batches[bisect_right(self.ends, offset) : bisect_right(self.ends, end)]

    def append(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.ends.append(batch.end)

    def truncate(self, offset: int) -> list[Batch]:
        """Removes and returns the batches that end above `offset`."""
        at = bisect_right(self.ends, offset)
        removed = self.batches[at:]
        del self.batches[at:], self.ends[at:]
        return removed

    def delete_before(self, start: OffsetEpoch) -> None:
        """Moves the start of the log to this end of a batch."""
        if start.offset == self.start:
            return
        digest = self.digest_at(start.offset)
        assert digest is not None, f"no batch ends at {start.offset}"
        at = bisect_right(self.ends, start.offset)
        self.start, self.start_epoch, self.start_digest = start.offset, start.epoch, digest
        del self.batches[:at], self.ends[:at]

    def restart(self, start: OffsetEpoch, digest: int) -> None:
        """Empties the log, which now starts at the end of a snapshot."""
        self.start, self.start_epoch, self.start_digest = start.offset, start.epoch, digest
        self.batches.clear()
        self.ends.clear()
