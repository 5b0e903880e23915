"""`LogManager`: all logs of a broker in its log directories. Loads, creates, deletes and closes them, and
writes their checkpoints.

`__cluster_metadata-0` belongs to Raft and is ignored. A directory with the suffix `-delete` is removed;
those with `-stray` are ignored; those with `-future` are future logs.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate.lazy import lazy_module
from quorate.log.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, TopicPartition
from quorate.log.config import LogConfig
from quorate.log.directories import clean_shutdown
from quorate.log.directories.deletion import LogDeletion
from quorate.log.directories.future_logs import FutureLogs, Logs
from quorate.log.directories.listing import list_logs
from quorate.log.directories.offset_checkpoints import OffsetCheckpoints
from quorate.log.errors import LogDirFailure, NotALogError
from quorate.log.files import FileSystem, OpenFiles
from quorate.log.partition.local_log import FUTURE_SUFFIX
from quorate.log.partition.partition_log import PartitionLog
from quorate.log.scheduler import BackgroundScheduler, Step, run_steps
from quorate.protocol.uuids import is_reserved

if TYPE_CHECKING:
    from quorate.log.directories import opening, strays
    from quorate.log.directories.strays import Failed, IsStray
else:
    opening = lazy_module("quorate.log.directories.opening")
    strays = lazy_module("quorate.log.directories.strays")

logger = logging.getLogger(__name__)

_SYNC_ALL_FROM = 64
"""From this many logs that need a sync on, one sync of the file system is cheaper."""
Progress = Callable[[Path, int, int], None]
"""Called with (directory, logs loaded, logs found)."""

AssignedDirectory = Callable[[bytes, int], bytes]
"""The id of the directory that the metadata assigns to the replica of (topic id, partition)."""


class LogManager:
    """The logs of a broker.

    All methods are called in the same thread, except that `load` and `close` may run in another one. The
    manager must not be used while they run there. When a method raises LogDirFailure, the owner calls
    `mark_offline`.
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
        """`directory_ids` has the ids of the directories that could be read at startup; the others are
        offline. Without it, all directories are online."""
        self._dirs = [Path(directory) for directory in dirs]
        self._online = {
            directory: directory_ids is None or directory in directory_ids for directory in self._dirs
        }
        self._file_systems: dict[Path, FileSystem] = {}
        self._loaded: set[Path] = set()
        """The directories whose logs were all opened. Only these may be marked as cleanly closed."""
        self.cordoned: frozenset[Path] = frozenset()
        """The directories in which no new log is placed, unless it is assigned to one of them (KIP-1066)."""
        self._defaults = defaults
        self.files = files
        self.now_ms = now_ms
        self._directories_by_id = {id_: directory for directory, id_ in (directory_ids or {}).items()}
        self._assigned_directory: AssignedDirectory | None = None
        self._logs: Logs = {}
        self._by_dir: dict[Path, Logs] = {directory: {} for directory in self._dirs}
        self._overrides: dict[str, Mapping[str, Any]] = {}
        self._ignored: set[str] = set()
        """Errors of overrides that were logged. Each new log of a topic meets them again."""
        self.scheduler = BackgroundScheduler()
        self._checkpoints = OffsetCheckpoints(self._by_dir)
        self._deletion = LogDeletion(self.scheduler)
        self.futures = FutureLogs(
            self._logs, self._by_dir, files, self._checkpoints, self._deletion, self.scheduler
        )

    # --- start ------------------------------------------------------------------------------------

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch at the last clean stop, -1 unless all directories have the same one. Must be
        read before `load`."""
        return clean_shutdown.common_epoch(self._dirs) if all(self._online.values()) else -1

    def load(
        self,
        overrides_of: Callable[[str], Mapping[str, Any]] | None = None,
        progress: Progress | None = None,
        is_stray: IsStray | None = None,
        assigned_directory: AssignedDirectory | None = None,
        threads: int = 1,
    ) -> list[LogDirFailure]:
        """Opens every log on disk and recovers those of directories that were not cleanly closed.

        `threads` logs are recovered at the same time. Directories that fail go offline; their failures are
        returned. If two directories have a log of the same name, one of them is renamed: the stray log, or
        if neither is stray, the log that is not in the assigned directory.
        """
        self._assigned_directory = assigned_directory
        failures: list[LogDirFailure] = []

        def fail(failure: LogDirFailure) -> None:
            logger.error("[LogManager] %s", failure)
            self.mark_offline(Path(failure.directory))
            failures.append(failure)

        for directory in [d for d in self._dirs if self._online[d]]:
            try:
                self._load_directory(directory, overrides_of, progress, is_stray, fail, threads)
                self._loaded.add(directory)
            except LogDirFailure as e:
                fail(e)
            except OSError as e:
                fail(LogDirFailure(str(directory), f"Error while loading logs from {directory}: {e}"))
        try:
            self.futures.settle(functools.partial(self._assigned_to, is_stray))
        except LogDirFailure as e:
            fail(e)
        return failures

    def _load_directory(
        self,
        directory: Path,
        overrides_of: Callable[[str], Mapping[str, Any]] | None,
        progress: Progress | None,
        is_stray: IsStray | None,
        fail: Failed,
        threads: int,
    ) -> None:
        text = str(directory)
        self._file_systems[directory] = FileSystem(text)
        clean = clean_shutdown.read(text) is not None
        if clean:
            clean_shutdown.remove(text)
        offsets = self._checkpoints.read(directory)
        wanted, to_delete = list_logs(text)
        now_ms = self.now_ms()
        if wanted and not clean:
            logger.info("[LogManager] %s was not closed cleanly; its logs are recovered", text)
        for topic in {topic for _, (topic, _) in wanted}:
            if overrides_of is not None and topic not in self._overrides:
                self._overrides[topic] = overrides_of(topic)
        configs = {topic: self._config_for(topic) for _, (topic, _) in wanted}

        def open_log(found: tuple[str, TopicPartition]) -> PartitionLog | None:
            name, key = found
            try:
                return PartitionLog.open(
                    directory / name,
                    configs[key[0]],
                    files=self.files,
                    recovery_point=offsets[RECOVERY_POINTS].get(key, 0),
                    log_start_offset=offsets[LOG_STARTS].get(key, 0),
                    clean_shutdown=clean,
                    now_ms=now_ms,
                    scheduler=self.scheduler,
                    must_exist=True,
                )
            except NotALogError as e:
                logger.warning("[LogManager] Leaving %s alone: %s", directory / name, e)
                return None

        # Without recovery there is little to wait for: threads would only wait for each other.
        opened = opening.map_in_order(open_log, wanted, 1 if clean else threads)
        with contextlib.closing(opened):
            for done, ((name, key), log) in enumerate(zip(wanted, opened, strict=True)):
                if progress is not None and done % 100 == 0:
                    progress(directory, done, len(wanted))
                if log is not None:
                    self._add_found(name, key, log, offsets[HIGH_WATERMARKS].get(key, 0), is_stray, fail)
        if progress is not None:
            progress(directory, len(wanted), len(wanted))
        if to_delete:
            self.scheduler.remove_later(to_delete, self._defaults.file_delete_delay_ms)
        self._checkpoints.set_written(directory, offsets)
        # After the load, a log that was truncated inside of a batch or in a gap ends at its last batch. If
        # this is before the recovery point on disk, the next recovery would skip records appended below it.
        points = offsets[RECOVERY_POINTS]
        logs = self._by_dir[directory]
        self._checkpoints.lower(
            [log for key, log in logs.items() if log.recovery_point < points.get(key, 0)], self.is_online
        )

    def _add_found(
        self,
        name: str,
        key: TopicPartition,
        log: PartitionLog,
        committed: int,
        is_stray: IsStray | None,
        fail: Failed,
    ) -> None:
        """Adds a log that was opened, with its high watermark from the checkpoint. Raises LogDirFailure if it
        has the name of another log, and neither can be renamed."""
        if name.endswith(FUTURE_SUFFIX):
            self.futures.add_found(log, committed)
            return
        if key in self._logs and not self._resolve_duplicate(log, self._logs[key], is_stray, fail):
            return
        if committed > log.log_end_offset:
            logger.error(
                "[LogManager] %s ends at offset %d, but everything below %d was committed: %d record(s) "
                "are lost",
                log.dir,
                log.log_end_offset,
                committed,
                committed - log.log_end_offset,
            )
        log.high_watermark = committed
        self._logs[key] = self._by_dir[log.log_dir][key] = log

    def _resolve_duplicate(
        self, log: PartitionLog, known: PartitionLog, is_stray: IsStray | None, fail: Failed
    ) -> bool:
        """Renames the stray one of two logs of the same name. Returns whether `log` takes the place of
        `known`. Raises LogDirFailure if the metadata does not decide between them, or if `log` cannot be
        renamed."""
        assigned = None
        if log.topic_id == known.topic_id or None in (log.topic_id, known.topic_id):
            assigned = self._assigned_to(is_stray, log if log.topic_id else known)
        stray = strays.choose_stray(log, known, is_stray, assigned)
        if stray is known:
            self._forget(known.topic, known.partition)
        strays.rename(stray, fail if stray is known else None)
        return stray is known

    def _assigned_to(self, is_stray: IsStray | None, log: PartitionLog) -> Path | None:
        """The directory that the metadata assigns to a log with a topic id, if it is known and the log is no
        stray."""
        assigned, topic_id = self._assigned_directory, log.topic_id
        if (
            assigned is None
            or topic_id is None
            or (is_stray and is_stray(log.topic, log.partition, topic_id))
        ):
            return None
        return self._directories_by_id.get(assigned(topic_id, log.partition))

    def delete_strays(
        self,
        is_stray: IsStray,
        wants_name: Callable[[str, int], bool] = lambda _topic, _partition: False,
        failed: Failed | None = None,
    ) -> int:
        """Deletes the logs that the metadata does not assign to this broker. Returns their number.

        Two kinds are only renamed to `-stray`, because their origin is uncertain (Kafka renames all
        strays): logs without a topic id, and logs whose name the metadata assigns to this broker
        (`wants_name`). The latter belong to an earlier topic or have a damaged `partition.metadata`.
        """
        for future in self.futures:
            if is_stray(future.topic, future.partition, future.topic_id):
                self.futures.delete(future.topic, future.partition)
        found = [log for log in self._logs.values() if is_stray(log.topic, log.partition, log.topic_id)]
        for log in found:
            if not self.is_online(log.log_dir):  # it has failed meanwhile
                continue
            if log.has_files and (log.topic_id is None or wants_name(log.topic, log.partition)):
                self._forget(log.topic, log.partition)
                strays.rename(log, failed)
            else:
                logger.info("[LogManager] Deleting stray log %s", log.dir)
                self.delete(log.topic, log.partition)
        return len(found)

    # --- logs -------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def all_logs(self) -> list[PartitionLog]:
        return list(self._logs.values())

    def __len__(self) -> int:
        return len(self._logs)

    def get_or_create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        *,
        overrides: Mapping[str, Any] | None = None,
        directory_id: bytes | None = None,
        now_ms: int | None = None,
    ) -> PartitionLog:
        """The log of a partition. A new log, which has no files yet, is placed in the preferred directory,
        in that of `directory_id`, or in the one with the fewest logs that is not cordoned, else the first.

        Raises LogDirFailure if no directory is online.
        """
        key = (topic, partition)
        found = self._logs.get(key)
        if found is not None:
            if found.topic_id is None and topic_id is not None:
                found.adopt_topic_id(topic_id)
            return found
        directory = self.futures.take_preferred(key)
        if directory is None and directory_id and not is_reserved(directory_id):
            directory = self._directories_by_id.get(directory_id)
        if directory is None or not self._online.get(directory, False):
            online = self.online_dirs()
            if not online:
                raise LogDirFailure(
                    str(self._dirs[0]),
                    f"No log directory is online: {topic}-{partition} cannot be created",
                )
            allowed = [candidate for candidate in online if candidate not in self.cordoned] or online[:1]
            directory = min(allowed, key=lambda candidate: len(self._by_dir[candidate]))
        if overrides is not None:
            self._overrides[topic] = overrides
        run_steps(self._checkpoints.purge(directory, key))
        place = directory / f"{topic}-{partition}"
        # In all directories: a crash must not leave two logs of one name.
        for candidate in self.online_dirs():
            self._deletion.free_name(str(candidate / place.name))
        log = PartitionLog.open(
            place,
            self._config_for(topic),
            files=self.files,
            now_ms=self.now_ms() if now_ms is None else now_ms,
            topic_id=topic_id,
            scheduler=self.scheduler,
        )
        self._logs[key] = self._by_dir[directory][key] = log
        return log

    def delete(self, topic: str, partition: int) -> None:
        """Removes a log and its future log at once, and their directories later (see `LogDeletion`)."""
        log = self._forget(topic, partition)
        if log is not None and log.has_files:
            self._deletion.delete_later(log)
        self.futures.delete(topic, partition)

    def _forget(self, topic: str, partition: int) -> PartitionLog | None:
        log = self._logs.pop((topic, partition), None)
        if log is not None:
            directory = log.log_dir
            del self._by_dir[directory][topic, partition]
            self._checkpoints.note_deleted(directory, (topic, partition))
        return log

    # --- configuration ----------------------------------------------------------------------------

    def _config_for(self, topic: str) -> LogConfig:
        """The configuration of the logs of a topic. An override that this broker cannot read has no effect: a
        controller of a later release of Apache Kafka may accept new values."""

        def ignore(error: ValueError) -> None:
            text = f"Ignoring a config of topic {topic}: {error}"
            if text not in self._ignored:
                self._ignored.add(text)
                logger.error("[LogManager] %s", text)

        return self._defaults.with_overrides(self._overrides.get(topic, {}), ignore)

    def reconfigure(
        self, overrides: Mapping[str, Mapping[str, Any]], defaults: LogConfig | None = None
    ) -> None:
        """Replaces the overrides of topics, and with `defaults` the broker's defaults."""
        self._overrides.update(overrides)
        if defaults is not None:
            self._defaults = defaults
        topics = overrides if defaults is None else {topic for topic, _ in self._logs}
        configs = {topic: self._config_for(topic) for topic in topics}
        for log in (*self._logs.values(), *self.futures):
            if (config := configs.get(log.topic)) is not None:
                log.update_config(config)

    # --- directories ------------------------------------------------------------------------------

    @property
    def dirs(self) -> tuple[Path, ...]:
        """All log directories, online or not."""
        return tuple(self._dirs)

    def online_dirs(self) -> list[Path]:
        return [directory for directory in self._dirs if self._online[directory]]

    def is_online(self, directory: Path) -> bool:
        return self._online.get(Path(directory), False)

    def mark_offline(self, directory: Path) -> list[TopicPartition]:
        """Takes a failed directory offline. Returns the partitions of its current logs."""
        directory = Path(directory)
        if not self._online.get(directory, False):
            return []
        self._online[directory] = False
        self.futures.directory_failed(directory)
        lost = self._by_dir[directory]
        self._by_dir[directory] = {}
        current = [key for key, log in lost.items() if self._logs.get(key) is log]
        for log in lost.values():
            log.release_files()
        # Those of logs that `load` has opened but not added, too, so that the disk can be unmounted.
        self.files.forget_under(str(directory))
        for key in current:
            del self._logs[key]
        logger.error("[LogManager] Directory %s is offline, with %d logs", directory, len(current))
        return current

    def on_background_failure(self, wake: Callable[[], None] | None) -> None:
        """Sets the function that is called after each failure of background work. It is called in another
        thread. The owner then takes the `background_failures`."""
        self.scheduler.on_failure(wake)

    def background_failures(self) -> Iterator[LogDirFailure]:
        """Yields the failures of background work, such as the sync of a roll, one for each directory."""
        while True:
            try:
                self.scheduler.run_callbacks()
                return
            except LogDirFailure as failure:
                yield failure

    # --- checkpoints, in steps (see `scheduler.Step`) ---------------------------------------------

    def checkpoint_recovery_points(self) -> Iterator[Step]:
        """Writes the recovery points of all directories. Raises LogDirFailure."""
        self.scheduler.run_callbacks()
        self._checkpoints.forget_purged()
        return self._checkpoint(RECOVERY_POINTS)

    def checkpoint_log_start_offsets(self) -> Iterator[Step]:
        """Writes the log start offsets of all directories. Raises LogDirFailure."""
        return self._checkpoint(LOG_STARTS)

    def checkpoint_high_watermarks(self) -> Iterator[Step]:
        """Writes the high watermarks of all directories. Raises LogDirFailure."""
        return self._checkpoint(HIGH_WATERMARKS)

    def _checkpoint(self, name: str) -> Iterator[Step]:
        for directory in self.online_dirs():
            # Another one may have failed while the last file was written. It has no logs here any more, and
            # must keep its checkpoint for the next start.
            if self.is_online(directory):
                yield from self._checkpoints.write(directory, name)

    def lower_checkpoints(self, truncated: Iterable[PartitionLog]) -> None:
        """Corrects the checkpoints of truncated logs, before anything is appended to them. Raises
        LogDirFailure."""
        self._checkpoints.lower(truncated, self.is_online)

    # --- stop -------------------------------------------------------------------------------------

    def close(self, *, broker_epoch: int = -1) -> None:
        """Closes all logs, and marks each directory as cleanly closed if all of its logs could be closed.

        A directory that was not loaded keeps its files. Otherwise its checkpoints would be written empty, and
        a new marker would claim that no recovery is necessary. A marker that it already has gets the new
        broker epoch if the broker has registered. The next registration reports that epoch, and the
        controller compares it with the last registered one.
        """
        self.scheduler.close()
        for failure in self.background_failures():
            logger.error("[LogManager] %s", failure)
            self.mark_offline(Path(failure.directory))
        sync_all = sum(1 for log in self._logs.values() if log.flusher.needs_sync) >= _SYNC_ALL_FROM
        for directory in self.online_dirs():
            try:
                if directory not in self._loaded:
                    if broker_epoch >= 0 and clean_shutdown.read(str(directory)) is not None:
                        clean_shutdown.write(str(directory), broker_epoch)
                    continue
                logs = list(self._by_dir[directory].values())
                for log in logs:
                    log.close(sync=not sync_all)
                if sync_all:
                    checked = self._file_systems[directory].sync()
                    for log in logs:
                        log.flusher.note_flushed(checked=checked)
                self._checkpoints.write_all(directory)
                clean_shutdown.write(str(directory), broker_epoch)
            except (LogDirFailure, OSError) as e:
                logger.error("[LogManager] %s could not be closed cleanly: %s", directory, e)
                self.mark_offline(directory)
        self._logs.clear()
        self.futures.clear()
        for closed in self._by_dir.values():
            closed.clear()
