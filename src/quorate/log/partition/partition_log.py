"""`PartitionLog`: the log of one partition, with all of its parts (Kafka's UnifiedLog)."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from quorate.log.config import LogConfig
from quorate.log.errors import CheckpointError
from quorate.log.files import OpenFiles, fsync_directory, fsync_path, path_of
from quorate.log.partition import append_validation, timestamp_search
from quorate.log.partition.append_validation import Buffer, ValidatedAppend
from quorate.log.partition.flusher import Flusher
from quorate.log.partition.loader import LoadedLog, load_log
from quorate.log.partition.local_log import LocalLog
from quorate.log.partition.producer_state import AppendOrigin, ProducerState, ProducerUpdate
from quorate.log.partition.results import AppendInfo, FetchData, NewBatch
from quorate.log.partition.retention import RETENTION_RULES
from quorate.log.partition.timestamp_search import FoundRecord, Scan
from quorate.log.scheduler import InlineScheduler, Scheduler
from quorate.log.segment.segment import Segment
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.file_region import ReadAhead
from quorate.records.errors import CorruptRecordError

logger = logging.getLogger(__name__)

_INLINE = InlineScheduler()


class PartitionLog:
    """Offsets: log start <= last stable <= high watermark <= log end. One thread at a time uses a log."""

    __slots__ = (
        "_high_watermark",
        "_log",
        "_log_start",
        "_producer_state",
        "epochs",
        "flusher",
        "name",
        "partition",
        "producers",
        "topic",
    )

    def __init__(self, log: LocalLog, loaded: LoadedLog, now_ms: int) -> None:
        self.name, self.topic, self.partition = log.name, log.topic, log.partition
        self.epochs = loaded.epochs
        self.producers = loaded.producers.states
        self.flusher = Flusher(log, loaded.epochs, loaded.recovery_point, now_ms)
        self._log = log
        self._producer_state = loaded.producers
        self._log_start = self._high_watermark = loaded.log_start

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        files: OpenFiles,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_shutdown: bool = False,
        now_ms: int = 0,
        topic_id: bytes | None = None,
        scheduler: Scheduler = _INLINE,
        must_exist: bool = False,
    ) -> PartitionLog:
        """Opens the log in `directory` and recovers it unless its last stop was clean. Without a
        directory, the log is new and has no files yet.

        Raises LogDirFailure (also for corrupt files that cannot be rebuilt), KafkaError
        INCONSISTENT_TOPIC_ID, and with `must_exist` NotALogError, before any change, for a directory
        without files of a log.
        """
        log = LocalLog(str(directory), config, files, scheduler, topic_id)
        try:
            with log.disk_access("opening"):
                loaded = load_log(
                    log,
                    recovery_point=recovery_point,
                    log_start_offset=log_start_offset,
                    clean=clean_shutdown,
                    now_ms=now_ms,
                    must_exist=must_exist,
                )
        except (CheckpointError, CorruptRecordError) as e:
            raise log.disk_access("opening").failure(e) from e
        return cls(log, loaded, now_ms)

    # --- identity and configuration ---------------------------------------------------------------

    @property
    def dir(self) -> Path:
        """The partition's directory."""
        return Path(self._log.directory)

    @property
    def log_dir(self) -> Path:
        """The parent of `dir`."""
        return path_of(self._log.parent)

    @property
    def topic_id(self) -> bytes | None:
        return self._log.metadata.topic_id

    def adopt_topic_id(self, topic_id: bytes) -> None:
        """Gives a log without topic id one, also on disk. Raises LogDirFailure."""
        with self._log.disk_access("writing the topic id of"):
            self._log.adopt_topic_id(topic_id)

    @property
    def config(self) -> LogConfig:
        return self._log.config

    def update_config(self, config: LogConfig) -> None:
        """Replaces the configuration of the log and its segments."""
        self._log.update_config(config)
        self.producers.expiration_ms = config.producer_id_expiration_ms

    @property
    def has_files(self) -> bool:
        """Whether the log has files yet."""
        return self._log.exists

    def create_files(self) -> None:
        """Creates the directory and the files of a log without files. Raises LogDirFailure."""
        with self._log.disk_access("creating"):
            self._log.create_files()

    @property
    def segments(self) -> Sequence[Segment]:
        return self._log.segments

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    # --- offsets ----------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self._log_start

    @property
    def log_start_to_checkpoint(self) -> int | None:
        """The log start offset if a checkpoint must have it, because files may begin before it."""
        start = self._log_start
        return start if start > self._log.bases[0] or self._log.has_deleted_files else None

    @property
    def log_end_offset(self) -> int:
        return self._log.end_offset

    @property
    def gap_start(self) -> int | None:
        """The offset from which on a power failure has lost records, if there are later ones."""
        return self._log.gap_start

    @property
    def recovery_point(self) -> int:
        return self.flusher.recovery_point

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        """Moves it forward, at most to the log end. Only a truncation moves it back."""
        offset = min(offset, self._log.end_offset)
        if offset > self._high_watermark:
            self._high_watermark = offset
            self.producers.on_high_watermark(offset)

    @property
    def last_stable_offset(self) -> int:
        """The upper limit for readers of committed transactions."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self._high_watermark:
            return self._high_watermark
        return max(unstable, self._log_start)

    # --- leader epochs and producers --------------------------------------------------------------

    @property
    def latest_epoch(self) -> int | None:
        return self.epochs.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch in this log not above `epoch`; (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self._log.end_offset)

    def active_producers(self) -> list[ProducerState]:
        return list(self.producers.producers.values())

    # --- appending --------------------------------------------------------------------------------

    def append_as_leader(
        self, batches: NewBatch, leader_epoch: int, now_ms: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        """Validates and writes batches of a client, a coordinator or the Raft leader.

        The batch may be patched in place if its buffer is writable. A retry of an idempotent producer
        returns the offsets of the first append. Raises KafkaError (see `append_validation`, and the
        sequence errors of producers), LogDirFailure.
        """
        if origin is AppendOrigin.RAFT and not isinstance(batches, tuple):
            valid = append_validation.validate_raft_batches(self._log, batches, leader_epoch, self._log_start)
        else:
            valid = append_validation.validate_new_batch(
                self._log, batches, leader_epoch, self._log_start, now_ms, origin
            )
        return self._append(valid, now_ms, origin)

    def append_as_follower(
        self, batches: Buffer, now_ms: int = 0, *, contiguous: bool = False, leader_epoch: int | None = None
    ) -> AppendInfo:
        """Writes batches of any size with the offsets that their leader gave them, except an incomplete
        last one, and those of a later epoch than `leader_epoch`. Raises UnexpectedAppendOffset if they
        begin before the log end, and with `contiguous` if they leave gaps, which only compaction causes;
        CorruptRecordError; LogDirFailure."""
        valid = append_validation.validate_placed_batches(
            self._log, batches, None, self._log_start, contiguous, leader_epoch
        )
        return self._append(valid, now_ms, AppendOrigin.REPLICATION)

    def _append(self, valid: ValidatedAppend, now_ms: int, origin: AppendOrigin) -> AppendInfo:
        parts, headers, views, info = valid
        if not headers:
            return info
        log = self._log
        pending: dict[int, ProducerUpdate] = {}
        for header, view in zip(headers, views, strict=True):
            if header.producer_id >= 0:
                duplicate = self.producers.prepare(header, view, origin, pending)
                if duplicate is not None:
                    info.first_offset, info.last_offset = duplicate.first_offset, duplicate.last_offset
                    info.log_append_time_ms, info.duplicate = duplicate.timestamp, True
                    return info
        try:
            if not log.exists:
                log.create_files()
            segment = log.segments[-1]
            if log.should_roll(segment, info, now_ms):
                segment = self._roll(max(info.first_offset, log.end_offset), now_ms)
            if pending and segment.has_txn_index:  # a marker must not fail because of a damaged index
                self._producer_state.txn_index(segment)
            log.append(segment, parts, headers, info.last_offset + 1)
            for header in headers:
                if header.leader_epoch >= 0:
                    self.epochs.assign(header.leader_epoch, header.base_offset)
            segment.last_modified_ms = now_ms
            if pending:
                self._producer_state.apply(pending, segment, len(headers), log.end_offset)
            self.producers.map_end_offset = log.end_offset
        except OSError as error:
            raise log.disk_access("appending to").failure(error) from error
        if log.end_offset - self.flusher.recovery_point >= log.config.flush_messages:
            self.flush()
        return info

    def fail_on_foreign_bytes(self) -> None:
        """Raises LogDirFailure if another process has written to the log."""
        self._log.fail_on_foreign_bytes()

    # --- reading ----------------------------------------------------------------------------------

    def cold_regions(self, offset: int) -> list[ReadAhead]:
        """The parts of an index and of batch headers that a `read` at `offset` would read from the disk."""
        if not self._log.exists or not self._log_start <= offset < self._log.end_offset:
            return []
        return self._log.cold_regions(offset)

    def cold_regions_for_timestamp(self, timestamp: int | None, scan: Scan | None = None) -> list[ReadAhead]:
        """The same for a search by timestamp, None for the greatest one (`timestamp_search`)."""
        return timestamp_search.cold_regions(self._log.segments, self._log_start, timestamp, scan)

    def read(
        self, offset: int, max_bytes: int, *, upper_offset: int | None = None, min_one: bool = True
    ) -> FetchData:
        """Reads batches of one segment, from the one that holds `offset` up to `upper_offset`, which is the
        watermark that limits the reader. Returns at most `max_bytes`, but with `min_one` always the complete
        first batch. Raises OFFSET_OUT_OF_RANGE, LogDirFailure."""
        log, end = self._log, self._log.end_offset
        if not self._log_start <= offset <= end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {log.name}, but we only have log "
                f"segments from offset {self._log_start} to {end}.",
            )
        upper = end if upper_offset is None else min(upper_offset, end)
        wanted = offset < upper and log.exists
        return log.read(offset, max_bytes, upper, min_one) if wanted else FetchData(_next_offset=offset)

    def read_bytes(
        self, offset: int, max_bytes: int, *, upper_offset: int | None = None, min_one: bool = True
    ) -> bytes:
        """Like `read`, but returns the bytes themselves."""
        data = self.read(offset, max_bytes, upper_offset=upper_offset, min_one=min_one)
        with self._log.disk_access("reading from"):
            return b"".join(part.read() for part in data.parts)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that overlap [from_offset, to_offset).
        Raises LogDirFailure."""
        with self._log.disk_access("reading from"):
            return self._producer_state.aborted_transactions(from_offset, to_offset)

    def offset_for_timestamp(self, timestamp: int, scan: Scan | None = None) -> FoundRecord | None:
        """The first record with a timestamp of at least `timestamp` ms. Raises LogDirFailure."""
        with self._log.disk_access("searching"):
            return timestamp_search.find_timestamp(self._log, self._log_start, timestamp, scan)

    def offset_of_max_timestamp(self) -> FoundRecord | None:
        """The first record with the greatest timestamp. Raises LogDirFailure."""
        with self._log.disk_access("searching"):
            return timestamp_search.find_max_timestamp(self._log)

    # --- rolling, flushing, closing ---------------------------------------------------------------

    def roll(self, now_ms: int = 0) -> None:
        """Begins a new segment at the log end, unless the active one is empty. Raises LogDirFailure."""
        with self._log.disk_access("rolling"):
            if self._log.exists:
                self._roll(self._log.end_offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        log = self._log
        active = log.segments[-1]
        if active.size == 0 and active.base_offset == base_offset:
            return active
        self._producer_state.take_snapshot(base_offset)
        self.flusher.sync_rolled(log.roll(base_offset, now_ms), base_offset)
        # Those inside of the segment before the new one stay: a truncation soon after the roll needs them.
        self._producer_state.snapshots.remove_strays(log.bases[:-1])
        logger.info("[PartitionLog %s] Rolled new log segment at offset %d", log.name, base_offset)
        return log.segments[-1]

    def flush(self, up_to: int | None = None, now_ms: int = 0, *, epochs: bool = True) -> None:
        """Makes all records below `up_to`, by default the log end, durable and moves the recovery
        point. `epochs`: whether to write the epoch checkpoint too, which a log that is always recovered
        from its start does not need. Raises LogDirFailure."""
        self.flusher.flush(up_to, now_ms, epochs=epochs)

    def close(self, *, clean: bool = True, sync: bool = True) -> None:
        """Releases all files. A clean close flushes, completes the indexes and takes a producer snapshot.
        Without `sync`, the caller then syncs the complete disk and calls `flusher.note_flushed`. Raises
        LogDirFailure."""
        log = self._log
        if clean and log.exists:
            if sync:
                self.flush()
            with log.disk_access("closing"):
                if sync:
                    log.metadata.sync(log.directory)  # `flush` skips a log without records
                if self.producers.producers or self._producer_state.snapshots.sizes:
                    path = self._producer_state.take_snapshot(log.end_offset)
                    if path is not None and sync:
                        fsync_path(path)
                for segment in log.segments:
                    segment.save_indexes(closing=True)
                self.flusher.save_epochs(sync=sync)
        log.release_files()

    def release_files(self) -> None:
        """Drops the descriptors of this log from the cache."""
        self._log.release_files()

    # --- truncating -------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Removes the batches from the one that holds `offset` on; its start is the new end (Kafka:
        `offset`). Returns whether there were any. Raises ValueError, LogDirFailure."""
        log = self._log
        if offset < 0:
            raise ValueError(f"Cannot truncate partition {log.name} to a negative offset ({offset})")
        if offset >= log.end_offset:
            self.epochs.truncate_from_end(log.end_offset)
            return False
        logger.info("[PartitionLog %s] Truncating to offset %d", log.name, offset)
        if log.bases[0] > offset:
            self.truncate_fully_and_start_at(offset)
            return True
        with log.disk_access("truncating"):
            self.flusher.disown_pending()
            log.remove_segments_after(log.segment_number(offset))
            batch = (segment := log.segments[-1]).find(offset)
            offset = min(offset, max(offset if batch is None else batch.base_offset, self._log_start))
            if batch is not None and segment.has_txn_index:
                self._producer_state.txn_index(segment)
            self.flusher.recovery_point = min(self.flusher.recovery_point, offset)
            log.truncate_active(batch, offset)
            self._log_start = min(self._log_start, offset)
            # The next flush writes the epochs (Kafka: truncateFromEndAsyncFlush); recovery corrects them.
            self.epochs.truncate_from_end(offset)
            self._high_watermark = min(self._high_watermark, offset)
            self._producer_state.truncate(offset, self._log_start, self._high_watermark)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Removes all records; the next one gets `offset`. Raises LogDirFailure.

        A start above 0 is then durable, as the name of an empty segment. A replica that begins at the
        start of its leader's log would otherwise begin at offset 0 after a restart, and as a leader
        assign offsets again that its followers have.
        """
        log = self._log
        logger.info("[PartitionLog %s] Truncating fully, starting at offset %d", log.name, offset)
        with log.disk_access("truncating"):
            self.flusher.disown_pending()
            self.epochs.clear()
            self._producer_state.snapshots.remove(lambda snapshot: True)
            self.producers.clear(offset)
            log.restart_at(offset)
            if log.exists:
                self.flusher.save_epochs()
                fsync_directory(log.directory)
            self._log_start = self._high_watermark = self.flusher.recovery_point = offset
            if not log.exists and offset > 0:
                log.create_files()
                fsync_directory(log.directory)
                fsync_directory(log.parent)

    # --- retention and deletion -------------------------------------------------------------------

    def increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Hides records below `offset`, which retention then deletes. Returns whether the log start has
        moved. Raises OFFSET_OUT_OF_RANGE."""
        if offset > self._high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition {self.name} since it is "
                f"larger than the high watermark {self._high_watermark}",
            )
        if offset <= self._log_start:
            return False
        self._move_log_start(offset)
        logger.info(
            "[PartitionLog %s] Incremented log start offset to %d due to %s", self.name, offset, reason
        )
        return True

    def _move_log_start(self, offset: int) -> None:
        self._log_start = offset
        self.epochs.truncate_from_start(offset)
        self.producers.on_high_watermark(offset)

    def delete_old_segments(self, now_ms: int) -> int:
        """Applies retention. Returns the number of deleted segments. Raises LogDirFailure."""
        log = self._log
        if not log.exists:
            return 0
        deleted = 0
        with log.disk_access("deleting old segments of"):
            for count_breaching, reason in RETENTION_RULES:
                count = count_breaching(log, self._log_start, self._high_watermark, now_ms)
                if count:
                    self._delete_oldest(count, reason, now_ms)
                    deleted += count
        return deleted

    def _delete_oldest(self, count: int, reason: str, now_ms: int) -> None:
        log = self._log
        if count == len(log.segments):  # a log always has an active segment
            self._roll(log.end_offset, now_ms)
        names = ", ".join(map(str, log.bases[:count]))
        logger.info("[PartitionLog %s] Deleting segments due to %s: %s", log.name, reason, names)
        start = log.bases[count]
        log.delete_oldest(count, self._producer_state.snapshots.forget(lambda snapshot: snapshot < start))
        if start > self._log_start:
            self._move_log_start(start)

    def rename_for_delete(self, kind: str = "delete") -> str:
        """Renames the directory to a `-delete` or `-stray` name, which frees its name. Returns the new path.

        After a crash the old name may be back; the next start treats it as a stray. Raises LogDirFailure.
        """
        target = self._log.path_to_rename_to(kind)
        self._rename(target)
        return target

    def become_current(self, gap_start: int | None) -> None:
        """Renames the directory of a future log, the copy of a log with this gap. Raises LogDirFailure."""
        self._log.adopt_gap(gap_start)
        self.name = self._log.name = self._log.current_name
        self._rename(os.path.join(self._log.parent, self.name))

    def _rename(self, target: str) -> None:
        log = self._log
        log.release_files()
        with log.disk_access("renaming"), self.flusher.lock:
            if log.exists:
                log.rename_to(target)
                self.flusher.disown_pending()
                self._producer_state.snapshots.directory = target
