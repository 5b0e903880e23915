"""The log of one partition: Kafka's on disk, synchronous, without a descriptor, timer or task of its own.

Rules that keep it whole:
1. Bytes are in the page cache, by one write, before an append returns; offsets and producer state move
   only then.
2. The end of a segment is a number in memory: a write that failed half way lies behind it and is
   overwritten or cut.
3. The recovery point only moves after fsync. All epochs below it are in `leader-epoch-checkpoint`; the
   rest recovery finds again.
4. A new partition has no files: its directory is made by its first append, or when it is told to start
   above offset 0.
"""

from __future__ import annotations

import logging
import os
import struct
from pathlib import Path

from quorate.log import loading
from quorate.log.checkpoints import LEADER_EPOCHS, read_epochs
from quorate.log.config import LogConfig
from quorate.log.epoch_cache import EpochCache
from quorate.log.errors import CheckpointError, LogDirFailure, NotALogError
from quorate.log.files import OpenFiles
from quorate.log.housekeeping import Housekeeping, Inline
from quorate.log.log_reading import parse_directory_name
from quorate.log.log_trimming import TrimmableLog
from quorate.log.partition_metadata import FILE_NAME, write_topic_id
from quorate.log.producer_state import AppendOrigin, BatchMetadata, ProducerUpdate
from quorate.log.replay import SnapshotStore, complete
from quorate.log.results import AppendInfo, FetchData, UnexpectedAppendOffset
from quorate.log.segment import Place, Segment
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.records.batch import (
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    iter_batches,
    parse_header,
    verify_crc,
)
from quorate.records.errors import CorruptRecordError, InvalidRecordError
from quorate.records.validate import check_size, validate_produced

__all__ = [
    "AppendInfo",
    "AppendOrigin",
    "FetchData",
    "PartitionLog",
    "UnexpectedAppendOffset",
    "parse_directory_name",
]

logger = logging.getLogger(__name__)

_PREFIX = struct.Struct(">qii")  # base offset, length, leader epoch: what a leader writes over
_INLINE = Inline()


