"""The arguments of appends, and the results of appends and reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from quorate.dataclass import dataclass
from quorate.protocol.file_region import FileRegion
from quorate.records.batch import BatchHeader

CheckedBatch = tuple[BatchHeader, memoryview]
"""The only batch of an append, complete, with its header, which was read already."""

NewBatch = bytes | bytearray | memoryview | CheckedBatch


@dataclass(slots=True)
class AppendInfo:
    """The offsets of appended batches (Kafka's LogAppendInfo). Times are in ms, -1 if there is none. A
    duplicate has the offsets of the first append."""

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
    """Batches as regions of files (Kafka's FetchDataInfo). The size limit may truncate the last batch, as
    in every Fetch response."""

    parts: list[FileRegion] = field(default_factory=list)
    size: int = 0
    first_batch_offset: int = -1
    _next_offset: int | Callable[[], int] = -1

    @property
    def next_offset(self) -> int:
        """An offset at or above the end of the batches, to limit the search for aborted transactions."""
        if not isinstance(self._next_offset, int):
            self._next_offset = self._next_offset()
        return self._next_offset


class UnexpectedAppendOffset(Exception):  # noqa: N818 - Kafka's name
    """Replicated batches begin before the log end. A follower with an empty log may restart at
    `first_offset`."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset
