"""Makes the records and leader epochs of one log durable.

The recovery point is the offset below which all records are durable. It moves only after fsync. All
leader epochs below it are in `leader-epoch-checkpoint`; recovery finds later ones in the batches.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from quorate.log.checkpoints import LEADER_EPOCHS, write_epochs
from quorate.log.files import OpenFile, fsync_directory
from quorate.log.partition.epoch_cache import EpochCache
from quorate.log.partition.local_log import LocalLog
from quorate.log.scheduler import Step, sync_files

_SLICE = 1024  # logs that are looked at between two yields: well below a millisecond
_EPOCHS_AT_ONCE = 64  # checkpoints that a thread writes without a pause: some milliseconds
_MAX_HELD_FILES = 8
_MAX_HOLDING_JOBS = 64
"""At most so many files of at most so many scheduled syncs stay open. A disk may be slower than thousands of
logs that roll in the same moment, and a process that has no descriptor left fails its log directories."""


class Flusher:
    """The recovery point of a log, and the flushes that move it."""

    __slots__ = (
        "_epochs",
        "_epochs_unsynced",
        "_generation",
        "_last_base_at_load",
        "_log",
        "last_flush_ms",
        "lock",
        "recovery_point",
    )

    def __init__(
        self,
        log: LocalLog,
        epochs: EpochCache,
        recovery_point: int,
        now_ms: int,
    ) -> None:
        self._log = log
        self._epochs = epochs
        self._generation = 0
        self._last_base_at_load = log.bases[-1]
        """The base offset of the last segment when the log was loaded. After a crash, the segments before it
        may not be on disk."""
        self._epochs_unsynced = False
        """Whether the epoch checkpoint was written without fsync."""
        self.recovery_point = recovery_point
        self.last_flush_ms = now_ms
        self.lock = threading.Lock()
        """Held while the epoch checkpoint is written or the directory is renamed."""

    @property
    def unflushed(self) -> int:
        """The number of records that a crash of the operating system could lose."""
        return self._log.end_offset - self.recovery_point

    @property
    def recovery_point_to_checkpoint(self) -> int:
        """The recovery point, but at most the start of a gap, so that the next start finds the gap again. The
        replica may be stopped cleanly before a leader is known from which it could copy what it lacks."""
        gap = self._log.gap_start
        return self.recovery_point if gap is None else min(gap, self.recovery_point)

    @property
    def generation(self) -> int:
        """A number that changes when work for the directory and records of before has lost its object."""
        return self._generation

    def disown_pending(self) -> None:
        """Makes flushes under way ineffective, because the log was truncated, renamed or deleted."""
        self._generation += 1

    @property
    def needs_sync(self) -> bool:
        """Whether a clean close has to make anything durable."""
        log = self._log
        return log.exists and bool(
            self.unflushed or log.metadata.is_unsynced or self._epochs_unsynced or self.has_unsaved_epochs()
        )

    def has_unsaved_epochs(self) -> bool:
        """Whether the epoch checkpoint lacks entries. Those of epochs without records do not count in a log
        of a partition, because the next start drops them. At the start of a broker, each of its partitions
        gets one."""
        epochs, log = self._epochs, self._log
        return epochs.dirty and (log.config.is_metadata_log or not epochs.is_saved_below(log.end_offset))

    def save_epochs(self, *, sync: bool = True, generation: int | None = None) -> None:
        """Writes the epoch checkpoint if it lacks entries. Raises OSError.

        A scheduled flush calls this in a thread, beside appends. It passes its `generation`, since
        another topic may have a directory of this name after a rename.
        """
        with self.lock:
            if not self._log.exists or generation not in (None, self._generation):
                return
            path = os.path.join(self._log.directory, LEADER_EPOCHS)
            if not self.has_unsaved_epochs():
                if sync and self._epochs_unsynced:
                    sync_files([path], self._log.directory)
                    self._epochs_unsynced = False
                return
            entries = self._epochs.begin_save()
            try:
                write_epochs(path, entries, sync=sync)
                self._epochs_unsynced = not sync
            except OSError:
                self._epochs.save_failed()
                raise

    def save_epochs_unsynced(self, generation: int) -> None:
        """Writes the epoch checkpoint ahead of a flush or a clean stop, which then only has to sync
        it. Called in a thread. Raises LogDirFailure."""
        with self._log.disk_access("writing the leader epochs of"):
            self.save_epochs(sync=False, generation=generation)

    def checkpoint_epochs(self) -> None:
        """Writes the epoch checkpoint if a flush without it has left it out of date. Raises
        LogDirFailure."""
        with self._log.disk_access("flushing"):
            self.save_epochs()

    def flush(self, up_to: int | None, now_ms: int, *, epochs: bool) -> None:
        """Makes all records below `up_to`, or below the log end, durable. Raises LogDirFailure."""
        log = self._log
        target = log.end_offset if up_to is None else min(up_to, log.end_offset)
        if now_ms:
            self.last_flush_ms = now_ms
        if target <= self.recovery_point or not log.exists:
            return
        with log.disk_access("flushing"), log.scheduler.flush_times.measure():
            log.metadata.sync(log.directory)
            for segment in log.segments_from(self.recovery_point):
                if segment.base_offset >= target:
                    break
                if segment is log.segments[-1]:
                    # Its indexes need no fsync, because recovery rebuilds them after a crash.
                    os.fdatasync(segment.file().fileno())
                else:
                    for file in segment.files_to_sync():
                        os.fsync(file.fileno())
                if segment.base_offset >= self.recovery_point:
                    fsync_directory(log.directory)
            if epochs:
                self.save_epochs()
        self.recovery_point = max(self.recovery_point, target)

    def flush_later(self, now_ms: int) -> None:
        """Schedules a flush of all records. Raises LogDirFailure."""
        log = self._log
        self.last_flush_ms = now_ms
        if not self.unflushed or not log.exists:
            return
        with log.disk_access("flushing"):
            files: list[OpenFile | str] = [*log.metadata.open_to_sync(log.directory)]
            for segment in log.segments_from(self.recovery_point):
                opened = [segment.file()] if segment is log.segments[-1] else segment.files_to_sync()
                files += opened if len(files) < _MAX_HELD_FILES else [file.path for file in opened]
            self.sync_later(files, log.end_offset)

    def sync_rolled(self, files: Sequence[OpenFile | str], base_offset: int) -> None:
        """Schedules the sync of `files`, those of the segment that ends at `base_offset`, and of the segments
        before it that were recovered after a crash (Kafka: flushUptoOffsetExclusive). Raises OSError."""
        recovered: list[OpenFile | str] = []
        if self.recovery_point < self._last_base_at_load:
            for segment in self._log.segments_from(self.recovery_point):
                if segment.base_offset >= min(self._last_base_at_load, base_offset):
                    break
                recovered += [file.path for file in segment.files_to_sync()]
        self.sync_later([*recovered, *files], base_offset)

    def _held(self, files: Sequence[OpenFile | str]) -> list[OpenFile | str]:
        """The files as a scheduled sync keeps them: open, or only their paths if too many are open."""
        if len(files) <= _MAX_HELD_FILES and self._log.scheduler.backlog < _MAX_HOLDING_JOBS:
            return list(files)
        return [file.path if isinstance(file, OpenFile) else file for file in files]

    def sync_later(self, files: Sequence[OpenFile | str], up_to: int) -> None:
        """Schedules the sync of `files`, which hold all unflushed records below `up_to`, and of the
        leader epochs. The recovery point moves after it, unless the log was truncated or renamed
        meanwhile."""
        generation, directory = self._generation, self._log.directory
        held = self._held(files)
        flush_times = self._log.scheduler.flush_times

        def sync() -> None:
            with flush_times.measure():
                sync_files(held, directory)
                self.save_epochs(generation=generation)

        def on_synced() -> None:
            if self._generation == generation:
                self.recovery_point = max(self.recovery_point, up_to)

        self._log.scheduler.run_later(sync, self._log.parent, on_synced)

    def note_flushed(self, *, checked: bool) -> None:
        """Moves the recovery point to the log end after the caller has synced the disk. Raises
        LogDirFailure if that sync has failed, unless the caller has `checked` that."""
        log = self._log
        if self.unflushed and log.exists:
            if not checked:
                with log.disk_access("flushing"):
                    os.fdatasync(log.segments[-1].file().fileno())  # reports an error of the sync
                log.release_files()
            self.recovery_point = log.end_offset


def save_epochs_in_advance(flushers: Iterable[Flusher]) -> Iterator[Step]:
    """Writes the epoch checkpoints that lack entries, without fsync, so that the stop of a broker with many
    replicas does not have to. Kafka writes them when an epoch begins."""
    found: list[Callable[[], None]] = []
    for count, flusher in enumerate(flushers):
        if flusher.has_unsaved_epochs():
            found.append(functools.partial(flusher.save_epochs_unsynced, flusher.generation))
        if len(found) == _EPOCHS_AT_ONCE:
            yield functools.partial(_run_all, found)
            found = []
        elif count % _SLICE == _SLICE - 1:
            yield None
    if found:
        yield functools.partial(_run_all, found)


def _run_all(work: Sequence[Callable[[], None]]) -> None:
    for each in work:
        each()
