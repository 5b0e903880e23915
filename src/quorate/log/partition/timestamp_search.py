"""Finds records of a log by their timestamps, for ListOffsets (KIP-79, KIP-734)."""

from __future__ import annotations

from collections.abc import Sequence

from quorate.log.segment.segment import Segment
from quorate.records.batch import decode_records

FoundRecord = tuple[int, int, int]
"""Timestamp in ms, offset, leader epoch."""


def find_timestamp(segments: Sequence[Segment], log_start: int, timestamp: int) -> FoundRecord | None:
    """The first record with at least this timestamp. Raises OSError, CorruptRecordError."""
    for segment in segments:
        if segment.size and segment.largest_timestamp() >= timestamp:
            found = _find_in_segment(segment, log_start, timestamp)
            if found is not None:  # None if all such records of the segment are below the log start
                return found
    return None


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
