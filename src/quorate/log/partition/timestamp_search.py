"""Finds records of a log by their timestamps, for ListOffsets (KIP-79, KIP-734).

As in Kafka, a search fails at a record that is larger than the topic's `max.decompressed.message.bytes`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Protocol

from quorate.log.config import MAX_RECORD_BYTES, LogConfig
from quorate.log.segment.segment import Segment
from quorate.protocol.file_region import FileRegion
from quorate.protocol.page_cache import resident_bytes
from quorate.records.batch import (
    BATCH_OVERHEAD,
    BatchHeader,
    decode_records,
    parse_header,
    records_section,
)
from quorate.records.compression import Compression
from quorate.records.record import Record
from quorate.records.scan import walk_sizes
from quorate.records.validate import check_record_size

_MAX_COLD_BATCHES = 100
"""Batches that are looked at for cold pages. The index leads to some before the one that is searched."""

_READ_AHEAD_BYTES = 16 << 10
"""Bytes that a search reads at once for the headers of batches."""

FoundRecord = tuple[int, int, int]
"""Timestamp in ms, offset, leader epoch."""


class SearchedLog(Protocol):
    """The members of a `LocalLog` that a search uses."""

    config: LogConfig
    segments: list[Segment]


def find_timestamp(log: SearchedLog, log_start: int, timestamp: int) -> FoundRecord | None:
    """The first record with at least this timestamp. Raises OSError, CorruptRecordError,
    InvalidRecordError."""
    limit = log.config.max_decompressed_message_bytes
    for segment in _above(log.segments, log_start):
        if segment.size and segment.largest_timestamp() >= timestamp:
            found = _find_in_segment(segment, log_start, timestamp, limit)
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


def _records(batch: bytes, header: BatchHeader, limit: int) -> Iterable[Record]:
    """The records of a batch. Iterating raises InvalidRecordError at one above the limit."""
    records = decode_records(batch)
    if header.compression is not Compression.NONE and limit < MAX_RECORD_BYTES:
        body = records_section(batch, header)
        if len(body) > limit:
            return _limited(records, walk_sizes(body, header.count), limit)
    return records


def _limited(records: list[Record], sizes: Iterator[int], limit: int) -> Iterator[Record]:
    for record, size in zip(records, sizes, strict=True):
        check_record_size(size, limit)
        yield record


def _find_in_segment(segment: Segment, log_start: int, timestamp: int, limit: int) -> FoundRecord | None:
    position = segment.start_for_timestamp(timestamp, log_start)
    for header, at in segment.headers(position, segment.size):
        if header.max_timestamp < timestamp or header.last_offset < log_start:
            continue
        for record in _records(segment.read(at, header.size_bytes), header, limit):
            if record.timestamp >= timestamp and record.offset >= log_start:
                return record.timestamp, record.offset, header.leader_epoch
    return None


def find_max_timestamp(log: SearchedLog) -> FoundRecord | None:
    """The first record with the greatest timestamp. Raises OSError, CorruptRecordError,
    InvalidRecordError."""
    best: Segment | None = None
    for segment in log.segments:
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
            for record in _records(
                best.read(at, header.size_bytes), header, log.config.max_decompressed_message_bytes
            ):
                if record.timestamp == timestamp:
                    return timestamp, record.offset, header.leader_epoch
    return None
