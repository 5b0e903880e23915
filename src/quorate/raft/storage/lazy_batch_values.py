"""The values of a large batch, decoded on access, since decoding all at once would hold the event loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import overload

from quorate.records.batch import BatchHeader, iter_metadata_values, metadata_values

LAZY_RECORDS = 512  # decoding them takes more than a millisecond


class LazyValues(Sequence[memoryview]):
    """The values of a batch. An access decodes the batch up to the value.

    It raises CorruptRecordError or InvalidRecordError.
    """

    __slots__ = ("_count", "_found", "_rest")

    def __init__(self, batch: memoryview, count: int) -> None:
        self._rest = iter_metadata_values(batch)
        self._found: list[memoryview] = []
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> memoryview: ...
    @overload
    def __getitem__(self, at: slice) -> list[memoryview]: ...
    def __getitem__(self, at: int | slice) -> memoryview | list[memoryview]:
        if isinstance(at, slice):
            self._find(at.indices(self._count)[1])
        else:
            self._find(at + 1 if at >= 0 else self._count)
        return self._found[at]

    def __iter__(self) -> Iterator[memoryview]:
        for at in range(self._count):
            yield self[at]

    def _find(self, end: int) -> None:
        missing = min(end, self._count) - len(self._found)
        if missing > 0:
            self._found += islice(self._rest, missing)
            if len(self._found) == self._count:
                self._found += self._rest  # adds nothing, but checks the bytes after the last record


def values_of(header: BatchHeader, batch: memoryview) -> Sequence[memoryview]:
    """The values of a batch. Raises CorruptRecordError or InvalidRecordError, for a large batch on access."""
    return LazyValues(batch, header.count) if header.count > LAZY_RECORDS else metadata_values(batch)
