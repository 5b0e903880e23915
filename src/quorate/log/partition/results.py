"""What a log's appends and reads return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from quorate.protocol.regions import FileRegion


@dataclass(slots=True)
class AppendInfo:
    """Offsets given to what was appended; times in ms, -1 for none. For a duplicate: the offsets of the
    first time."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    log_start_offset: int
    leader_epoch: int
    duplicate: bool = False
    size_bytes: int = 0


@dataclass(slots=True)
class FetchData:
    """Batches as regions of their files. The last batch may be cut by the size limit, as in any Fetch
    answer."""

    parts: list[FileRegion] = field(default_factory=list)
    size: int = 0
    first_batch_offset: int = -1
    _next_offset: int | Callable[[], int] = -1

    @property
    def next_offset(self) -> int:
        """An offset not below the end of what was read (to bound a search for aborted transactions)."""
        if not isinstance(self._next_offset, int):
            self._next_offset = self._next_offset()
        return self._next_offset


class UnexpectedAppendOffset(Exception):  # noqa: N818 - Kafka's name, which its operators search for
    """Replicated batches begin before the end of the log; a follower of an empty log may start over at
    `first_offset`."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset
