"""All logs of a broker: its directories loaded and closed, logs created and deleted, checkpoints, retention.

`__cluster_metadata-0` belongs to Raft and is left alone. Of the directories with a suffix, `-delete`
ones are removed, `-stray` and `-future` ones are left as they are.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from quorate.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    TopicPartition,
    read_offsets,
    write_offsets,
)
from quorate.log.config import LONG_MAX, LogConfig
from quorate.log.directories import clean_shutdown
from quorate.log.errors import CheckpointError, LogDirFailure, NotALogError
from quorate.log.files import OpenFiles
from quorate.log.partition.local_log import parse_directory_name
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.scheduler import BackgroundScheduler

logger = logging.getLogger(__name__)

METADATA_DIRECTORY = "__cluster_metadata-0"
_CHECKPOINT_SLICE = 2048  # logs whose offset is read between two yields: about a millisecond
_SLICE = 64  # logs between two yields of a periodic job: well below a millisecond when there is nothing to do
_SYNC_ALL_FROM = 64  # unflushed logs; each alone costs two journal commits, about 1 ms
RESERVED_DIRECTORY_IDS = {
    bytes(15) + bytes([n]) for n in range(100)
}  # unassigned, lost, migrating, and those kept for later

_CHECKPOINTS: dict[str, Callable[[PartitionLog], int | None]] = {
    RECOVERY_POINTS: lambda log: log.recovery_point,
    LOG_STARTS: lambda log: (
        log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None
    ),
    HIGH_WATERMARKS: lambda log: log.high_watermark,
}
"""What each checkpoint file holds of a log; None leaves the log out."""

_DELETED = re.compile(r"-\d+\.[0-9a-f]{32}-delete$")

Progress = Callable[[Path, int, int], None]

IsStray = Callable[[str, int, bytes | None], bool]
"""Whether the metadata does not give this broker the log of (topic, partition, topic id)."""

Step = Callable[[], None] | None
"""What a periodic job yields: work on a disk, to be run in another thread before it goes on, or None
for a mere pause."""


def run_steps(job: Iterable[Step]) -> None:
    """Runs a periodic job to its end, all in this thread. Raises LogDirFailure."""
    for step in job:
        if step is not None:
            step()


class LogManager:
    """Used from one thread. Failures of a disk leave as LogDirFailure; the owner then calls `mark_offline`.

    `load` and `close` work on every log: they may run in another thread, while nobody else uses the manager.
    """

    def __init__(
        self,
        dirs: list[Path],
        defaults: LogConfig,
        files: OpenFiles,
        *,
        now_ms: Callable[[], int],
        directory_ids: Mapping[Path, bytes] | None = None,
    ) -> None:
        """Directories without an id, where ids are given, could not be read at the start: they are
        offline."""
        self._dirs = [Path(directory) for directory in dirs]
        self._online = {
            directory: directory_ids is None or directory in directory_ids for directory in self._dirs
        }
        self._loaded: set[Path] = set()
        """Directories of which every log was opened. Only what this manager has read may it mark as
        closed in order."""
        self._defaults = defaults
        self._files = files
        self._now_ms = now_ms
        self._directories_by_id = {id_: directory for directory, id_ in (directory_ids or {}).items()}
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._by_dir: dict[Path, dict[TopicPartition, PartitionLog]] = {
            directory: {} for directory in self._dirs
        }
        self._overrides: dict[str, Mapping[str, Any]] = {}
        self._written: dict[tuple[Path, str], dict[TopicPartition, int]] = {}
        self._checkpoint_lock = threading.Lock()
        self._checkpoint_numbers = itertools.count(1)
        self._newest_checkpoints: dict[tuple[Path, str], int] = {}
        self._collecting: dict[tuple[Path, str], set[int]] = {}
        """The numbers of checkpoints whose offsets have been read, at least in part, and that are not
        written yet."""
        self._deleted_at: dict[tuple[Path, TopicPartition], int] = {}
        """By deleted log, a number: checkpoints below it may hold its offsets."""
        self._scheduler = BackgroundScheduler()
        self._doomed: dict[str, PartitionLog] = {}
        """Deleted logs whose directories still have their names; changed with the lock held."""
        self._doomed_lock = threading.Lock()

    # --- start ------------------------------------------------------------------------------------

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch in force at the last orderly stop, if all directories agree on it; else -1.
        Read before `load`."""
        epochs = set()
        if not all(self._online.values()):
            return -1
        for directory in self._dirs:
            try:
                epochs.add(clean_shutdown.read(str(directory)))
            except OSError:
                return -1
        epoch = epochs.pop() if len(epochs) == 1 else None
        return -1 if epoch is None else epoch

    def load(
        self,
        overrides_of: Callable[[str], Mapping[str, Any]] | None = None,
        progress: Progress | None = None,
        is_stray: IsStray | None = None,
    ) -> list[LogDirFailure]:
        """Opens every log on disk, recovering those of directories that were not closed in order.

        progress(directory, logs done, logs found) is called while it works. Directories that fail go
        offline and are returned. Where two directories have a log of one name, the stray one is set
        aside.
        """
        failures: list[LogDirFailure] = []

        def fail(directory: Path, failure: LogDirFailure) -> None:
            logger.error("[LogManager] %s", failure)
            self.mark_offline(directory)
            failures.append(failure)

        for directory in self._dirs:
            if not self._online[directory]:
                continue
            try:
                self._load_directory(directory, overrides_of, progress, is_stray)
                self._loaded.add(directory)
            except LogDirFailure as e:
                fail(directory, e)
            except OSError as e:
                fail(
                    directory,
                    LogDirFailure(str(directory), f"Error while loading logs from {directory}: {e}"),
                )
        return failures

    def _load_directory(
        self,
        directory: Path,
        overrides_of: Callable[[str], Mapping[str, Any]] | None,
        progress: Progress | None,
        is_stray: IsStray | None,
    ) -> None:
        text = str(directory)
        clean = clean_shutdown.read(text) is not None
        if clean:
            clean_shutdown.remove(text)
        recovery_points = self._read_checkpoint(directory, RECOVERY_POINTS)
        log_starts = self._read_checkpoint(directory, LOG_STARTS)
        high_watermarks = self._read_checkpoint(directory, HIGH_WATERMARKS)
        with os.scandir(text) as entries:
            names = [entry.name for entry in entries if entry.is_dir()]
        now_ms = self._now_ms()
        doomed: list[str] = []
        wanted: list[tuple[str, TopicPartition]] = []
        for name in names:
            if name == METADATA_DIRECTORY or name.endswith(("-stray", "-future")):
                continue
            if _DELETED.search(name):
                doomed.append(os.path.join(text, name))
                continue
            try:
                wanted.append((name, parse_directory_name(name)))
            except ValueError as e:
                logger.warning("[LogManager] Leaving %s alone: %s", os.path.join(text, name), e)
        if wanted and not clean:
            logger.info("[LogManager] %s was not closed in order; its logs are recovered", text)
        for done, (name, key) in enumerate(wanted):
            if progress is not None and done % 100 == 0:
                progress(directory, done, len(wanted))
            if overrides_of is not None and key[0] not in self._overrides:
                self._overrides[key[0]] = overrides_of(key[0])
            try:
                log = PartitionLog.open(
                    directory / name,
                    self._config_for(key[0]),
                    files=self._files,
                    recovery_point=recovery_points.get(key, 0),
                    log_start_offset=log_starts.get(key, 0),
                    clean_shutdown=clean,
                    now_ms=now_ms,
                    scheduler=self._scheduler,
                    must_exist=True,
                )
            except NotALogError as e:
                logger.warning("[LogManager] Leaving %s alone: %s", directory / name, e)
                continue
            if key in self._logs and not self._replaces(log, self._logs[key], is_stray):
                continue
            committed = high_watermarks.get(key, 0)
            if committed > log.log_end_offset:
                logger.error(
                    "[LogManager] %s ends at offset %d, but everything below %d was committed: %d record(s) "
                    "are lost",
                    directory / name,
                    log.log_end_offset,
                    committed,
                    committed - log.log_end_offset,
                )
            log.high_watermark = committed
            self._logs[key] = self._by_dir[directory][key] = log
        if progress is not None:
            progress(directory, len(wanted), len(wanted))
        if doomed:
            self._scheduler.remove_later(doomed, self._defaults.file_delete_delay_ms)
        for file, content in (
            (RECOVERY_POINTS, recovery_points),
            (LOG_STARTS, log_starts),
            (HIGH_WATERMARKS, high_watermarks),
        ):
            self._written[directory, file] = content

    def _replaces(self, log: PartitionLog, known: PartitionLog, is_stray: IsStray | None) -> bool:
        """Of two logs of one name sets the stray one aside; whether `known` was it. Raises
        LogDirFailure if none is.

        A directory that was offline while a topic was deleted, or its replica moved away, comes back
        with the old log. The broker may have a new one of that name elsewhere by then (Kafka's
        LogManager.loadLog).
        """
        for candidate in (log, known):
            if (
                is_stray is not None
                and candidate.topic_id
                and is_stray(log.topic, log.partition, candidate.topic_id)
            ):
                if candidate is known:
                    self._forget(known.topic, known.partition)
                self._set_aside(candidate)
                return candidate is known
        log.release_files()
        raise LogDirFailure(
            str(log.dir.parent),
            f"{log.name} exists both in {known.dir.parent} and in {log.dir.parent}; move one of them out of "
            "the way",
        )

    @staticmethod
    def _set_aside(log: PartitionLog) -> None:
        was = log.dir
        logger.warning(
            "[LogManager] %s is not what the metadata has under that name: set aside as %s",
            was,
            log.rename_for_delete("stray"),
        )

    @staticmethod
    def _read_checkpoint(directory: Path, name: str) -> dict[TopicPartition, int]:
        path = os.path.join(str(directory), name)
        try:
            return read_offsets(path)
        except CheckpointError as e:
            # All three are only hints that save work; the logs tell the rest.
            logger.warning("[LogManager] Going on without a checkpoint: %s", e)
            return {}

    def delete_strays(
        self,
        is_stray: IsStray,
        wants_name: Callable[[str, int], bool] = lambda _topic, _partition: False,
    ) -> int:
        """Deletes logs that the metadata does not give to this broker; how many strays there were.

        Where it gives this broker a partition of that name (`wants_name`), the log is of an earlier
        topic or its `partition.metadata` is damaged; where there is no topic id, it may be anything:
        nobody can tell, so these are set aside as `-stray`, which is Kafka's way with all strays.
        """
        strays = [log for log in self._logs.values() if is_stray(log.topic, log.partition, log.topic_id)]
        for log in strays:
            if log.is_materialised and (log.topic_id is None or wants_name(log.topic, log.partition)):
                self._forget(log.topic, log.partition)
                self._set_aside(log)
            else:
                logger.info("[LogManager] Deleting stray log %s", log.dir)
                self.delete(log.topic, log.partition)
        return len(strays)

    # --- logs -------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def all_logs(self) -> list[PartitionLog]:
        return list(self._logs.values())

    def __len__(self) -> int:
        return len(self._logs)

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        *,
        overrides: Mapping[str, Any] | None = None,
        directory_id: bytes | None = None,
        now_ms: int | None = None,
    ) -> PartitionLog:
        """The log of a partition; a new one, without files yet, lies where `directory_id` says or else
        where the fewest logs are.

        Raises LogDirFailure when no directory is online.
        """
        key = (topic, partition)
        found = self._logs.get(key)
        if found is not None:
            if found.topic_id is None and topic_id is not None:
                found.adopt_topic_id(topic_id)
            return found
        directory = (
            self._directories_by_id.get(directory_id)
            if directory_id not in RESERVED_DIRECTORY_IDS and directory_id
            else None
        )
        if directory is None or not self._online.get(directory, False):
            online = self.online_dirs()
            if not online:
                raise LogDirFailure(
                    str(self._dirs[0]),
                    f"No log directory is online: there is no place for {topic}-{partition}",
                )
            directory = min(online, key=lambda candidate: len(self._by_dir[candidate]))
        if overrides is not None:
            self._overrides[topic] = overrides
        for name in _CHECKPOINTS:
            # What they hold of a deleted log of this name must not be taken for the new one's after a
            # crash: a log start above its end would delete its records. Written here and not at the
            # deletion, once for all that were deleted.
            if key in self._written.get((directory, name), ()) or self._newest_checkpoints.get(
                (directory, name), 0
            ) < self._deleted_at.get((directory, key), 0):
                run_steps(self._checkpoint_of(directory, name))
        self._deleted_at.pop((directory, key), None)
        place = directory / f"{topic}-{partition}"
        for (
            candidate
        ) in self.online_dirs():  # elsewhere, too: after a crash there would be two logs of one name
            self._rename_doomed(str(candidate / place.name))
        log = PartitionLog.open(
            place,
            self._config_for(topic),
            files=self._files,
            now_ms=self._now_ms() if now_ms is None else now_ms,
            topic_id=topic_id,
            scheduler=self._scheduler,
        )
        self._logs[key] = self._by_dir[directory][key] = log
        return log

    def delete(self, topic: str, partition: int) -> None:
        """Forgets the log. A thread renames its directory, and removes it after `file.delete.delay.ms`.

        Until then a crash brings the log back, as a stray that the next start deletes.
        """
        log = self._forget(topic, partition)
        if log is not None and log.is_materialised:
            log.release_files()
            path = str(log.dir)
            with self._doomed_lock:
                self._doomed[path] = log
            self._scheduler.run_later(functools.partial(self._rename_doomed, path), os.path.dirname(path))

    def _rename_doomed(self, path: str) -> None:
        """Takes the name from a deleted log's directory, if it still has it: a new log may want it.
        Raises LogDirFailure."""
        with self._doomed_lock:
            log = self._doomed.pop(path, None)
            if log is None:
                return
            renamed = log.rename_for_delete()
        self._scheduler.remove_later([renamed], log.config.file_delete_delay_ms)

    def _forget(self, topic: str, partition: int) -> PartitionLog | None:
        log = self._logs.pop((topic, partition), None)
        if log is not None:
            directory = log.dir.parent
            del self._by_dir[directory][topic, partition]
            self._deleted_at[directory, (topic, partition)] = next(self._checkpoint_numbers)
        return log

    # --- configuration ----------------------------------------------------------------------------

    def _config_for(self, topic: str) -> LogConfig:
        overrides = self._overrides.get(topic)
        return self._defaults.with_overrides(overrides) if overrides else self._defaults

    def reconfigure(self, topic: str, overrides: Mapping[str, Any]) -> None:
        """The topic's own configs are `overrides` now. Raises ValueError."""
        self._overrides[topic] = overrides
        config = self._config_for(topic)
        for log in self._logs.values():
            if log.topic == topic:
                log.update_config(config)

    def reconfigure_defaults(self, defaults: LogConfig) -> None:
        """What topics have without configs of their own."""
        self._defaults = defaults
        for log in self._logs.values():
            log.update_config(self._config_for(log.topic))

    # --- directories ------------------------------------------------------------------------------

    def online_dirs(self) -> list[Path]:
        return [directory for directory in self._dirs if self._online[directory]]

    def is_online(self, directory: Path) -> bool:
        return self._online.get(Path(directory), False)

    def mark_offline(self, directory: Path) -> list[TopicPartition]:
        """Lets go of a failed directory; the partitions that lived there."""
        directory = Path(directory)
        if not self._online.get(directory, False):
            return []
        self._online[directory] = False
        lost = self._by_dir[directory]
        self._by_dir[directory] = {}
        for key, log in lost.items():
            del self._logs[key]
            log.release_files()
        logger.error("[LogManager] Directory %s is offline, with %d logs", directory, len(lost))
        return list(lost)

    # --- periodic work, in slices -----------------------------------------------------------------

    def sweep(self) -> Iterator[Step]:
        """Applies retention. Raises LogDirFailure."""
        self._scheduler.run_callbacks()
        now_ms = self._now_ms()
        for count, log in enumerate(list(self._logs.values())):
            deleted = 0
            if log.is_materialised and self._logs.get((log.topic, log.partition)) is log:
                deleted = log.delete_old_segments(now_ms)
            if deleted or count % _SLICE == _SLICE - 1:
                yield None

    def expire_producers(self) -> Iterator[Step]:
        """Forgets the producers that have not written for `producer.id.expiration.ms`."""
        now_ms = self._now_ms()
        for count, log in enumerate(list(self._logs.values())):
            log.producers.remove_expired(now_ms)
            if count % _SLICE == _SLICE - 1:
                yield None

    def flush_due(self) -> Iterator[Step]:
        """Flushes logs whose `flush.ms` is over. Raises LogDirFailure."""
        self._scheduler.run_callbacks()
        now_ms = self._now_ms()
        for count, log in enumerate(list(self._logs.values())):
            if (
                log.config.flush_ms != LONG_MAX
                and log.flusher.unflushed
                and now_ms - log.flusher.last_flush_ms >= log.config.flush_ms
            ):
                log.flusher.flush_later(now_ms)
            if count % _SLICE == _SLICE - 1:
                yield None

    def checkpoint_recovery_points(self) -> Iterator[Step]:
        """Raises LogDirFailure, as do the next two."""
        self._scheduler.run_callbacks()
        oldest = {
            d: min(self._newest_checkpoints.get((d, name), 0) for name in _CHECKPOINTS) for d in self._dirs
        }
        self._deleted_at = {
            key: number for key, number in self._deleted_at.items() if number > oldest[key[0]]
        }
        return self._checkpoint(RECOVERY_POINTS)

    def checkpoint_log_start_offsets(self) -> Iterator[Step]:
        return self._checkpoint(LOG_STARTS)

    def checkpoint_high_watermarks(self) -> Iterator[Step]:
        return self._checkpoint(HIGH_WATERMARKS)

    def _checkpoint(self, name: str) -> Iterator[Step]:
        for directory in self.online_dirs():
            yield from self._checkpoint_of(directory, name)

    def lower_checkpoints(self, truncated: Iterable[PartitionLog]) -> None:
        """Rewrites checkpoints that claim more than these logs hold since they were truncated. Raises
        LogDirFailure.

        To be called before anything is appended behind the cuts, as Kafka's LogManager.truncateTo does:
        recovery after a crash would take records below an old recovery point as flushed, and delete all
        below an old log start.
        """
        stale = {
            (log.dir.parent, name)
            for log in truncated
            for name, value in _CHECKPOINTS.items()
            if self._collecting.get((log.dir.parent, name))  # the old offset may have been read already
            or self._written.get((log.dir.parent, name), {}).get((log.topic, log.partition), 0)
            > (value(log) or 0)
        }
        for directory, name in stale:
            if self._online.get(directory, False):
                run_steps(self._checkpoint_of(directory, name))

    def _checkpoint_of(self, directory: Path, name: str) -> Iterator[Step]:
        number = next(self._checkpoint_numbers)  # before the first offset is read
        collecting = self._collecting.setdefault((directory, name), set())
        collecting.add(number)
        value = _CHECKPOINTS[name]
        offsets: dict[TopicPartition, int] = {}
        for count, (key, log) in enumerate(list(self._by_dir[directory].items())):
            if log.is_materialised:
                offset = value(log)
                if offset is not None:
                    offsets[key] = offset
            if count % _CHECKPOINT_SLICE == _CHECKPOINT_SLICE - 1:
                yield None
        if offsets != self._written.get((directory, name)) or len(collecting) > 1:
            yield functools.partial(self._write_checkpoint, directory, name, offsets, number)
        else:
            collecting.discard(number)

    def _write_checkpoint(
        self, directory: Path, name: str, offsets: dict[TopicPartition, int], number: int
    ) -> None:
        """Writes what was collected under `number`, unless a later collection is in the file already.
        Raises LogDirFailure."""
        with self._checkpoint_lock:
            if self._newest_checkpoints.get((directory, name), 0) > number:
                return
            collecting = self._collecting[directory, name]
            for other in tuple(collecting):
                if other <= number:
                    collecting.discard(other)
            try:
                write_offsets(os.path.join(str(directory), name), offsets)
            except OSError as e:
                raise LogDirFailure(
                    str(directory), f"Error while writing to checkpoint file {directory / name}: {e}"
                ) from e
            self._written[directory, name] = offsets
            self._newest_checkpoints[directory, name] = number

    # --- stop -------------------------------------------------------------------------------------

    def close(self, *, broker_epoch: int = -1) -> None:
        """Closes all logs and marks each directory as closed in order; one whose logs cannot be closed
        is not marked.

        A directory that was not loaded, because the broker was told to stop before, stays as it was
        found: without its logs its checkpoints would be written empty, and a marker would keep the next
        start from recovering what a crash left. Only the epoch in a marker becomes that of a broker
        that has registered meanwhile: the controller compares it with the last one.
        """
        self._scheduler.close()
        while True:
            try:
                self._scheduler.run_callbacks()
                break
            except LogDirFailure as failure:  # there may be one for each directory
                logger.error("[LogManager] %s", failure)
                self.mark_offline(Path(failure.directory))
        # With many logs one sync() of everything is cheaper than their journals' commits one by one.
        together = sum(1 for log in self._logs.values() if log.flusher.unflushed) >= _SYNC_ALL_FROM
        for directory in self.online_dirs():
            try:
                if directory not in self._loaded:
                    if broker_epoch >= 0 and clean_shutdown.read(str(directory)) is not None:
                        clean_shutdown.write(str(directory), broker_epoch)
                    continue
                logs = list(self._by_dir[directory].values())
                for log in logs:
                    log.close(sync=not together)
                if together:
                    os.sync()
                    for log in logs:
                        log.flusher.note_flushed()
                for name in _CHECKPOINTS:
                    run_steps(self._checkpoint_of(directory, name))
                clean_shutdown.write(str(directory), broker_epoch)
            except (LogDirFailure, OSError) as e:
                logger.error("[LogManager] %s could not be closed in order: %s", directory, e)
                self.mark_offline(directory)
        self._logs.clear()
        for closed in self._by_dir.values():
            closed.clear()
