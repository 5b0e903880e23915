"""The periodic jobs on all logs of a broker: retention, the expiration of producers, and flushes.

Each job yields after some logs, so that it can run between other work (see `scheduler.Step`). A log may be
deleted between two steps. Source: the tasks that Kafka's LogManager schedules.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from quorate.log.config import LONG_MAX
from quorate.log.partition import retention
from quorate.protocol.file_region import READ_AHEAD_ROUNDS, touch
from quorate.records.errors import CorruptRecordError

if TYPE_CHECKING:
    from quorate.log.directories.manager import LogManager
    from quorate.log.partition.partition_log import PartitionLog
    from quorate.log.scheduler import Step
    from quorate.protocol.file_region import ReadAhead

logger = logging.getLogger(__name__)

_SLICE = 64
"""The logs between two yields: well below a millisecond if there is nothing to do."""


def apply_retention(logs: LogManager) -> Iterator[Step]:
    """Deletes old segments. A damaged log keeps its segments, and the others are not affected. Raises
    LogDirFailure."""
    logs.scheduler.run_callbacks()
    now_ms = logs.now_ms()
    for count, log in enumerate(logs.all_logs()):
        deleted = 0
        if log.has_files:
            yield from _read_ahead(log, now_ms)
        if log.has_files and logs.get(log.topic, log.partition) is log:
            try:
                deleted = log.delete_old_segments(now_ms)
            except CorruptRecordError as damage:
                logger.error("[LogManager] Retention of %s failed: %s", log.dir, damage)
        if deleted or count % _SLICE == _SLICE - 1:
            yield None


def _read_ahead(log: PartitionLog, now_ms: int) -> Iterator[Step]:
    """Lets a thread read the time indexes that retention needs, and rebuild them if they are damaged."""
    for _ in range(READ_AHEAD_ROUNDS):
        try:
            cold = retention.cold_regions(log.segments, log.config, now_ms)
        except (OSError, CorruptRecordError):
            return  # retention raises it again
        if not cold:
            return
        yield partial(_read, cold)


def _read(cold: list[ReadAhead]) -> None:
    with contextlib.suppress(OSError, EOFError):  # retention raises it again
        touch(cold)


def expire_producers(logs: LogManager) -> Iterator[Step]:
    """Forgets producers whose last batch is older than `producer.id.expiration.ms`."""
    now_ms = logs.now_ms()
    for count, log in enumerate(logs.all_logs()):
        log.producers.remove_expired(now_ms)
        if count % _SLICE == _SLICE - 1:
            yield None


def flush_due(logs: LogManager) -> Iterator[Step]:
    """Flushes the logs whose last flush is `flush.ms` ago. Raises LogDirFailure."""
    logs.scheduler.run_callbacks()
    now_ms = logs.now_ms()
    for count, log in enumerate(logs.all_logs()):
        if (
            log.config.flush_ms != LONG_MAX
            and log.flusher.unflushed
            and logs.get(log.topic, log.partition) is log
            and now_ms - log.flusher.last_flush_ms >= log.config.flush_ms
        ):
            log.flusher.flush_later(now_ms)
        if count % _SLICE == _SLICE - 1:
            yield None