class PartitionLog(TrimmableLog):
    """Offsets: log start <= last stable <= high watermark <= log end. All methods belong to one thread."""

    __slots__ = ()

    # --- opening ----------------------------------------------------------------------------------

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
        housekeeping: Housekeeping | None = None,
        must_exist: bool = False,
    ) -> PartitionLog:
        """The log in `directory`, recovered if its last stop was not clean; a new one, without files
        yet, if there is none.

        Raises LogDirFailure (also for files that no second source can replace), KafkaError
        INCONSISTENT_TOPIC_ID; with `must_exist` NotALogError, before anything is touched, for a
        directory that is none of a partition.
        """
        log = cls(Path(directory), config, files, housekeeping or _INLINE, topic_id)
        log.last_flush_ms = now_ms
        try:
            with log._disk("opening"):
                log._load(recovery_point, log_start_offset, clean_shutdown, now_ms, must_exist)
        except (CheckpointError, CorruptRecordError) as e:
            raise LogDirFailure(
                str(log.dir.parent), f"Error while opening log {log.name} in dir {log.dir.parent}: {e}"
            ) from e
        return log

    def _load(
        self, recovery_point: int, log_start_offset: int, clean: bool, now_ms: int, must_exist: bool
    ) -> None:
        try:
            found = loading.list_directory(self._dir)
        except FileNotFoundError:
            self._start_empty(log_start_offset, now_ms)
            return
        if must_exist and not found.logs and FILE_NAME not in found.names:
            raise NotALogError(f"{self._dir} has neither {FILE_NAME} nor a segment")
        if loading.finish_interrupted(self._dir, found):
            found = loading.list_directory(self._dir)
        self._materialised = True
        if FILE_NAME in found.names:
            on_disk = loading.read_topic_id_leniently(os.path.join(self._dir, FILE_NAME), clean=clean)
            if on_disk is not None and self.topic_id is not None and on_disk != self.topic_id:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"{self._dir} belongs to another topic of the same name: its {FILE_NAME} differs",
                )
            if on_disk is not None:
                self.topic_id = on_disk
            elif self.topic_id is not None:
                self.adopt_topic_id(self.topic_id)
        elif self.topic_id is not None:
            self.adopt_topic_id(self.topic_id)
        epochs_lost = self._read_epochs(found.names)
        loaded = loading.load_segments(
            self._dir,
            found,
            self.config,
            self._files,
            recovery_point=recovery_point,
            clean=clean,
            now_ms=now_ms,
            on_batch=self._note_epoch_of_recovered,
        )
        self._snapshots = SnapshotStore(self._dir, found.snapshots)
        if loaded.segments and loaded.log_end_offset < log_start_offset:
            logger.warning(
                "[PartitionLog %s] Deleting all segments: the log end offset (%d) is smaller than the log "
                "start offset %d.",
                self.name,
                loaded.log_end_offset,
                log_start_offset,
            )
            for segment in loaded.segments:
                loading.remove_segment_files(segment)
            loaded.segments.clear()
            self._epochs.clear()
        if not loaded.segments:
            self._snapshots.remove(lambda offset: True)
            segment = Segment(self._dir, log_start_offset, self.config, self._files, 0, now_ms)
            segment.create_files()
            loaded.segments.append(segment)
            loaded.log_end_offset = log_start_offset
        if clean and loaded.recovered_from is None and 0 < recovery_point < loaded.log_end_offset:
            raise CorruptRecordError(
                f"{loaded.segments[-1].log_path} was closed at offset {recovery_point} "
                "(recovery-point-offset-checkpoint), "
                f"but its last batch claims to end before {loaded.log_end_offset}. Restore the file from a "
                "replica or a backup"
            )
        self._segments = loaded.segments
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._leo = loaded.log_end_offset
        self._log_start = self._high_watermark = max(log_start_offset, self._bases[0])
        self.recovery_point = (
            self._leo if clean and loaded.recovered_from is None else min(recovery_point, self._leo)
        )
        if epochs_lost is not None and self._leo > self._bases[0] and loaded.recovered_from != self._bases[0]:
            logger.warning(
                "[PartitionLog %s] Finding the leader epochs again in the batches: %s", self.name, epochs_lost
            )
            self._epochs.clear()
            for segment in self._segments:
                for header, _ in segment.headers(0, segment.size):
                    self._note_epoch_of_recovered(header)
            self._epochs.dirty = True
        self._epochs.truncate_from_end(self._leo)
        self._epochs.truncate_from_start(self._log_start)
        never_snapshot = not self._snapshots.sizes
        self._snapshots.remove_strays(self._bases)
        self._snapshots.remove(lambda offset: offset > self._leo)
        if clean and loaded.recovered_from is None and never_snapshot:
            self._producers.map_end_offset = self._leo  # closed cleanly without one: there were no producers
        elif loaded.producers_seen:
            # The scanned part is replayed whole: its aborted transactions are found again.
            assert loaded.recovered_from is not None
            for segment in self._segments:
                if segment.base_offset >= loaded.recovered_from:
                    segment.reset_txn_index()
            self._rebuild_producers(loaded.recovered_from, now_ms, txn_from=loaded.recovered_from)
        else:
            self._rebuild_producers(self._leo, now_ms, skip_from=loaded.recovered_from)

    def _read_epochs(self, names: set[str]) -> str | None:
        """Reads `leader-epoch-checkpoint`; what is wrong with it, or None.

        A log that holds no record below its recovery point may be without the file. For any other one
        it was lost: a follower without epochs would cut its log at its high watermark. Raises OSError.
        """
        if LEADER_EPOCHS not in names:
            return f"there is no {LEADER_EPOCHS}"
        path = os.path.join(self._dir, LEADER_EPOCHS)
        try:
            self._epochs = EpochCache(read_epochs(path))
        except (CheckpointError, ValueError) as e:
            return str(e)
        if not len(self._epochs) and not os.stat(path).st_size:
            return f"{LEADER_EPOCHS} is empty"
        return None

    def adopt_topic_id(self, topic_id: bytes) -> None:
        """Gives a log that lost its `partition.metadata`, or never had one, its topic id. Raises
        LogDirFailure."""
        self.topic_id = topic_id
        if self._materialised:
            with self._disk("writing the topic id of"):
                write_topic_id(os.path.join(self._dir, FILE_NAME), topic_id)

    def _start_empty(self, start: int, now_ms: int) -> None:
        self._log_start = self._leo = self._high_watermark = self.recovery_point = start
        self._segments = [Segment(self._dir, start, self.config, self._files, 0, now_ms)]
        self._bases = [start]
        self._producers.clear(start)

    def _note_epoch_of_recovered(self, header: BatchHeader) -> None:
        self._epochs.correct(header.leader_epoch, header.base_offset)

    # --- appending --------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batches: bytes | bytearray | memoryview,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Checks, places and writes what a client, a coordinator or the Raft leader gives.

        The batch may be patched in place if its buffer is writable. A retry of an idempotent producer
        is answered with the offsets of the first time. Raises KafkaError (CORRUPT_MESSAGE,
        INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, the sequence
        errors), LogDirFailure.
        """
        if origin is AppendOrigin.RAFT:
            return self._append_placed(batches, leader_epoch, now_ms, origin)
        found = list(iter_batches(batches))
        if len(found) != 1:
            raise InvalidRecordError(
                f"An append to {self.name} holds exactly one whole batch, not {len(found)}"
            )
        header, batch = found[0]
        if origin is AppendOrigin.CLIENT and header.base_offset != 0:
            raise InvalidRecordError(
                f"The baseOffset of the record batch in the append to {self.name} should be 0, but it is "
                f"{header.base_offset}"
            )
        check_size(header.size_bytes, self.config.max_message_bytes, self.name)
        if not verify_crc(batch):
            raise CorruptRecordError(
                f"Record is corrupt (stored crc = {header.crc}) in topic partition {self.name}."
            )
        valid = validate_produced(
            batch, header, self.config, now_ms, from_client=origin is AppendOrigin.CLIENT
        )
        if valid.changed:
            header = parse_header(valid.data)
            check_size(header.size_bytes, self.config.max_message_bytes, self.name)
        header.base_offset, header.leader_epoch = self._leo, leader_epoch
        info = AppendInfo(
            self._leo,
            header.last_offset,
            valid.max_timestamp,
            valid.log_append_time_ms,
            self._log_start,
            leader_epoch,
            False,
            header.size_bytes,
        )
        prefix = _PREFIX.pack(self._leo, header.size_bytes - LOG_OVERHEAD, leader_epoch)
        return self._write(
            [prefix, memoryview(valid.data)[_PREFIX.size :]],
            [header],
            [memoryview(valid.data)],
            info,
            now_ms,
            origin,
        )

    def append_as_follower(
        self, batches: bytes | bytearray | memoryview, now_ms: int = 0, *, contiguous: bool = False
    ) -> AppendInfo:
        """Writes batches as their leader placed them; a cut last batch is left out. What the leader
        took is not too large here.

        Raises UnexpectedAppendOffset when they begin before the log end (with `contiguous` also when
        they leave a gap, as only compaction does), CorruptRecordError, LogDirFailure.
        """
        return self._append_placed(batches, None, now_ms, AppendOrigin.REPLICATION, contiguous)

    def refuse_foreign_tail(self) -> None:
        """For a log whose every write is checked: raises LogDirFailure when the file does not end where
        this log does."""
        if not self._materialised:
            return
        segment = self._segments[-1]
        with self._disk("looking at the end of"):
            extra = segment.foreign_bytes()
        if extra:
            parent = os.path.dirname(self._dir)
            raise LogDirFailure(
                parent,
                f"{segment.log_path} ends {abs(extra)} bytes {'behind' if extra > 0 else 'before'} what this "
                "node wrote: another "
                f"process writes to it. Nothing more is written here. Find out which one has {parent} as its "
                "directory too",
            )

    def _append_placed(
        self,
        batches: bytes | bytearray | memoryview,
        epoch: int | None,
        now_ms: int,
        origin: AppendOrigin,
        contiguous: bool = False,
    ) -> AppendInfo:
        headers: list[BatchHeader] = []
        views: list[memoryview] = []
        size, expected, max_timestamp = 0, self._leo, NO_TIMESTAMP
        for header, batch in iter_batches(batches):
            if epoch is not None and header.leader_epoch != epoch:
                raise InvalidRecordError(
                    f"Append from Raft leader did not set the batch epoch correctly, expected {epoch} but "
                    "the batch has "
                    f"{header.leader_epoch}"
                )
            if header.base_offset < expected or (
                (contiguous or epoch is not None) and header.base_offset != expected
            ):
                last = header.last_offset
                raise UnexpectedAppendOffset(
                    f"Unexpected offset in append to {self.name}. Batch [{header.base_offset}, {last}], "
                    "expected offset "
                    f"{expected}, log start offset {self._log_start}",
                    header.base_offset,
                    last,
                )
            if header.last_offset_delta < 0 or not verify_crc(batch):
                raise CorruptRecordError(
                    f"Record is corrupt (stored crc = {header.crc}) in topic partition {self.name}."
                )
            expected = header.next_offset
            max_timestamp = max(max_timestamp, header.max_timestamp)
            headers.append(header)
            views.append(batch)
            size += header.size_bytes
        if not headers:
            return AppendInfo(
                self._leo,
                self._leo - 1,
                NO_TIMESTAMP,
                NO_TIMESTAMP,
                self._log_start,
                epoch if epoch is not None else -1,
            )
        info = AppendInfo(
            headers[0].base_offset,
            expected - 1,
            max_timestamp,
            NO_TIMESTAMP,
            self._log_start,
            headers[-1].leader_epoch,
            False,
            size,
        )
        return self._write([memoryview(batches)[:size]], headers, views, info, now_ms, origin)

    def _write(
        self,
        parts: list[bytes | bytearray | memoryview],
        headers: list[BatchHeader],
        views: list[memoryview],
        info: AppendInfo,
        now_ms: int,
        origin: AppendOrigin,
    ) -> AppendInfo:
        if info.size_bytes > self.config.segment_bytes and origin is not AppendOrigin.REPLICATION:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {info.size_bytes} bytes in append to partition {self.name}, which "
                "exceeds the maximum "
                f"configured segment size of {self.config.segment_bytes}.",
            )
        pending: dict[int, ProducerUpdate] = {}
        for header, view in zip(headers, views, strict=True):
            if header.producer_id >= 0:
                duplicate = self._producers.prepare(header, view, origin, pending)
                if duplicate is not None:
                    return self._duplicate(duplicate, info)
        with self._disk("appending to"):
            if not self._materialised:
                self._materialise()
            segment = self._segments[-1]
            if self._should_roll(segment, info, now_ms):
                segment = self._roll(max(info.first_offset, self._leo), now_ms)
            position = segment.size
            if pending and segment.has_txn_index:
                self._txn_index(
                    segment
                )  # loaded before the write, as a marker must not fail on a damaged index
            segment.append(parts, headers)
            for header in headers:
                self._tail.append(Place(header.base_offset, header.last_offset, position, header.size_bytes))
                position += header.size_bytes
                if header.leader_epoch >= 0:
                    self._epochs.assign(header.leader_epoch, header.base_offset)
            segment.last_modified_ms = now_ms
            self._leo = info.last_offset + 1
            if pending:
                complete(self._producers, pending, segment)
            self._producers.map_end_offset = self._leo
        if self._leo - self.recovery_point >= self.config.flush_messages:
            self.flush()
        return info

    def _duplicate(self, found: BatchMetadata, info: AppendInfo) -> AppendInfo:
        info.first_offset, info.last_offset = found.first_offset, found.last_offset
        info.log_append_time_ms = found.timestamp
        info.duplicate = True
        return info
