"""The segments of one partition, as files in the partition's directory (Kafka's LocalLog).

A `LocalLog` appends, rolls, reads, truncates and deletes segments. It knows where its first segment
begins and where the log ends. Leader epochs, producers and watermarks belong to `PartitionLog`.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from bisect import bisect_right
from collections import deque
from operator import attrgetter

from quorate.log.config import LogConfig
from quorate.log.errors import DiskAccess, LogDirFailure
from quorate.log.files import OpenFile, OpenFiles, fsync_directory
from quorate.log.partition.partition_metadata import PartitionMetadataFile
from quorate.log.partition.removal import FileRemoval, rename_to_deleted
from quorate.log.partition.results import AppendInfo, FetchData
from quorate.log.scheduler import Scheduler
from quorate.log.segment.header_scan import BatchPosition
from quorate.log.segment.index_rebuild import read_end_offset
from quorate.log.segment.segment import SNAPSHOT_SUFFIX, Segment, file_stem
from quorate.protocol.file_region import FileRegion, ReadAhead
from quorate.records.batch import BatchHeader
from quorate.records.errors import CorruptRecordError

_TAIL_BATCHES = 16  # batches whose positions are remembered for readers at the end of the log
_BASE_OFFSET = attrgetter("base_offset")
_MAX_NAME = 255  # the longest name of a directory on all common file systems
FUTURE_SUFFIX = "-future"


def future_directory_name(topic: str, partition: int) -> str:
    """A new name for the directory of a future log, `<topic>-<partition>.<unique id>-future` (KIP-113)."""
    return f"{topic}-{partition}.{os.urandom(16).hex()}{FUTURE_SUFFIX}"


def is_future_name_too_long(topic: str, partition: int) -> bool:
    """Whether the directory of a future log could not be created because of the length of its name."""
    return len(future_directory_name(topic, partition)) > _MAX_NAME


def parse_directory_name(name: str) -> tuple[str, int]:
    """The topic and partition of the directory of a log or of a future log. Raises ValueError."""
    stem = name.rpartition(".")[0] if name.endswith(FUTURE_SUFFIX) else name
    topic, dash, partition = stem.rpartition("-")
    if not topic or not dash or not partition.isdigit():
        raise ValueError(f"{name!r} is not a partition directory: it must be <topic>-<partition>")
    return topic, int(partition)


class LocalLog:
    """The segments of one log. Methods without a `Raises` line raise OSError and CorruptRecordError;
    callers wrap them in `disk_access`.

    Until `exists`, the log has one empty segment in memory and no directory.
    """

    __slots__ = (
        "_files",
        "_removal",
        "_tail",
        "bases",
        "config",
        "directory",
        "end_offset",
        "exists",
        "gap_start",
        "metadata",
        "name",
        "parent",
        "partition",
        "scheduler",
        "segments",
        "topic",
    )

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        files: OpenFiles,
        scheduler: Scheduler,
        topic_id: bytes | None,
    ) -> None:
        self.directory = directory
        self.parent, self.name = os.path.split(directory)
        self.topic, self.partition = parse_directory_name(self.name)
        self.config = config
        self.metadata = PartitionMetadataFile(topic_id)
        self.scheduler = scheduler
        self.segments: list[Segment] = []
        self.bases: list[int] = []
        """The base offset of each segment."""
        self.end_offset = 0
        self.gap_start: int | None = None
        """The offset from which on records are missing although there are later ones. A power failure has
        lost them, or a full truncation was interrupted."""
        self.exists = False
        """Whether the log has a directory and files."""
        self._files = files
        self._removal = FileRemoval(scheduler)
        self._tail: deque[BatchPosition] = deque(maxlen=_TAIL_BATCHES)

    def disk_access(self, action: str) -> DiskAccess:
        """A context in which OSError becomes LogDirFailure; `action` is a part of its message."""
        return DiskAccess(self.parent, self.name, action)

    def new_segment(self, base_offset: int, now_ms: int, size: int = 0) -> Segment:
        """A segment object for this directory, without any access to the disk."""
        return Segment(self.directory, base_offset, self.config, self._files, size, now_ms)

    def set_segments(self, segments: list[Segment], end_offset: int) -> None:
        """Replaces all segments, after loading or a full truncation."""
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.end_offset = end_offset

    def last_epoch(self) -> int:
        """The leader epoch of the last batch, or -1 if it is not known. Called after the end of the last
        segment was read. Raises OSError."""
        last = self.segments[-1]
        if last.size == 0 and len(self.segments) > 1:  # rolled, and nothing was appended since
            last = self.segments[-2]
            if read_end_offset(last) != self.segments[-1].base_offset:
                return -1  # the segment is damaged, or compaction has removed its last batch
        return last.last_epoch

    def adopt_topic_id(self, topic_id: bytes) -> None:
        """Sets the topic id and writes it to `partition.metadata` if the log has files."""
        self.metadata.topic_id = topic_id
        if self.exists:
            self.metadata.write(self.directory)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        for segment in self.segments:
            segment.update_config(config)

    def release_files(self) -> None:
        """Drops the descriptors of this log from the cache."""
        for segment in self.segments:
            segment.forget_files()

    def create_files(self) -> None:
        """Creates the directory, `partition.metadata` and the files of the only segment."""
        os.makedirs(self.directory, exist_ok=True)
        self.metadata.write_unsynced(self.directory)
        self.segments[-1].create_files()
        self.exists = True

    # --- appending and rolling --------------------------------------------------------------------

    def should_roll(self, segment: Segment, info: AppendInfo, now_ms: int) -> bool:
        """Whether an append needs a new segment, because of size, time or full indexes."""
        config = self.config
        if segment.size > max(0, config.segment_bytes - info.size_bytes):
            return True
        if segment.size > 0:
            waited = _time_waited_for_roll(segment, now_ms, info.max_timestamp)
            if waited > config.segment_ms - self._jitter_ms(segment):
                return True
        return not segment.accepts(info.last_offset)

    def _jitter_ms(self, segment: Segment) -> int:
        """A time below `segment.jitter.ms`, so that partitions created together do not all roll at once.
        It is the same for a segment at every start."""
        limit = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return zlib.crc32(segment.stem.encode()) % limit if limit > 0 else 0

    def append(
        self,
        segment: Segment,
        parts: list[bytes | bytearray | memoryview],
        headers: list[BatchHeader],
        end_offset: int,
    ) -> None:
        """Writes batches to the active segment and moves the log end."""
        position = segment.size
        segment.append(parts, headers)
        for header in headers:
            size = header.size_bytes
            self._tail.append(BatchPosition(header.base_offset, header.last_offset, position, size))
            position += size
        self.end_offset = end_offset

    def roll(self, base_offset: int, now_ms: int) -> list[OpenFile]:
        """Begins a new segment. Returns the files of the one before it, which are not synced yet."""
        active = self.segments[-1]
        files = active.files_to_sync()
        if self.config.is_metadata_log:  # a torn segment with another one after it counts as damage
            os.fdatasync(active.file().fileno())
        new = self.new_segment(base_offset, now_ms)
        for path in new.paths():  # a roll that a crash interrupted may have left files
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        new.create_files()
        active.unload_indexes()
        self.segments.append(new)
        self.bases.append(base_offset)
        self._tail.clear()
        return files

    def fail_on_foreign_bytes(self) -> None:
        """Raises LogDirFailure if the file does not end where this log ends, because another process
        writes to it."""
        if not self.exists:
            return
        segment = self.segments[-1]
        with self.disk_access("looking at the end of"):
            extra = os.fstat(segment.file().fileno()).st_size - segment.size
        if extra:
            raise LogDirFailure(
                self.parent,
                f"{segment.log_path} ends {abs(extra)} bytes {'after' if extra > 0 else 'before'} what this "
                "node wrote: another process writes to it. Nothing more is written here. Find out which one "
                f"has {self.parent} as its directory too",
            )

    # --- reading ----------------------------------------------------------------------------------

    def segment_number(self, offset: int) -> int:
        """The index, in `segments`, of the segment that holds `offset`."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def segments_from(self, offset: int) -> list[Segment]:
        """The segments from the one that holds `offset` on.

        Unlike `segment_number`, it may be called beside the thread that deletes the oldest
        segments.
        """
        segments = self.segments[:]  # one step, while the number of a segment changes with each deletion
        return segments[max(bisect_right(segments, offset, key=_BASE_OFFSET) - 1, 0) :]

    def segment_end(self, number: int) -> int:
        """The offset after the last one of a segment."""
        return self.bases[number + 1] if number + 1 < len(self.bases) else self.end_offset

    def _find(self, number: int, offset: int) -> BatchPosition | None:
        """The first batch of a segment whose last offset is `offset` or greater."""
        if number == len(self.segments) - 1 and self._tail and self._tail[0].base_offset <= offset:
            first = None
            for batch in reversed(self._tail):  # most readers keep up with the end
                if batch.last_offset < offset:
                    break
                first = batch
            return first
        found = self.segments[number].find(offset)
        if found is not None and found.last_offset >= self.segment_end(number):
            raise CorruptRecordError(
                f"Batch at byte {found.position} of {self.segments[number].log_path} claims the offsets "
                f"{found.base_offset} to {found.last_offset}, but its segment ends before "
                f"{self.segment_end(number)}"
            )
        return found

    def cold_regions(self, offset: int) -> list[ReadAhead]:
        """The parts of the index and of the batch headers for which `read` would wait for the disk."""
        number = self.segment_number(offset)
        if number == len(self.segments) - 1 and self._tail and self._tail[0].base_offset <= offset:
            return []
        return self.segments[number].cold_regions(offset)

    def read(self, offset: int, max_bytes: int, upper: int, min_one: bool) -> FetchData:
        """Batches of one segment, from the one that holds `offset` up to the offset `upper`. Raises
        LogDirFailure."""
        try:  # `disk_access` takes a tenth of a read
            return self._read(offset, max_bytes, upper, min_one)
        except OSError as error:
            raise self.disk_access("reading from").failure(error) from error

    def _read(self, offset: int, max_bytes: int, upper: int, min_one: bool) -> FetchData:
        segments = self.segments
        last = len(segments) - 1
        number = self.segment_number(offset)
        batch = self._find(number, offset)
        while batch is None and number < last:
            number += 1
            batch = self._find(number, offset)
        if batch is None or batch.base_offset >= upper:
            return FetchData(_next_offset=offset)
        segment, position = segments[number], batch.position
        end, end_offset = segment.size, self.segment_end(number)
        if upper < end_offset:
            limit = self._find(number, upper)
            if limit is not None:
                end, end_offset = limit.position, upper
        length = available = end - position
        if available <= 0:
            return FetchData(_next_offset=offset)
        if max_bytes < available:
            length = max_bytes
            if length < min(batch.size, available):
                if not min_one:
                    return FetchData(_next_offset=offset)
                length = min(batch.size, available)
        stop = position + length
        return FetchData(
            [FileRegion(segment.file(), position, length)],
            length,
            batch.base_offset,
            end_offset
            if stop == end
            else lambda: segment.offset_index().upper_bound_offset(stop) or end_offset,
        )

    # --- truncating -------------------------------------------------------------------------------

    def remove_segments_after(self, number: int) -> None:
        """Removes the segments after the one of that number.

        Begins with the last one, so that a crash in between leaves no gap. (Kafka begins with the first one.)
        """
        removed = self.segments[number + 1 :]
        if removed:
            del self.segments[number + 1 :], self.bases[number + 1 :]
            self._remove_files(removed[::-1], delay_ms=0)
            # Otherwise the removed files could be back after a crash, behind segments that are written and
            # synced later.
            fsync_directory(self.directory)

    def truncate_active(self, batch: BatchPosition | None, offset: int) -> None:
        """Cuts the active segment at a batch, if there is one, and sets the log end."""
        if batch is not None:
            self.segments[-1].truncate_to_position(batch.position, batch.base_offset)
        self._tail.clear()
        self.end_offset = offset
        self._forget_gap_from(offset)

    def adopt_gap(self, start: int | None) -> None:
        """Sets the start of the gap, unless the log begins after it."""
        self.gap_start = None if start is not None and start < self.bases[0] else start

    def _forget_gap_from(self, offset: int) -> None:
        """Notes that there are no records from `offset` on."""
        if self.gap_start is not None and offset <= self.gap_start:
            self.gap_start = None

    def restart_at(self, offset: int) -> None:
        """Replaces all segments by an empty one at `offset`."""
        self._removal.free_names()
        self._tail.clear()
        new, old = self.new_segment(offset, 0), self.segments
        if self.exists:
            if self.config.is_metadata_log:
                # The old segments are removed first, because a gap between two segments counts as damage
                # here. After a crash in between, the snapshot gives the start offset again.
                self._remove_files(old, delay_ms=0)
                new.create_files()
            else:
                self._replace_files(old, new)
        self.set_segments([new], offset)
        self.gap_start = None

    def _replace_files(self, old: list[Segment], new: Segment) -> None:
        """Creates the new segment before it removes the others, as Kafka's LocalLog does: a directory
        without segments would begin at offset 0."""
        for segment in old:
            if segment.base_offset == new.base_offset:  # the same files
                segment.forget_files()
                os.truncate(segment.log_path, 0)
                for path in segment.paths()[1:]:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)
        new.create_files()
        self._remove_files([segment for segment in old if segment.base_offset != new.base_offset], delay_ms=0)

    # --- deleting ---------------------------------------------------------------------------------

    def delete_oldest(self, count: int, snapshots: list[str]) -> None:
        """Deletes the oldest segments, and producer snapshots. A thread renames the files, and removes them
        after `file.delete.delay.ms`."""
        removed = self.segments[:count]
        del self.segments[:count], self.bases[:count]
        self.adopt_gap(self.gap_start)
        paths = [*self._forget_files(removed), *snapshots]
        self._removal.remove_later(paths, self.parent, self.config.file_delete_delay_ms)

    @property
    def has_deleted_files(self) -> bool:
        """Whether a crash may bring deleted segments back, because their files still have their names."""
        return self._removal.is_pending

    def _forget_files(self, segments: list[Segment]) -> list[str]:
        """The paths of the files of segments, which are no longer used."""
        paths = []
        for segment in segments:
            segment.forget_files()
            paths += segment.paths()
        return paths

    def _remove_files(self, segments: list[Segment], delay_ms: int) -> None:
        """Renames the files of segments, in the given order, and then the producer snapshots at their base
        offsets. The scheduler removes the renamed files."""
        snapshots = [
            os.path.join(self.directory, file_stem(segment.base_offset) + SNAPSHOT_SUFFIX)
            for segment in segments
        ]
        renamed = rename_to_deleted([*self._forget_files(segments), *snapshots])
        if renamed:
            self.scheduler.remove_later(renamed, delay_ms)

    def path_to_rename_to(self, kind: str) -> str:
        """The path of the directory with the suffix `-delete` or `-stray` and a random part (Kafka's
        LocalLog.logDeleteDirName)."""
        suffix = f".{os.urandom(16).hex()}-{kind}"
        stem = f"{self.topic}"[: _MAX_NAME - len(suffix) - len(str(self.partition)) - 1]
        return os.path.join(self.parent, f"{stem}-{self.partition}{suffix}")

    @property
    def current_name(self) -> str:
        """The name of the directory of a log that is no future log."""
        return f"{self.topic}-{self.partition}"

    def rename_to(self, target: str) -> None:
        """Renames the directory of the log."""
        self._removal.free_names()
        os.rename(self.directory, target)
        self.directory = target
        for segment in self.segments:
            segment.move(target)


def _time_waited_for_roll(segment: Segment, now_ms: int, message_timestamp: int) -> int:
    """The age of a segment in ms for a roll by time: from its first record's timestamp to that of the next
    record, or, without timestamps, from its creation to now. Raises OSError."""
    if segment.first_timestamp is None and segment.size > 0:
        for header, _ in segment.headers(0, segment.size):
            segment.first_timestamp = header.max_timestamp
            break
    if segment.first_timestamp is not None and segment.first_timestamp >= 0:
        return message_timestamp - segment.first_timestamp
    return now_ms - segment.created_ms
