"""Stray logs: those that the metadata does not assign to this broker (Kafka's LogManager)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from quorate.log.errors import LogDirFailure
from quorate.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)

IsStray = Callable[[str, int, bytes | None], bool]
"""Whether the metadata does not assign the log of (topic, partition, topic id) to this broker."""

Failed = Callable[[LogDirFailure], None]
"""Takes the directory of a failure offline."""


def choose_stray(
    log: PartitionLog, known: PartitionLog, is_stray: IsStray | None, assigned: Path | None
) -> PartitionLog:
    """The stray one of two logs of the same name. `assigned` is the directory that the metadata assigns to
    their topic id, or to that of the only one that has a topic id. It is None if that directory is not known,
    or if the topic ids differ.

    A directory may be offline while a topic is deleted or its replica moves to another directory, and
    then come back with the old log. The broker may have a new log of that name elsewhere by then
    (Kafka's LogManager.loadLog). A power failure may undo the rename of a deleted log, and lose a topic id
    or an empty log that was not durable yet.

    Raises LogDirFailure if the metadata does not decide between them.
    """
    for candidate in (log, known):
        if (
            is_stray is not None
            and candidate.topic_id
            and is_stray(candidate.topic, candidate.partition, candidate.topic_id)
        ):
            return candidate
    if assigned is not None and assigned == log.log_dir and log.topic_id:
        return known
    if assigned is not None and assigned == known.log_dir and known.topic_id:
        return log
    for candidate in (log, known):
        if candidate.topic_id is None and candidate.log_end_offset == 0:
            return candidate
    log.release_files()
    raise LogDirFailure(
        str(log.log_dir),
        f"{log.name} exists both in {known.log_dir} and in {log.log_dir}; move one of them out of the way",
    )


def rename(log: PartitionLog, failed: Failed | None = None) -> None:
    """Renames the directory of a stray log to `-stray`. A failure goes to `failed`; without it, it is
    raised."""
    was = log.dir
    try:
        target = log.rename_for_delete("stray")
    except LogDirFailure as failure:
        if failed is None:
            raise
        failed(failure)
        return
    logger.warning(
        "[LogManager] %s is not the log that the metadata assigns to this name; renamed to %s", was, target
    )
