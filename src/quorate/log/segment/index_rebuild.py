"""Rebuilds the indexes of a segment outside of the event loop.

The headers of all batches are read for it: seconds for a segment of many small batches, in which a broker
would lose its session.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from quorate.records.errors import CorruptRecordError

logger = logging.getLogger("quorate.log.segment.segment")


class Indexed(Protocol):
    """The members of a segment that a rebuild uses."""

    size: int
    cuts: int

    @property
    def log_path(self) -> str: ...

    def rebuild_indexes(self, end: int) -> None: ...

    def unload_indexes(self) -> None: ...


class HasEndOffset(Protocol):
    """The members of a segment that `read_end_offset` uses."""

    def next_offset(self) -> int: ...

    def correct_indexes(self, reason: CorruptRecordError) -> None: ...


T = TypeVar("T", bound=Indexed)


def read_end_offset(segment: HasEndOffset) -> int | None:
    """Reads the offset after the last record, and rebuilds the indexes if they contradict the log. Returns
    None if the log itself is damaged. Raises OSError."""
    try:
        return segment.next_offset()
    except CorruptRecordError as reason:
        with contextlib.suppress(CorruptRecordError):
            segment.correct_indexes(reason)
            return segment.next_offset()
        return None


def rebuild_missing(segments: Iterable[Indexed]) -> None:
    """Rebuilds the indexes of segments without index files when their log is opened, as Kafka does. The
    event loop may read them much later. Raises OSError."""
    for segment in segments:
        logger.warning("[Segment %s] Rebuilding the indexes, because a file is missing", segment.log_path)
        with contextlib.suppress(CorruptRecordError):  # the reader gets it
            segment.rebuild_indexes(segment.size)
        with contextlib.suppress(OSError):  # a full disk; they stay in memory
            segment.unload_indexes()


class IndexRebuild(Generic[T]):
    """Work that a thread does before the event loop reads from a segment with a damaged index.

    The indexes are made for a copy of the segment. The owner of the segment then takes them over.
    """

    __slots__ = ("_lock", "cuts", "damage", "is_done", "rebuilt")

    def __init__(self, segment: T) -> None:
        self._lock = threading.Lock()
        self.rebuilt = copy.copy(segment)
        """The copy. It has the new indexes when `is_done` is set."""
        self.cuts = segment.cuts
        """The cuts of the segment at the start. If there are more, the indexes are not valid."""
        self.is_done = False
        self.damage: CorruptRecordError | None = None
        """The error of the log. The indexes end there."""

    def read(self) -> bytes:
        """Rebuilds the indexes. Another thread that calls it meanwhile waits. Raises OSError."""
        with self._lock:
            if not self.is_done:
                try:
                    self.rebuilt.rebuild_indexes(self.rebuilt.size)
                except CorruptRecordError as error:
                    self.damage = error
                self.is_done = True
        return b""
