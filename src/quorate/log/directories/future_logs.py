"""Future logs: copies of logs in the log directories that they move to (KIP-113).

The directory of a future log is `<topic>-<partition>.<unique id>-future`. When the copy is complete, it gets
the name of the current log, which is deleted. The offset checkpoints of a directory hold the offsets of its
future logs under their topics and partitions, as in Kafka's LogManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from quorate.log.checkpoints import LOG_STARTS, TopicPartition
from quorate.log.directories.deletion import LogDeletion
from quorate.log.directories.offset_checkpoints import OffsetCheckpoints
from quorate.log.files import OpenFiles
from quorate.log.partition.local_log import future_directory_name
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.scheduler import Scheduler, Step

logger = logging.getLogger(__name__)

Logs = dict[TopicPartition, PartitionLog]

_MAX_PREFERRED = 100_000
"""Directories that are remembered for logs that may never be created."""


class FutureLogs:
    """The future logs of a log manager, by topic and partition. A partition has at most one.

    `current` and `by_directory` are the log manager's: its current logs, and the current and future logs
    of each directory.
    """

    def __init__(
        self,
        current: Logs,
        by_directory: dict[Path, Logs],
        files: OpenFiles,
        checkpoints: OffsetCheckpoints,
        deletion: LogDeletion,
        scheduler: Scheduler,
    ) -> None:
        self._current = current
        self._by_directory = by_directory
        self._files = files
        self._checkpoints = checkpoints
        self._deletion = deletion
        self._scheduler = scheduler
        self._logs: Logs = {}
        self._preferred: dict[TopicPartition, Path] = {}

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    # --- start ------------------------------------------------------------------------------------

    def add_found(self, log: PartitionLog, high_watermark: int) -> None:
        """Adds a log that was found at the start. Of two future logs of a partition, the one that was found
        first stays."""
        if (log.topic, log.partition) in self._logs:
            logger.warning("[LogManager] %s is the second future log of its partition; deleting it", log.dir)
            self._deletion.delete_later(log)
            return
        log.high_watermark = high_watermark
        self._add(log)

    def settle(self, assigned_directory: Callable[[PartitionLog], Path | None]) -> None:
        """Decides what becomes of the future logs after all current logs were found. Raises LogDirFailure.

        A future log beside a current one in another directory stays: its move continues. A future log
        without a current one becomes the current log if the metadata assigns the replica to its directory
        (Kafka's LogManager.recoverAbandonedFutureLogs). Here it does so only without a current log, because
        it may lack the last records of that log.
        """
        for log in self:
            current = self._current.get((log.topic, log.partition))
            if current is None and log.topic_id and assigned_directory(log) == log.log_dir:
                logger.warning("[LogManager] %s becomes the current log, because there is no other", log.dir)
                self._promote(log, log.gap_start)
            elif current is not None and (current.log_dir == log.log_dir or current.topic_id != log.topic_id):
                logger.warning("[LogManager] Deleting %s, which is no copy of %s", log.dir, current.dir)
                self.delete(log.topic, log.partition)

    # --- logs that do not exist yet ---------------------------------------------------------------

    def prefer(self, topic: str, partition: int, directory: Path) -> None:
        """Remembers the directory in which the log of a partition is created when it is assigned here."""
        if len(self._preferred) < _MAX_PREFERRED:
            self._preferred[topic, partition] = directory

    def take_preferred(self, key: TopicPartition) -> Path | None:
        """The remembered directory of a log that is created now."""
        return self._preferred.pop(key, None)

    # --- moves ------------------------------------------------------------------------------------

    def create(self, current: PartitionLog, directory: Path, now_ms: int) -> PartitionLog:
        """Adds a future log without files. Raises LogDirFailure."""
        log = PartitionLog.open(
            directory / future_directory_name(current.topic, current.partition),
            current.config,
            files=self._files,
            now_ms=now_ms,
            topic_id=current.topic_id,
            scheduler=self._scheduler,
        )
        self._add(log)
        return log

    def purge_checkpoints(self, log: PartitionLog) -> Iterator[Step]:
        """Removes what the checkpoints hold of an earlier log of the same partition in the same directory.
        Must be done before the files of a new future log are created. Raises LogDirFailure."""
        return self._checkpoints.purge(log.log_dir, (log.topic, log.partition))

    def checkpoint_log_starts(self, log: PartitionLog) -> Iterator[Step]:
        """Writes the log start offsets of the directory of a future log. Raises LogDirFailure."""
        return self._checkpoints.write(log.log_dir, LOG_STARTS)

    def replace_current(self, topic: str, partition: int, now_ms: int) -> PartitionLog:
        """Makes the future log the current one, and deletes the current log (Kafka's
        LogManager.replaceCurrentWithFutureLog). Raises LogDirFailure; if the future log could not be
        renamed, nothing is changed.

        The old directory is renamed after the records in the new one are durable. After a crash in between
        there are two logs, and the metadata says which one is right.
        """
        key = (topic, partition)
        current, future = self._current[key], self._logs[key]
        logger.info("[LogManager] Replacing %s by %s", current.dir, future.dir)
        self._promote(future, current.gap_start)
        future.high_watermark = current.high_watermark
        future.epochs.copy_from(current.epochs)
        source = current.log_dir
        del self._by_directory[source][key]
        self._checkpoints.note_deleted(source, key)
        future.flusher.flush_later(now_ms)
        if current.has_files:
            self._deletion.delete_after_syncs_of(str(future.log_dir), current)
        return future

    def _promote(self, log: PartitionLog, gap_start: int | None) -> None:
        key = (log.topic, log.partition)
        self._deletion.free_name(str(log.log_dir / f"{log.topic}-{log.partition}"))
        log.become_current(gap_start)
        del self._logs[key]
        self._current[key] = log

    def delete(self, topic: str, partition: int) -> None:
        """Removes a future log at once, and its directory later."""
        log = self.remove(topic, partition)
        if log is not None:
            self.delete_files(log)

    def remove(self, topic: str, partition: int) -> PartitionLog | None:
        """Removes a future log, whose directory stays until `delete_files`."""
        log = self._logs.pop((topic, partition), None)
        if log is not None:
            directory, key = log.log_dir, (topic, partition)
            self._by_directory[directory].pop(key, None)
            self._checkpoints.note_deleted(directory, key)
            current = self._current.get(key)
            # A crash may leave both in one directory. Then the entry is now that of the current log.
            if current is not None and current.log_dir == directory:
                self._by_directory[directory][key] = current
        return log

    def delete_files(self, log: PartitionLog) -> None:
        """Deletes the directory of a removed future log later."""
        if log.has_files:
            self._deletion.delete_later(log)

    def directory_failed(self, directory: Path) -> None:
        """Forgets the future logs in a directory that has failed. They keep their files."""
        self._logs = {key: log for key, log in self._logs.items() if log.log_dir != directory}

    def clear(self) -> None:
        """Forgets all future logs when the log manager closes."""
        self._logs.clear()

    def _add(self, log: PartitionLog) -> None:
        key = (log.topic, log.partition)
        self._logs[key] = self._by_directory[log.log_dir][key] = log
