"""Reads the batch headers of a segment's file one after the other, with or without waiting for the disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from quorate.log.files import OpenFile
from quorate.protocol.file_region import FileRegion
from quorate.protocol.page_cache import read_resident, resident_bytes
from quorate.records.batch import BATCH_OVERHEAD, BatchHeader, parse_header
from quorate.records.errors import CorruptRecordError

_SCAN_BYTES = 8192
"""Bytes read at once in a scan of headers: those between two index entries come in one read."""

Read = Callable[[OpenFile, int, int], bytes]
"""Reads up to so many bytes (the second argument) from a position (the third). Raises OSError."""


class BatchPosition(NamedTuple):
    """The offsets of a batch and its place in the segment's file."""

    base_offset: int
    last_offset: int
    position: int
    size: int


class ColdError(Exception):
    """The next bytes of a scan are not in the page cache."""

    def __init__(self, region: FileRegion) -> None:
        super().__init__(region)
        self.region = region


def read(file: OpenFile, length: int, position: int) -> bytes:
    """Reads bytes, from the disk if need be. Raises OSError."""
    return os.pread(file.fileno(), length, position)


def read_warm(file: OpenFile, length: int, position: int) -> bytes:
    """As `read`, but never waits for the disk. Raises OSError, ColdError."""
    data = read_resident(file, position, length)
    if data is None:
        if resident_bytes(file.fileno(), position, length) < length:
            raise ColdError(FileRegion(file, position, length))
        data = read(file, length, position)  # the kernel cannot tell
    return data


def scan(
    file: OpenFile, path: str, position: int, end: int, offsets: tuple[int, int], read: Read = read
) -> Iterator[tuple[BatchHeader, int]]:
    """Yields the header and position of each batch between two batch boundaries, without records.

    `offsets` are the lowest and the highest that the segment may hold. Raises CorruptRecordError for a
    malformed header, an incomplete batch, or an offset that is out of order (offsets are not covered by the
    checksum); OSError; what `read` raises.
    """
    chunk, start = b"", position
    lowest, highest = offsets
    while position < end:
        at = position - start
        if at + BATCH_OVERHEAD > len(chunk):
            chunk, start, at = read(file, min(_SCAN_BYTES, end - position), position), position, 0
        header = parse_header(chunk, at)
        if position + header.size_bytes > end:
            raise CorruptRecordError(f"Batch at byte {position} of {path} passes byte {end}")
        last = header.last_offset
        if not lowest <= header.base_offset <= last <= highest:
            raise CorruptRecordError(
                f"Batch at byte {position} of {path} claims the offsets {header.base_offset} "
                f"to {last}, which cannot be there: they must lie between {lowest} and {highest}"
            )
        yield header, position
        position += header.size_bytes
        lowest = last + 1
