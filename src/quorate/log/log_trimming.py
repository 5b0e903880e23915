"""What changes a log other than appending: flushing, rolling, truncating, retention, closing, deleting."""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from collections.abc import Callable

from quorate.log.checkpoints import LEADER_EPOCHS, write_epochs
from quorate.log.config import LogConfig
from quorate.log.files import OpenFile, fsync_directory
from quorate.log.housekeeping import sync_files
from quorate.log.log_reading import ReadableLog
from quorate.log.partition_metadata import FILE_NAME, write_topic_id
from quorate.log.replay import replay, restore_recent_batches, truncate_producers
from quorate.log.results import AppendInfo
from quorate.log.segment import DELETED_SUFFIX, SNAPSHOT_SUFFIX, Segment, file_stem
from quorate.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_MAX_NAME = 255  # of a directory, on every file system that matters


class TrimmableLog(ReadableLog):
    """Adds what makes a log durable, shorter, or gone."""

    __slots__ = ()

    def _rebuild_producers(
        self, snapshot_at_most: int, now_ms: int, *, txn_from: int | None = None, skip_from: int | None = None
    ) -> None:
        self._producers.clear(self._log_start)
        start = self._snapshots.load_latest(self._producers, snapshot_at_most, self._log_start, now_ms)
        replay(
            self._segments,
            self._producers,
            self._log_start if start is None else start,
            self._leo,
            txn_from=txn_from,
            skip_from=skip_from,
        )
        restore_recent_batches(self._segments, self._producers, self._log_start)

    # --- rolling and flushing ---------------------------------------------------------------------

    def _should_roll(self, segment: Segment, info: AppendInfo, now_ms: int) -> bool:
        if segment.size > max(0, self.config.segment_bytes - info.size_bytes):
            return True
        if segment.size > 0:
            waited = segment.time_waited_for_roll(now_ms, info.max_timestamp)
            if waited > self.config.segment_ms - self._jitter_ms(segment):
                return True
        return not segment.accepts(info.last_offset)

    def _jitter_ms(self, segment: Segment) -> int:
        """Spreads rolls by time of partitions that began together; the same for a segment at each start."""
        limit = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return zlib.crc32(segment.stem.encode()) % limit if limit > 0 else 0

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        active = self._segments[-1]
        if active.size == 0 and active.base_offset == base_offset:
            return active
        self._snapshots_at_roll(base_offset)
        files = active.files_to_sync()
        if self.config.cuts_torn_tail_only:  # a torn segment with another behind it would be damage
            os.fdatasync(active.file().fileno())
        new = Segment(self._dir, base_offset, self.config, self._files, 0, now_ms)
        for path in new.paths():  # left by a roll that a crash interrupted
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        new.create_files()
        active.unload_indexes()
        self._segments.append(new)
        self._bases.append(base_offset)
        self._tail.clear()
        self._sync_later(files, base_offset)
        logger.info("[PartitionLog %s] Rolled new log segment at offset %d", self.name, base_offset)
        return new

    def _sync_later(self, files: list[OpenFile], up_to: int) -> None:
        """Has `files`, which hold all unflushed records below `up_to`, and the leader epochs made
        durable; the recovery point moves when that is done, unless the log was cut or renamed
        meanwhile."""
        generation, directory = self._generation, self._dir

        def sync() -> None:
            sync_files(files, directory)
            self._save_epochs(generation=generation)

        def synced() -> None:
            if self._generation == generation:
                self.recovery_point = max(self.recovery_point, up_to)

        self._housekeeping.run_later(sync, os.path.dirname(directory), synced)

    def _snapshots_at_roll(self, offset: int) -> None:
        self._producers.map_end_offset = offset
        self._snapshots.take(self._producers)

    def roll(self, now_ms: int = 0) -> None:
        """Begins a new segment at the log end, unless the active one is empty. Raises LogDirFailure."""
        with self._disk("rolling"):
            if self._materialised:
                self._roll(self._leo, now_ms)

    def _save_epochs(self, *, sync: bool = True, generation: int | None = None) -> None:
        """Writes the epoch checkpoint if it is behind. A flush may do so in a thread, beside appends;
        it gives the `generation` that it belongs to, since a directory of this name may be another
        topic's after a rename."""
        with self._epochs_lock:
            if not (self._epochs.dirty and self._materialised) or generation not in (None, self._generation):
                return
            self._epochs.dirty = (
                False  # before the entries are read: one that is added meanwhile must count as unsaved
            )
            try:
                write_epochs(os.path.join(self._dir, LEADER_EPOCHS), self._epochs.entries(), sync=sync)
            except OSError:
                self._epochs.dirty = True
                raise

    @property
    def unflushed(self) -> int:
        """Records that an operating system's crash could take."""
        return self._leo - self.recovery_point

    def save_epochs(self) -> None:
        """Writes the epoch checkpoint where `flush` has left it behind. Raises LogDirFailure."""
        with self._disk("flushing"):
            self._save_epochs()

    def flush(self, up_to: int | None = None, now_ms: int = 0, *, epochs: bool = True) -> None:
        """Makes everything below `up_to` (the log end) durable and moves the recovery point. Raises
        LogDirFailure.

        epochs: also the epoch checkpoint, on which recovery depends below the recovery point that the
        caller keeps; a log that is always recovered from its start does without.
        """
        target = self._leo if up_to is None else min(up_to, self._leo)
        if now_ms:
            self.last_flush_ms = now_ms
        if target <= self.recovery_point or not self._materialised:
            return
        with self._disk("flushing"):
            self._sync_metadata()
            for segment in self._segments[self._floor(self.recovery_point) :]:
                if segment.base_offset >= target:
                    break
                if segment is self._segments[-1]:
                    os.fdatasync(
                        segment.file().fileno()
                    )  # its indexes are rebuilt after a crash: they need no fsync
                else:
                    for file in segment.files_to_sync():
                        os.fsync(file.fileno())
                if segment.base_offset >= self.recovery_point:
                    fsync_directory(self._dir)
            if epochs:
                self._save_epochs()
        self.recovery_point = max(self.recovery_point, target)

    def _sync_metadata(self) -> None:
        """Makes `partition.metadata` durable. Raises OSError."""
        if self._metadata_unsynced:
            self._metadata_unsynced = False
            if self.topic_id is not None:
                self._sync_path(os.path.join(self._dir, FILE_NAME))

    def flush_later(self, now_ms: int) -> None:
        """Has everything below the log end made durable by the housekeeping. Raises LogDirFailure."""
        self.last_flush_ms = now_ms
        if not self.unflushed or not self._materialised:
            return
        with self._disk("flushing"):
            files = []
            if self._metadata_unsynced and self.topic_id is not None:
                path = os.path.join(self._dir, FILE_NAME)
                files.append(OpenFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC)))
            self._metadata_unsynced = False
            for segment in self._segments[self._floor(self.recovery_point) :]:
                files += [segment.file()] if segment is self._segments[-1] else segment.files_to_sync()
            self._sync_later(files, self._leo)

    def close(self, *, clean: bool = True, sync: bool = True) -> None:
        """Lets go of all files. A clean close flushes, completes the indexes and takes a producer snapshot.

        Without `sync` the caller makes the disk durable itself, and then calls `note_flushed`. Raises
        LogDirFailure.
        """
        if clean and self._materialised:
            if sync:
                self.flush()
            with self._disk("closing"):
                if sync:
                    self._sync_metadata()  # the flush passes over a log without records
                if self._producers.producers or self._snapshots.sizes:
                    self._producers.map_end_offset = self._leo
                    path = self._snapshots.take(self._producers)
                    if path is not None and sync:
                        self._sync_path(path)
                for segment in self._segments:
                    segment.save_indexes(closing=True)
                self._save_epochs(sync=sync)
        self.release_files()

    def note_flushed(self) -> None:
        """Everything appended is durable. Raises LogDirFailure when the disk says otherwise."""
        if self.unflushed and self._materialised:
            with self._disk("flushing"):
                os.fdatasync(
                    self._segments[-1].file().fileno()
                )  # nothing is left to write: this only asks for errors
            self.recovery_point = self._leo
            self.release_files()

    @staticmethod
    def _sync_path(path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def release_files(self) -> None:
        """Drops this log's descriptors from the cache."""
        for segment in self._segments:
            segment.forget_files()

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._producers.expiration_ms = config.producer_id_expiration_ms
        for segment in self._segments:
            segment.update_config(config)

    # --- truncating -------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drops everything from `offset` on, whole batches; whether there was anything. Raises
        ValueError, LogDirFailure."""
        if offset < 0:
            raise ValueError(f"Cannot truncate partition {self.name} to a negative offset ({offset})")
        if offset >= self._leo:
            self._epochs.truncate_from_end(self._leo)
            return False
        logger.info("[PartitionLog %s] Truncating to offset %d", self.name, offset)
        if self._bases[0] > offset:
            self.truncate_fully_and_start_at(offset)
            return True
        with self._disk("truncating"):
            self._generation += 1
            number = self._floor(offset)
            self.recovery_point = min(self.recovery_point, offset)
            if number + 1 < len(self._segments):
                self._remove_segments(self._segments[number + 1 :], delay_ms=0)
                del self._segments[number + 1 :], self._bases[number + 1 :]
                fsync_directory(
                    self._dir
                )  # or a crash brings them back behind what is written and synced next
            segment = self._segments[-1]
            place = segment.find(offset)
            if place is not None:
                if segment.has_txn_index:
                    self._txn_index(segment)
                segment.truncate_to_position(place.position, place.base_offset)
            self._tail.clear()
            self._leo = offset
            self._log_start = min(self._log_start, offset)
            # The file of the epochs follows at the next flush, as in Kafka (truncateFromEndAsyncFlush). The
            # next start drops what it says beyond the end, and corrects it by the batches above the
            # recovery point.
            self._epochs.truncate_from_end(offset)
            self._high_watermark = min(self._high_watermark, offset)
            self._snapshots.remove(lambda snapshot: snapshot > offset)
            if self._producers.producers:
                if truncate_producers(self._segments, self._producers, offset, self._log_start):
                    restore_recent_batches(self._segments, self._producers, self._log_start)
                else:
                    self._rebuild_producers(offset, 0)
            self._producers.map_end_offset = offset
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops all records; the next one gets `offset`. Raises LogDirFailure.

        A start above 0 is on disk, as the name of an empty segment, when this returns: a replica that
        begins where its leader's log starts would otherwise begin at offset 0 after a restart, and as a
        leader give its followers' offsets again.
        """
        logger.info("[PartitionLog %s] Truncating fully, starting at offset %d", self.name, offset)
        with self._disk("truncating"):
            self._generation += 1
            self._tail.clear()
            self._epochs.clear()
            self._snapshots.remove(lambda snapshot: True)
            self._producers.clear(offset)
            new = Segment(self._dir, offset, self.config, self._files, 0, 0)
            if self._materialised:
                self._replace_segments(new)
                self._save_epochs()
                fsync_directory(self._dir)
            self._segments, self._bases = [new], [offset]
            self._leo = self._log_start = self._high_watermark = self.recovery_point = offset
            if not self._materialised and offset > 0:
                self._materialise()
                fsync_directory(self._dir)
                fsync_directory(os.path.dirname(self._dir))

    def _replace_segments(self, new: Segment) -> None:
        """Makes the files of `new`, an empty segment, and removes those of all others."""
        if self.config.cuts_torn_tail_only:
            # The metadata log starts over at a snapshot, which tells the offset again after a crash. A
            # gap between two of its segments would be taken for damage.
            self._remove_segments(self._segments, delay_ms=0)
            new.create_files()
            return
        # The new segment exists before the old ones go, as in Kafka's LocalLog: a directory without any
        # begins at offset 0.
        old = self._segments
        for segment in old:
            if segment.base_offset == new.base_offset:  # the same files
                segment.forget_files()
                os.truncate(segment.log_path, 0)
                for path in segment.paths()[1:]:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)
        new.create_files()
        self._remove_segments(
            [segment for segment in old if segment.base_offset != new.base_offset], delay_ms=0
        )

    def _materialise(self) -> None:
        """Makes the directory and its first files. The first flush makes `partition.metadata` durable:
        until then a lost or empty one is written anew by the next start, which knows the topic from the
        metadata."""
        os.makedirs(self._dir, exist_ok=True)
        if self.topic_id is not None:
            write_topic_id(os.path.join(self._dir, FILE_NAME), self.topic_id, sync=False)
        self._segments[-1].create_files()
        self._materialised = self._metadata_unsynced = True

    def _remove_segments(self, segments: list[Segment], delay_ms: int) -> None:
        """Renames the files out of the way and has them removed; a snapshot goes with the segment that
        it begins."""
        renamed = []
        for segment in segments:
            segment.forget_files()
            for path in segment.paths():
                with contextlib.suppress(FileNotFoundError):
                    os.rename(path, path + DELETED_SUFFIX)
                    renamed.append(path + DELETED_SUFFIX)
            if segment.base_offset in self._snapshots.sizes:
                del self._snapshots.sizes[segment.base_offset]
                path = os.path.join(self._dir, file_stem(segment.base_offset) + SNAPSHOT_SUFFIX)
                with contextlib.suppress(FileNotFoundError):
                    os.rename(path, path + DELETED_SUFFIX)
                    renamed.append(path + DELETED_SUFFIX)
        if renamed:
            self._housekeeping.remove_later(renamed, delay_ms)

    # --- retention --------------------------------------------------------------------------------

    def increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Hides records below `offset`; their segments go with the next retention. Raises
        OFFSET_OUT_OF_RANGE."""
        if offset > self._high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition {self.name} since it is "
                "larger than the high "
                f"watermark {self._high_watermark}",
            )
        if offset <= self._log_start:
            return False
        self._log_start = offset
        self._epochs.truncate_from_start(offset)
        self._producers.on_high_watermark(offset)
        logger.info(
            "[PartitionLog %s] Incremented log start offset to %d due to %s", self.name, offset, reason
        )
        return True

    def delete_old_segments(self, now_ms: int) -> int:
        """Applies time, size and log start retention; the number of segments deleted. Raises
        LogDirFailure."""
        if not self._materialised:
            return 0
        with self._disk("deleting old segments of"):
            deleted = 0
            if self.config.deletes:
                if self.config.retention_ms >= 0:
                    deleted += self._delete_while(
                        lambda s, _: now_ms - s.largest_timestamp() > self.config.retention_ms,
                        "retention time",
                        now_ms,
                    )
                if self.config.retention_bytes >= 0:
                    deleted += self._delete_by_size(now_ms)
            return deleted + self._delete_while(
                lambda _, after: after is not None and after <= self._log_start,
                "log start offset breach",
                now_ms,
            )

    def _delete_by_size(self, now_ms: int) -> int:
        excess = self.size_bytes - self.config.retention_bytes

        def breaches(segment: Segment, after: int | None) -> bool:
            nonlocal excess
            if excess - segment.size < 0:
                return False
            excess -= segment.size
            return True

        return self._delete_while(breaches, "retention size", now_ms) if excess > 0 else 0

    def _delete_while(self, doomed: Callable[[Segment, int | None], bool], reason: str, now_ms: int) -> int:
        """Deletes segments from the oldest on while the condition holds, never one that reaches above
        the high watermark."""
        count = 0
        for number, segment in enumerate(self._segments):
            after = self._bases[number + 1] if number + 1 < len(self._bases) else None
            if self._high_watermark < (self._leo if after is None else after) or (
                after is None and segment.size == 0
            ):
                break
            if not doomed(segment, after):
                break
            count += 1
        if not count:
            return 0
        if count == len(self._segments):  # there is always an active one
            self._roll(self._leo, now_ms)
        gone = self._segments[:count]
        logger.info(
            "[PartitionLog %s] Deleting segments due to %s: %s",
            self.name,
            reason,
            ", ".join(str(s.base_offset) for s in gone),
        )
        del self._segments[:count], self._bases[:count]
        self._remove_segments(gone, self.config.file_delete_delay_ms)
        if self._bases[0] > self._log_start:
            self._log_start = self._bases[0]
            self._epochs.truncate_from_start(self._log_start)
            self._producers.on_high_watermark(self._log_start)
        self._snapshots.remove(lambda snapshot: snapshot < self._bases[0])
        return count

    # --- deleting ---------------------------------------------------------------------------------

    def rename_for_delete(self, kind: str = "delete") -> str:
        """Gives the directory its `-delete` (or `-stray`) name, so that a partition of the same name
        may be made; the new path.

        The new name is not durable yet: after a crash the old one may be back, which the next start
        finds and treats as a stray. Raises LogDirFailure.
        """
        self.release_files()
        suffix = f".{os.urandom(16).hex()}-{kind}"
        stem = (
            f"{self.topic}"[: _MAX_NAME - len(suffix) - len(str(self.partition)) - 1] + f"-{self.partition}"
        )
        target = os.path.join(os.path.dirname(self._dir), stem + suffix)
        with self._disk("renaming"), self._epochs_lock:
            if self._materialised:
                os.rename(self._dir, target)
                self._move(target)
        return target

    def _move(self, target: str) -> None:
        self._generation += 1
        self._dir = self._snapshots.directory = target
        for segment in self._segments:
            segment.move(target)

    def delete(self) -> None:
        """Removes the directory with everything in it. Raises LogDirFailure."""
        self.release_files()
        self._generation += 1
        if self._materialised:
            with self._disk("deleting"):
                import shutil

                shutil.rmtree(self._dir)
            self._materialised = False
