"""Writes the offset checkpoints of the log directories: recovery points, log starts, high watermarks.

The offsets of a directory are collected in slices, and the file is written in another thread. Between
the two, logs may be truncated or deleted. Each checkpoint therefore has a number, which is taken before
its first offset is read. A file is never replaced by a checkpoint of a lower number.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from quorate.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    TopicPartition,
    read_offsets,
    write_offsets,
)
from quorate.log.errors import CheckpointError, LogDirFailure
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.scheduler import Step, run_steps

logger = logging.getLogger(__name__)

_SLICE = 2048  # logs whose offset is read between two yields: about a millisecond

_VALUES: dict[str, Callable[[PartitionLog], int | None]] = {
    RECOVERY_POINTS: lambda log: log.flusher.recovery_point_to_checkpoint,
    LOG_STARTS: lambda log: log.log_start_to_checkpoint,
    HIGH_WATERMARKS: lambda log: log.high_watermark,
}
"""The offset of a log in each file; None leaves the log out."""


class OffsetCheckpoints:
    """The offset checkpoints of all log directories.

    `logs` is the log manager's: the logs of each directory, as they are now. Methods raise LogDirFailure.
    """

    def __init__(self, logs: Mapping[Path, Mapping[TopicPartition, PartitionLog]]) -> None:
        self._logs = logs
        self._written: dict[tuple[Path, str], dict[TopicPartition, int]] = {}
        """The content of each file."""
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._newest: dict[tuple[Path, str], int] = {}
        """The number of the checkpoint in each file."""
        self._collecting: dict[tuple[Path, str], set[int]] = {}
        """The numbers of checkpoints that are being collected or have not been written yet."""
        self._deleted_at: dict[tuple[Path, TopicPartition], int] = {}
        """For each deleted log, a number: checkpoints of lower numbers may hold its offsets."""

    def read(self, directory: Path) -> dict[str, dict[TopicPartition, int]]:
        """Reads the three files of a directory. A malformed one counts as empty, because the files only
        save work: everything in them can be found in the logs."""
        found = {}
        for name in _VALUES:
            try:
                found[name] = read_offsets(os.path.join(str(directory), name))
            except CheckpointError as e:
                logger.warning("[LogManager] Going on without a checkpoint: %s", e)
                found[name] = {}
        return found

    def set_written(self, directory: Path, content: Mapping[str, dict[TopicPartition, int]]) -> None:
        """Notes the content of the three files after the logs of a directory were loaded."""
        for name, offsets in content.items():
            self._written[directory, name] = offsets

    def write(self, directory: Path, name: str) -> Iterator[Step]:
        """Collects and writes one file, unless its content is current."""
        number = next(self._numbers)  # before the first offset is read
        collecting = self._collecting.setdefault((directory, name), set())
        collecting.add(number)
        value_of = _VALUES[name]
        offsets: dict[TopicPartition, int] = {}
        for count, (key, log) in enumerate(list(self._logs[directory].items())):
            if log.has_files:
                offset = value_of(log)
                if offset is not None:
                    offsets[key] = offset
            if count % _SLICE == _SLICE - 1:
                yield None
        if offsets != self._written.get((directory, name)) or len(collecting) > 1:
            yield functools.partial(self._write_file, directory, name, offsets, number)
        else:
            collecting.discard(number)

    def _write_file(
        self, directory: Path, name: str, offsets: dict[TopicPartition, int], number: int
    ) -> None:
        with self._lock:
            if self._newest.get((directory, name), 0) > number:
                return
            try:
                write_offsets(os.path.join(str(directory), name), offsets)
            except OSError as e:
                raise LogDirFailure(
                    str(directory), f"Error while writing to checkpoint file {directory / name}: {e}"
                ) from e
            else:
                self._written[directory, name] = offsets
                self._newest[directory, name] = number
            finally:
                # Not before the file is written: a truncation meanwhile must see that the old offset of
                # its log is on its way to the file.
                collecting = self._collecting[directory, name]
                for other in tuple(collecting):
                    if other <= number:
                        collecting.discard(other)

    def write_all(self, directory: Path) -> None:
        """Writes all files of a directory at once, before the manager closes."""
        for name in _VALUES:
            run_steps(self.write(directory, name))

    def lower(self, truncated: Iterable[PartitionLog], is_online: Callable[[Path], bool]) -> None:
        """Rewrites the files that hold greater offsets than these truncated logs have.

        Called before anything is appended to them, as in Kafka's LogManager.truncateTo. Recovery after
        a crash would otherwise take records below an old recovery point as flushed, and delete all
        records below an old log start.
        """
        stale = {
            (log.log_dir, name)
            for log in truncated
            for name, value_of in _VALUES.items()
            if self._collecting.get((log.log_dir, name))  # the old offset may have been read already
            or self._written.get((log.log_dir, name), {}).get((log.topic, log.partition), 0)
            > (value_of(log) or 0)
        }
        for directory, name in stale:
            if is_online(directory):
                run_steps(self.write(directory, name))

    # --- deleted logs -----------------------------------------------------------------------------

    def note_deleted(self, directory: Path, key: TopicPartition) -> None:
        """Notes that checkpoints collected before now may hold offsets of a deleted log."""
        self._deleted_at[directory, key] = next(self._numbers)

    def purge(self, directory: Path, key: TopicPartition) -> Iterator[Step]:
        """Rewrites the files that may hold offsets of a deleted log, before a log of the same name is
        created.

        After a crash these offsets would be taken for those of the new log: a log start above its end
        would delete its records. Done here and not at the deletion, so that one write serves all logs
        that were deleted before.
        """
        for name in _VALUES:
            if key in self._written.get((directory, name), ()) or self._newest.get(
                (directory, name), 0
            ) < self._deleted_at.get((directory, key), 0):
                yield from self.write(directory, name)
        self._deleted_at.pop((directory, key), None)

    def forget_purged(self) -> None:
        """Forgets the deletions that are older than all files of their directory."""
        oldest = {d: min(self._newest.get((d, name), 0) for name in _VALUES) for d in self._logs}
        self._deleted_at = {
            key: number for key, number in self._deleted_at.items() if number > oldest[key[0]]
        }
