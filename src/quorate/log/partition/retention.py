"""Retention: decides how many of the oldest segments of a log are deleted (Kafka's
UnifiedLog.deleteOldSegments).

Each rule returns the number of segments, from the oldest, that breach it. A segment that reaches above
the high watermark is never deleted, nor is an empty active segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quorate.log.config import LogConfig
from quorate.log.partition.local_log import LocalLog
from quorate.log.segment.segment import Segment
from quorate.protocol.file_region import ReadAhead

RetentionRule = Callable[[LocalLog, int, int, int], int]
"""Called with (log, log start offset, high watermark, time in ms)."""


def count_over_time(log: LocalLog, log_start: int, high_watermark: int, now_ms: int) -> int:
    """`retention.ms`, against the greatest timestamp of a segment."""
    retention_ms = log.config.retention_ms
    if not log.config.deletes or retention_ms < 0:
        return 0
    return _count(log, high_watermark, lambda segment, _: now_ms - segment.largest_timestamp() > retention_ms)


def cold_regions(segments: Sequence[Segment], config: LogConfig, now_ms: int) -> list[ReadAhead]:
    """What a thread must do first so that `count_over_time` waits for no disk and rebuilds no time index.
    Called again after that, it returns what comes next. Raises OSError."""
    if not config.deletes or config.retention_ms < 0:
        return []
    for segment in segments:
        if segment.max_timestamp is None and (cold := segment.cold_time_index()):
            return cold
        if now_ms - segment.largest_timestamp() <= config.retention_ms:
            break
    return []


def count_over_size(log: LocalLog, log_start: int, high_watermark: int, now_ms: int) -> int:
    """`retention.bytes`. The log keeps at least this many bytes."""
    excess = log.size_bytes - log.config.retention_bytes
    if not log.config.deletes or log.config.retention_bytes < 0 or excess <= 0:
        return 0

    def breaches(segment: Segment, after: int | None) -> bool:
        nonlocal excess
        if excess - segment.size < 0:
            return False
        excess -= segment.size
        return True

    return _count(log, high_watermark, breaches)


def count_below_log_start(log: LocalLog, log_start: int, high_watermark: int, now_ms: int) -> int:
    """Segments whose records are all below the log start offset."""
    return _count(log, high_watermark, lambda _, after: after is not None and after <= log_start)


def _count(log: LocalLog, high_watermark: int, breaches: Callable[[Segment, int | None], bool]) -> int:
    """Counts segments while `breaches(segment, base offset of the next one)` is true."""
    count = 0
    for number, segment in enumerate(log.segments):
        after = log.bases[number + 1] if number + 1 < len(log.bases) else None
        if high_watermark < (log.end_offset if after is None else after):
            break
        if after is None and segment.size == 0:
            break
        if not breaches(segment, after):
            break
        count += 1
    return count


RETENTION_RULES: tuple[tuple[RetentionRule, str], ...] = (
    (count_over_time, "retention time"),
    (count_over_size, "retention size"),
    (count_below_log_start, "log start offset breach"),
)
"""Each rule with its reason for the log."""
