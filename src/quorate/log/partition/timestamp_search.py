"""Finds records of a log by their timestamps, for ListOffsets (KIP-79, KIP-734)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from quorate.log.segment.segment import Segment
from quorate.protocol.file_region import FileRegion
from quorate.protocol.page_cache import resident_bytes
from quorate.records.batch import BATCH_OVERHEAD, decode_records, parse_header

_MAX_COLD_BATCHES = 100
"""Batches that are looked at for cold pages. The index leads to some before the one that is searched."""

_READ_AHEAD_BYTES = 16 << 10
"""Bytes that a search reads at once for the headers of batches."""

FoundRecord = tuple[int, int, int]
"""Timestamp in ms, offset, leader epoch."""


def find_timestamp(segments: Sequence[Segment], log_start: int, timestamp: int) -> FoundRecord | None:
    """The first record with at least this timestamp. Raises OSError, CorruptRecordError."""
    for segment in _above(segments, log_start):
        if segment.size and segment.largest_timestamp() >= timestamp:
            found = _find_in_segment(segment, log_start, timestamp)
            if found is not None:  # None if all such records of the segment are below the log start
                return found
    return None


def cold_regions(segments: Sequence[Segment], log_start: int, timestamp: int | None) -> list[FileRegion]:
    """The regions that a search for `timestamp`, or for the greatest one if it is None, would read from the
    disk, because they are not in the page cache.

    Called again after the regions were read ahead, it returns the next ones. Raises OSError,
    CorruptRecordError.
    """
    cold: list[FileRegion] = []
    for segment in segments:
        if segment.size and segment.max_timestamp is None:
            cold += segment.cold_time_index()
    if cold:
        return cold
    if timestamp is None:
        timestamp = max(
            [segment.offset_and_time_of_max()[1] for segment in segments if segment.size], default=0
        )
    for segment in _above(segments, log_start):
        if segment.size and segment.largest_timestamp() >= timestamp:
            found = segment.cold_time_index() or _cold_in_segment(segment, log_start, timestamp)
            if found is not None:
                return found
    return []


def _above(segments: Sequence[Segment], log_start: int) -> Sequence[Segment]:
    """The segments that have records at or above the log start."""
    return segments[max(bisect_right(segments, log_start, key=attrgetter("base_offset")) - 1, 0) :]


def _cold_in_segment(segment: Segment, log_start: int, timestamp: int) -> list[FileRegion] | None:
    """The same in one segment, or None if the search goes on in the next one."""
    found, offset = segment.time_index().lookup(timestamp)
    if found >= 0 and offset > log_start:
        cold = segment.cold_regions(offset)
    else:
        cold = segment.cold_regions(log_start)
    if cold:
        return cold
    file = segment.file()
    position = segment.start_for_timestamp(timestamp, log_start)
    for _ in range(_MAX_COLD_BATCHES):
        length = segment.size - position
        if length < BATCH_OVERHEAD:
            return None
        header = FileRegion(file, position, min(_READ_AHEAD_BYTES, length))
        if resident_bytes(file.fileno(), position, header.length) < header.length:
            return [header]
        batch = parse_header(segment.read(position, BATCH_OVERHEAD))
        if batch.max_timestamp >= timestamp and batch.last_offset >= log_start:
            size = min(batch.size_bytes, length)
            if resident_bytes(file.fileno(), position, size) < size:
                return [FileRegion(file, position, size)]
            break
        position += batch.size_bytes
    return []


def _find_in_segment(segment: Segment, log_start: int, timestamp: int) -> FoundRecord | None:
    position = segment.start_for_timestamp(timestamp, log_start)
    for header, at in segment.headers(position, segment.size):
        if header.max_timestamp < timestamp or header.last_offset < log_start:
            continue
        for record in decode_records(segment.read(at, header.size_bytes)):
            if record.timestamp >= timestamp and record.offset >= log_start:
                return record.timestamp, record.offset, header.leader_epoch
    return None


def find_max_timestamp(segments: Sequence[Segment]) -> FoundRecord | None:
    """The first record with the greatest timestamp. Raises OSError, CorruptRecordError."""
    best: Segment | None = None
    for segment in segments:
        if segment.size and (
            best is None or segment.offset_and_time_of_max()[1] > best.offset_and_time_of_max()[1]
        ):
            best = segment
    if best is None:
        return None
    batch_end, timestamp = best.offset_and_time_of_max()
    first = best.find(batch_end)
    if first is None or timestamp < 0:
        return None
    for header, at in best.headers(first.position, best.size):
        if header.max_timestamp == timestamp:
            for record in decode_records(best.read(at, header.size_bytes)):
                if record.timestamp == timestamp:
                    return timestamp, record.offset, header.leader_epoch
    return None
