"""Finds records of a log by their timestamps, for ListOffsets (KIP-79, KIP-734).

As in Kafka, a search fails at a record that is larger than the topic's `max.decompressed.message.bytes`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Protocol

from quorate.log.config import MAX_RECORD_BYTES, LogConfig
from quorate.log.errors import CorruptIndexError
from quorate.log.segment.header_scan import ColdError, read_warm
from quorate.log.segment.segment import Segment
from quorate.protocol.file_region import FileRegion, ReadAhead
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

_SLICE_BATCHES = 100
"""Batches whose headers are read at once. The index mostly leads to some before the one that is searched."""

_READ_AHEAD_BYTES = 16 << 10
"""Bytes that a search reads at once for the headers of batches."""

_LONG_READ_AHEAD_BYTES = 1 << 20
"""The same in a scan of more than one slice, which reads all of them."""

FoundRecord = tuple[int, int, int]
"""Timestamp in ms, offset, leader epoch."""


class SearchedLog(Protocol):
    """The members of a `LocalLog` that a search uses."""

    config: LogConfig
    segments: list[Segment]


class Scan:
    """How far a search by timestamp has come, so that it can be made in slices.

    The time index has an entry where the greatest timestamp so far rises. If the timestamps of many batches
    are equal or fall, a search reads the headers of all of them, a microsecond for each.
    """

    __slots__ = ("_cuts", "_position", "_segment", "is_long", "slices")

    def __init__(self) -> None:
        self.is_long = False
        """Whether batches remain to be scanned before the search can be completed in a slice."""
        self.slices = 0
        """The slices that ended before the batch was found. It rises as long as the scan makes progress."""
        self._segment: Segment | None = None
        self._position = self._cuts = 0

    def position(self, segment: Segment) -> int | None:
        """The position before which no batch of the segment is the one searched for, or None if it was not
        scanned, or was truncated since."""
        return self._position if segment is self._segment and segment.cuts == self._cuts else None

    def reached(self, segment: Segment, position: int) -> None:
        """Notes that no batch before `position` is the one searched for."""
        self._segment, self._position, self._cuts = segment, position, segment.cuts
        self.slices += 1
        self.is_long = True


def find_timestamp(
    log: SearchedLog, log_start: int, timestamp: int, scan: Scan | None = None
) -> FoundRecord | None:
    """The first record with at least this timestamp. `scan`: what `cold_regions` has scanned for it. Raises
    OSError, CorruptRecordError, InvalidRecordError."""
    limit = log.config.max_decompressed_message_bytes
    for segment in _above(log.segments, log_start):
        if segment.size and segment.largest_timestamp() >= timestamp:
            position = None if scan is None else scan.position(segment)
            found = _find_in_segment(segment, log_start, timestamp, limit, position)
            if found is not None:  # None if all such records of the segment are below the log start
                return found
    return None


def cold_regions(
    segments: Sequence[Segment], log_start: int, timestamp: int | None, scan: Scan | None = None
) -> list[ReadAhead]:
    """The regions that a search for `timestamp`, or for the greatest one if it is None, would read from the
    disk, because they are not in the page cache.

    Called again after the regions were read ahead, it returns the next ones. With `scan`, each call also
    scans a slice of the batches: while `scan.is_long` is set afterwards, further calls are needed. Raises
    OSError, CorruptRecordError.
    """
    if scan is not None:
        scan.is_long = False
    cold: list[ReadAhead] = []
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
            found = segment.cold_time_index() or _cold_in_segment(segment, log_start, timestamp, scan)
            if found is not None:
                return found
    return []


def _above(segments: Sequence[Segment], log_start: int) -> Sequence[Segment]:
    """The segments that have records at or above the log start."""
    return segments[max(bisect_right(segments, log_start, key=attrgetter("base_offset")) - 1, 0) :]


def _cold_in_segment(
    segment: Segment, log_start: int, timestamp: int, scan: Scan | None
) -> list[ReadAhead] | None:
    """The same in one segment, or None if the search goes on in the next one."""
    position = None if scan is None else scan.position(segment)
    read_ahead = _READ_AHEAD_BYTES if position is None else _LONG_READ_AHEAD_BYTES
    if position is None:
        found, offset = segment.time_index().lookup(timestamp)
        if found >= 0 and offset > log_start:
            cold = segment.cold_regions(offset)
        else:
            cold = segment.cold_regions(log_start)
        if cold:
            return cold
        if (wrong := _wrong_time_entry(segment, timestamp, log_start)) is not None and not segment.is_rebuilt:
            return segment.rebuild_ahead(wrong)
        position = _start(segment, timestamp, log_start)
    file = segment.file()
    try:
        for number, (batch, at) in enumerate(segment.headers(position, segment.size, read_warm)):
            if number == _SLICE_BATCHES:
                if scan is not None:
                    scan.reached(segment, at)
                return []
            if batch.max_timestamp >= timestamp and batch.last_offset >= log_start:
                size = batch.size_bytes
                is_cold = resident_bytes(file.fileno(), at, size) < size
                return [FileRegion(file, at, size)] if is_cold else []
    except ColdError as e:
        at = e.region.position
        return [FileRegion(file, at, min(read_ahead, segment.size - at))]
    return None


def _wrong_time_entry(segment: Segment, timestamp: int, from_offset: int) -> CorruptIndexError | None:
    """The error of the time index if its entry for `timestamp` names no batch. Raises OSError,
    CorruptRecordError."""
    found, offset = segment.time_index().lookup(timestamp)
    place = segment.find(offset) if found >= 0 and offset >= from_offset else None
    if place is None or parse_header(segment.read(place.position, BATCH_OVERHEAD)).max_timestamp == found:
        return None
    return CorruptIndexError(f"time entry ({found}, {offset}) does not name a batch")


def _start(segment: Segment, timestamp: int, from_offset: int) -> int:
    """The file position from which to search for a record of at least this timestamp. Raises OSError,
    CorruptRecordError."""
    if (wrong := _wrong_time_entry(segment, timestamp, from_offset)) is not None:
        segment.correct_indexes(wrong)
        return 0
    found, offset = segment.time_index().lookup(timestamp)
    place = segment.find(max(offset, from_offset) if found >= 0 else from_offset)
    return place.position if place is not None else 0


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


def _find_in_segment(
    segment: Segment, log_start: int, timestamp: int, limit: int, position: int | None
) -> FoundRecord | None:
    if position is None:
        position = _start(segment, timestamp, log_start)
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
