"""The model of one replica's log, and of what is committed in a partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Batch(NamedTuple):
    """What identifies a batch. The offset and the epoch are not part of the checksum."""

    base: int
    last: int
    epoch: int
    crc: int
    producer_id: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.base}..{self.last} epoch {self.epoch} crc {self.crc:08x}"


@dataclass(slots=True)
class LogModel:
    """The batches of one replica, from its log start on."""

    start: int = 0
    end: int = 0
    by_base: dict[int, Batch] = field(default_factory=dict)
    matched: int = 0
    """All batches below this offset are those that are committed."""
    high_watermark: int = 0
    directory: str = ""
    """The log directory. A replica that is added again after its directory failed begins in another one."""

    def append(self, batches: list[Batch]) -> None:
        for batch in batches:
            self.by_base[batch.base] = batch
            self.end = batch.last + 1

    def truncate(self, end: int) -> list[Batch]:
        """Drops the batches that are not completely below `end`. Returns them."""
        dropped = [batch for batch in reversed(self.by_base.values()) if batch.last >= end]
        for batch in dropped:
            del self.by_base[batch.base]
            self.matched = min(self.matched, batch.base)
        self.end = end
        self.matched = min(self.matched, end)
        self.high_watermark = min(self.high_watermark, end)
        return dropped

    def restart(self, offset: int) -> None:
        """Drops all batches. The next one gets `offset`."""
        self.by_base.clear()
        self.start = self.end = self.matched = offset
        self.high_watermark = offset


@dataclass(slots=True)
class CommittedLog:
    """The batches of one partition that are below the high watermark of its leader."""

    end: int = 0
    by_base: dict[int, Batch] = field(default_factory=dict)

    def extend(self, batch: Batch) -> None:
        self.by_base[batch.base] = batch
        self.end = batch.last + 1

    def match(self, log: LogModel) -> int:
        """Returns how far the log has the committed batches, from its start on."""
        at = max(log.matched, min(log.start, self.end))
        while at < self.end:
            batch = self.by_base.get(at)
            if batch is None:  # the log starts inside a batch
                batch = self._around(at)
                if batch is None:
                    break
                at = batch.last + 1
                continue
            if log.by_base.get(at) != batch:
                break
            at = batch.last + 1
        log.matched = at
        return at

    def _around(self, offset: int) -> Batch | None:
        for base in range(offset, -1, -1):
            found = self.by_base.get(base)
            if found is not None:
                return found if found.last >= offset else None
        return None
