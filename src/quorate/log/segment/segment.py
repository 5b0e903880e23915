"""One segment of a log: a file of batches with its sparse indexes (Kafka's LogSegment).

A segment holds no file descriptor. It takes descriptors from the cache, `OpenFiles`, for each access.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator

from quorate.log.config import LogConfig
from quorate.log.errors import CorruptIndexError
from quorate.log.files import OpenFile, OpenFiles, write_all
from quorate.log.segment import header_scan
from quorate.log.segment.header_scan import BatchPosition, ColdError, Read, read_warm
from quorate.log.segment.index_rebuild import IndexRebuild
from quorate.log.segment.indexes import MAX_RELATIVE_OFFSET, OffsetIndex, TimeIndex
from quorate.log.segment.transaction_index import AbortedTransaction, TransactionIndex
from quorate.protocol.file_region import FileRegion, ReadAhead
from quorate.protocol.page_cache import resident_bytes
from quorate.records.batch import BATCH_OVERHEAD, BatchHeader, parse_header
from quorate.records.errors import CorruptRecordError

logger = logging.getLogger(__name__)

LOG_SUFFIX, INDEX_SUFFIX, TIME_SUFFIX, TXN_SUFFIX = ".log", ".index", ".timeindex", ".txnindex"
SNAPSHOT_SUFFIX, DELETED_SUFFIX = ".snapshot", ".deleted"


def file_stem(offset: int) -> str:
    """The name, without suffix, of the files that belong to a base offset."""
    return f"{offset:020d}"


class Segment:
    """A segment holds the offsets from `base_offset` up to the base offset of the next one. Only the
    last segment of a log is appended to."""

    __slots__ = (
        "_bytes_since_index",
        "_files",
        "_index_interval",
        "_located",
        "_max_index_bytes",
        "_offset_index",
        "_rebuild_ahead",
        "_time_index",
        "_txn_index",
        "base_offset",
        "created_ms",
        "cuts",
        "first_timestamp",
        "has_txn_index",
        "is_rebuilt",
        "last_epoch",
        "last_modified_ms",
        "max_timestamp",
        "offset_of_max_timestamp",
        "size",
        "stem",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        config: LogConfig,
        files: OpenFiles,
        size: int,
        created_ms: int,
    ) -> None:
        self.stem = os.path.join(directory, file_stem(base_offset))
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.last_modified_ms = created_ms
        self.first_timestamp: int | None = None
        self.max_timestamp: int | None = None  # None until it is read from the time index
        self.offset_of_max_timestamp = base_offset
        self.has_txn_index = False
        self.cuts = 0
        """How often batches were removed. A scan that waited may go on where it was if there were none."""
        self._files = files
        self._index_interval = config.index_interval_bytes
        self._max_index_bytes = config.segment_index_bytes
        self._bytes_since_index = 0
        self.is_rebuilt = False
        self.last_epoch = -1  # the leader epoch of the last batch, when `next_offset` has read it
        self._rebuild_ahead: IndexRebuild[Segment] | None = None
        self._located: tuple[int, BatchPosition] | None = None
        """What `cold_regions` has found for an offset, for the `find` that follows."""
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TransactionIndex | None = None

    # --- files ------------------------------------------------------------------------------------

    @property
    def log_path(self) -> str:
        return self.stem + LOG_SUFFIX

    def file(self) -> OpenFile:
        """The open log file. Raises OSError."""
        return self._files.get(self.stem + LOG_SUFFIX)

    def create_files(self) -> None:
        """Creates the log file and both indexes, empty. Raises OSError."""
        self._files.get(self.stem + LOG_SUFFIX, create=True)
        for suffix in (INDEX_SUFFIX, TIME_SUFFIX):
            os.close(os.open(self.stem + suffix, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        self._offset_index = OffsetIndex(self.stem + INDEX_SUFFIX, self.base_offset, self._max_index_bytes)
        self._time_index = TimeIndex(self.stem + TIME_SUFFIX, self.base_offset, self._max_index_bytes)
        self.max_timestamp = -1

    def paths(self) -> list[str]:
        """The paths of all files that the segment may have."""
        return [self.stem + suffix for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_SUFFIX, TXN_SUFFIX)]

    def forget_files(self) -> None:
        """Drops the descriptors of the segment from the cache."""
        self._located = None
        for path in self.paths():
            self._files.forget(path)

    def unload_indexes(self) -> None:
        """Saves the indexes and frees their memory. They are loaded again on the next use. Raises OSError."""
        self.save_indexes()
        self.offset_and_time_of_max()
        self._offset_index = self._time_index = None

    def move(self, directory: str) -> None:
        """Changes the paths after the directory was renamed."""
        self.stem = os.path.join(directory, file_stem(self.base_offset))
        self._move_indexes()

    def _move_indexes(self) -> None:
        for index, suffix in (
            (self._offset_index, INDEX_SUFFIX),
            (self._time_index, TIME_SUFFIX),
            (self._txn_index, TXN_SUFFIX),
        ):
            if index is not None:
                index.path = self.stem + suffix

    def update_config(self, config: LogConfig) -> None:
        """Takes over the settings of the indexes."""
        self._index_interval = config.index_interval_bytes
        self._max_index_bytes = config.segment_index_bytes

    # --- indexes ----------------------------------------------------------------------------------

    def offset_index(self) -> OffsetIndex:
        """The offset index, loaded on first use. It is rebuilt from the log if it is missing or
        corrupt. Raises OSError."""
        index = self._offset_index
        if index is None:
            try:
                index = self._load_offset_index()
            except (FileNotFoundError, CorruptIndexError) as e:
                self._rebuild(e)
                index = self._offset_index
                assert index is not None
        return index

    def _load_offset_index(self) -> OffsetIndex:
        index = OffsetIndex(self.stem + INDEX_SUFFIX, self.base_offset, self._max_index_bytes)
        index.load(self._files, self.size)
        self._offset_index = index
        return index

    def time_index(self) -> TimeIndex:
        """The time index, loaded or rebuilt like the offset index. Raises OSError."""
        index = self._time_index
        if index is None:
            try:
                index = self._load_time_index()
            except (FileNotFoundError, CorruptIndexError) as e:
                self._rebuild(e)
                index = self._time_index
                assert index is not None
        return index

    def _load_time_index(self) -> TimeIndex:
        index = TimeIndex(self.stem + TIME_SUFFIX, self.base_offset, self._max_index_bytes)
        index.load(self._files)
        self._time_index = index
        return index

    def txn_index(self) -> TransactionIndex:
        """The transaction index, loaded on first use. Raises CorruptIndexError, OSError."""
        if self._txn_index is None:
            index = TransactionIndex(self.stem + TXN_SUFFIX, self.base_offset)
            if self.has_txn_index:
                index.load(self._files)
                for entry in index.entries:
                    self._check_marker(entry)
            self._txn_index = index
        return self._txn_index

    def _check_marker(self, entry: AbortedTransaction) -> None:
        """Checks an entry of the transaction index against the log. Raises CorruptIndexError."""
        place = self.find(entry.last_offset)
        header = parse_header(self.read(place.position, BATCH_OVERHEAD)) if place is not None else None
        found = (header.last_offset, header.producer_id) if header is not None and header.is_control else None
        if found != (entry.last_offset, entry.producer_id):
            raise CorruptIndexError(f"{entry} of {self.stem}{TXN_SUFFIX} has no marker in the log")

    def append_aborted(self, entry: AbortedTransaction) -> None:
        """Adds an entry to the transaction index. Raises OSError, CorruptIndexError."""
        self.txn_index().append(entry, self._files)
        self.has_txn_index = True

    def reset_txn_index(self) -> None:
        """Empties the transaction index before it is rebuilt. Raises OSError."""
        self._txn_index = TransactionIndex(self.stem + TXN_SUFFIX, self.base_offset)
        if self.has_txn_index:
            os.ftruncate(self._files.get(self.stem + TXN_SUFFIX, create=True).fileno(), 0)

    def rebuild_ahead(self, reason: Exception) -> list[ReadAhead]:
        """The rebuild of damaged indexes, for a thread. When it was done, the next call takes the new indexes
        over and returns nothing. Raises OSError."""
        rebuild = self._rebuild_ahead
        if rebuild is None or rebuild.cuts != self.cuts:
            logger.warning("[Segment %s] Rebuilding the indexes in a thread: %s", self.log_path, reason)
            rebuild = self._rebuild_ahead = IndexRebuild(self)
        if not rebuild.is_done:
            return [rebuild]
        self._rebuild_ahead, self.is_rebuilt = None, True
        other = rebuild.rebuilt
        if rebuild.damage is not None and self._offset_index is not None and self._time_index is not None:
            return []  # see `correct_indexes`
        self._offset_index, self._time_index = other._offset_index, other._time_index
        self.max_timestamp, self.offset_of_max_timestamp = other.max_timestamp, other.offset_of_max_timestamp
        self._bytes_since_index = other._bytes_since_index
        self._move_indexes()
        for header, position in self.headers(other.size, self.size):
            self.note_scanned(header, position)
        return []

    def _rebuild(self, reason: Exception) -> None:
        logger.warning("[Segment %s] Rebuilding the indexes from the log: %s", self.log_path, reason)
        self.is_rebuilt = True
        self.rebuild_indexes(self.size)

    def correct_indexes(self, reason: CorruptRecordError | CorruptIndexError) -> None:
        """Rebuilds loaded indexes that contradict the log. Keeps them if the log itself is damaged:
        rebuilt ones would end at the damage, all records behind it would be unreadable, and a log that was
        closed with them could not be loaded. Raises OSError, CorruptRecordError."""
        before = self._offset_index, self._time_index, self._bytes_since_index
        greatest = self.max_timestamp, self.offset_of_max_timestamp
        try:
            self._rebuild(reason)
        except CorruptRecordError:
            self._offset_index, self._time_index, self._bytes_since_index = before
            self.max_timestamp, self.offset_of_max_timestamp = greatest
            raise

    def rebuild_indexes(self, end: int) -> None:
        """Rebuilds both indexes from the batch headers before file position `end`. Raises OSError,
        CorruptRecordError."""
        self.begin_scan()
        for header, position in self.headers(0, end):
            self.note_scanned(header, position)
        self.end_scan()

    def begin_scan(self) -> None:
        """Starts both indexes afresh, before all batches are scanned from the first one on."""
        self._offset_index = OffsetIndex(self.stem + INDEX_SUFFIX, self.base_offset, self._max_index_bytes)
        self._time_index = TimeIndex(self.stem + TIME_SUFFIX, self.base_offset, self._max_index_bytes)
        self._offset_index.mark_rewrite()
        self._time_index.mark_rewrite()
        self.max_timestamp = -1
        self.offset_of_max_timestamp = self.base_offset
        self._bytes_since_index = 0

    def note_scanned(self, header: BatchHeader, position: int) -> bool:
        """Notes the next batch of a scan or an append: updates the greatest timestamp and adds an index
        entry every `index.interval.bytes`. Returns whether it has added one."""
        newest = self.max_timestamp
        if newest is None:
            newest = self.offset_and_time_of_max()[1]
        if header.max_timestamp > newest:
            self.max_timestamp = newest = header.max_timestamp
            self.offset_of_max_timestamp = header.last_offset
        is_indexed = self._bytes_since_index > self._index_interval
        if is_indexed:
            self.offset_index().append(header.last_offset, position)
            self.time_index().maybe_append(newest or 0, self.offset_of_max_timestamp)
            self._bytes_since_index = 0
        self._bytes_since_index += header.size_bytes
        return is_indexed

    def end_scan(self) -> None:
        """Ends the time index with the greatest timestamp, as in a closed segment."""
        assert self._time_index is not None and self.max_timestamp is not None
        self._time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)

    def save_indexes(self, *, closing: bool = False) -> None:
        """Writes the entries that the index files lack. With `closing`, the time index gets its last
        entry before. Raises OSError."""
        if self._time_index is not None:
            if closing and self.max_timestamp is not None:
                self._time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
            if self._time_index.unsaved:
                self._time_index.save(self._files)
        if self._offset_index is not None and self._offset_index.unsaved:
            self._offset_index.save(self._files)

    def files_to_sync(self) -> list[OpenFile]:
        """The files of a rolled segment that a flush must make durable. Raises OSError."""
        self.save_indexes(closing=True)
        suffixes = [LOG_SUFFIX, INDEX_SUFFIX, TIME_SUFFIX] + ([TXN_SUFFIX] if self.has_txn_index else [])
        return [
            self._files.get(self.stem + suffix, create=suffix in (INDEX_SUFFIX, TIME_SUFFIX))
            for suffix in suffixes
        ]

    # --- appending --------------------------------------------------------------------------------

    def accepts(self, last_offset: int) -> bool:
        """Whether the indexes have room for one more entry and can express the offset."""
        return (
            last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
            and not self.offset_index().is_full
            and not self.time_index().is_full
        )

    def append(self, parts: list[bytes | bytearray | memoryview], headers: list[BatchHeader]) -> None:
        """Writes complete batches after the last one in one call. Raises OSError; the end of the segment
        has not moved then."""
        position, is_indexed = self.size, False
        size = write_all(self.file().fileno(), parts, position)
        if self.first_timestamp is None and position == 0:
            self.first_timestamp = headers[0].max_timestamp
        for header in headers:
            is_indexed |= self.note_scanned(header, position)
            position += header.size_bytes
        self.size += size
        if is_indexed:
            self.offset_index().save_if_many(self._files)
            self.time_index().save_if_many(self._files)

    def truncate_to_position(self, position: int, offset: int) -> None:
        """Cuts the file before the batch that begins at `position` with `offset`. Raises OSError."""
        self._located = None
        self.cuts += 1
        offset_index, time_index = self.offset_index(), self.time_index()
        os.ftruncate(self.file().fileno(), position)
        self.size = position
        offset_index.truncate_to(offset)
        time_index.truncate_to(offset)
        offset_index.save(self._files)
        time_index.save(self._files)
        if self.has_txn_index:
            self.txn_index().truncate_to(offset, self._files)
        self.max_timestamp, self.offset_of_max_timestamp = time_index.last()
        start = offset_index.last()[1] if position else 0
        self._bytes_since_index = 0
        for header, at in self.headers(start, position):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.offset_of_max_timestamp = header.max_timestamp, header.last_offset
            if at > start or start == 0:
                self._bytes_since_index += header.size_bytes
        if position == 0:
            self.first_timestamp = None

    # --- reading ----------------------------------------------------------------------------------

    def headers(
        self, position: int, end: int, read: Read = header_scan.read
    ) -> Iterator[tuple[BatchHeader, int]]:
        """Yields the header and position of each batch between two batch boundaries (`header_scan.scan`).
        Raises CorruptRecordError, OSError, what `read` raises."""
        offsets = (self.base_offset, self.base_offset + MAX_RELATIVE_OFFSET)
        return header_scan.scan(self.file(), self.log_path, position, end, offsets, read)

    def cold_regions(self, offset: int) -> list[ReadAhead]:
        """What a thread must do first so that `find` waits for no disk: read a region that is not in the
        page cache, or rebuild a damaged index. Empty if there is nothing.

        Called again after that, it returns what comes next. Raises OSError.
        """
        cold = self._cold_index(self._offset_index, INDEX_SUFFIX, self._load_offset_index)
        if cold:
            return cold
        try:
            found = self._search(offset, read_warm)
        except ColdError as e:
            return [e.region]
        except CorruptRecordError as e:
            # Otherwise `find` raises it again.
            return [] if self._is_not_cause(offset) else self.rebuild_ahead(e)
        self._located = None if found is None else (offset, found)
        return []

    def cold_time_index(self) -> list[ReadAhead]:
        """The same for the time index. Raises OSError."""
        return self._cold_index(self._time_index, TIME_SUFFIX, self._load_time_index)

    def _cold_index(
        self, loaded: OffsetIndex | TimeIndex | None, suffix: str, load: Callable[[], object]
    ) -> list[ReadAhead]:
        if loaded is not None:
            return []
        try:
            file = self._files.get(self.stem + suffix)
            length = os.fstat(file.fileno()).st_size
            if resident_bytes(file.fileno(), 0, length) < length:
                return [FileRegion(file, 0, length)]
            load()
        except (FileNotFoundError, CorruptIndexError) as e:
            return self.rebuild_ahead(e)
        return []

    def _is_not_cause(self, offset: int) -> bool:
        """Whether a damaged index cannot be the cause of an error at `offset`."""
        return self.is_rebuilt or self.offset_index().lookup(offset)[1] == 0

    def find(self, offset: int) -> BatchPosition | None:
        """The first batch whose last offset is `offset` or greater; None if there is none. Raises
        OSError, CorruptRecordError."""
        located, self._located = self._located, None
        if located is not None and located[0] == offset:
            return located[1]
        try:
            return self._search(offset)
        except CorruptRecordError as e:
            if self._is_not_cause(offset):
                raise
            self.correct_indexes(e)
            return self._search_from(0, offset)

    def _search(self, offset: int, read: Read = header_scan.read) -> BatchPosition | None:
        """As `find`, from the index entry. Raises CorruptRecordError too if the entry names no batch."""
        index = self.offset_index()
        entry_offset, position = index.lookup(offset)
        return self._search_from(
            position, offset, entry_offset if len(index) and position > 0 else None, read
        )

    def _search_from(
        self,
        position: int,
        offset: int,
        first_last_offset: int | None = None,
        read: Read = header_scan.read,
    ) -> BatchPosition | None:
        for header, at in self.headers(position, self.size, read):
            if at == position and first_last_offset not in (None, header.last_offset):
                raise CorruptRecordError(f"entry ({first_last_offset}, {position}) does not name a batch")
            if header.last_offset >= offset:
                return BatchPosition(header.base_offset, header.last_offset, at, header.size_bytes)
        return None

    def batch_start_before(self, position: int) -> int:
        """The start of the last indexed batch at or before a file position. Raises OSError,
        CorruptRecordError."""
        offset, at = self.offset_index().lookup_position(position)
        if at == 0:
            return 0
        place = self.find(offset)  # checks the entry against the batch
        return place.position if place is not None and place.position <= position else 0

    def read(self, position: int, length: int) -> bytes:
        """Bytes of the file. Raises OSError, CorruptRecordError if the file is too short."""
        data = os.pread(self.file().fileno(), length, position)
        if len(data) != length:
            raise CorruptRecordError(f"{self.log_path} ends before byte {position + length}")
        return data

    def next_offset(self) -> int:
        """The offset after the last record. Raises OSError, CorruptRecordError if the last batch is
        incomplete."""
        if self.size == 0:
            return self.base_offset
        offset, position = self.offset_index().last()
        result = self.base_offset
        for header, at in self.headers(position, self.size):
            if at == position > 0 and header.last_offset != offset:
                raise CorruptRecordError(
                    f"Index entry ({offset}, {position}) of {self.log_path} does not name a batch"
                )
            result, self.last_epoch = header.next_offset, header.leader_epoch
        return result

    # --- time -------------------------------------------------------------------------------------

    def offset_and_time_of_max(self) -> tuple[int, int]:
        """Returns (last offset of the batch with the greatest timestamp, that timestamp or -1). Raises
        OSError."""
        if self.max_timestamp is None:
            self.max_timestamp, self.offset_of_max_timestamp = self.time_index().last()
        return self.offset_of_max_timestamp, self.max_timestamp

    def largest_timestamp(self) -> int:
        """The greatest timestamp of the records, in ms; without one, the time of the last change of the
        file. Raises OSError."""
        timestamp = self.offset_and_time_of_max()[1]
        return timestamp if timestamp >= 0 else self.last_modified_ms
