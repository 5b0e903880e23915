"""One segment of a log: a file of batches, with its sparse indexes. It holds no descriptor; all go
through `OpenFiles`."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from quorate.log.config import LogConfig
from quorate.log.errors import CorruptIndexError
from quorate.log.files import OpenFile, OpenFiles, write_all
from quorate.log.index import MAX_RELATIVE_OFFSET, OffsetIndex, TimeIndex
from quorate.log.txn_index import AbortedTransaction, TransactionIndex
from quorate.protocol.page_cache import resident_bytes
from quorate.protocol.regions import FileRegion
from quorate.records.batch import BATCH_OVERHEAD, LOG_OVERHEAD, BatchHeader, parse_header, verify_crc
from quorate.records.errors import CorruptRecordError

logger = logging.getLogger(__name__)

_COLD_HEADERS = (
    16  # batches behind an index entry that are looked at before a read: usually the first or second is it
)
_SCAN_BYTES = 8192  # headers of the batches between two index entries come in one read
_RECOVER_BYTES = 1 << 20
_PLACE = struct.Struct(">qi")
_LAST_DELTA = struct.Struct(">i")

LOG_SUFFIX, INDEX_SUFFIX, TIME_SUFFIX, TXN_SUFFIX = ".log", ".index", ".timeindex", ".txnindex"
SNAPSHOT_SUFFIX, DELETED_SUFFIX = ".snapshot", ".deleted"


def file_stem(offset: int) -> str:
    return f"{offset:020d}"


@dataclass(slots=True, frozen=True)
class Place:
    """Where a batch lies in its segment."""

    base_offset: int
    last_offset: int
    position: int
    size: int


class Segment:
    """Offsets from `base_offset` up to the next segment's; only the last segment of a log is appended to."""

    __slots__ = (
        "_bytes_since_index",
        "_files",
        "_index_interval",
        "_max_index_bytes",
        "_offset_index",
        "_rebuilt",
        "_time_index",
        "_txn_index",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "has_txn_index",
        "last_modified_ms",
        "max_timestamp",
        "next_offset_hint",
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
        self.max_timestamp: int | None = None  # None: to be read from the time index
        self.offset_of_max_timestamp = base_offset
        self.has_txn_index = False
        self._files = files
        self._index_interval = config.index_interval_bytes
        self._max_index_bytes = config.segment_index_bytes
        self._bytes_since_index = 0
        self._rebuilt = False
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TransactionIndex | None = None

    # --- files ------------------------------------------------------------------------------------

    @property
    def log_path(self) -> str:
        return self.stem + LOG_SUFFIX

    def file(self) -> OpenFile:
        """Raises OSError."""
        return self._files.get(self.stem + LOG_SUFFIX)

    def create_files(self) -> None:
        """Makes the log file and both indexes, empty. Raises OSError."""
        self._files.get(self.stem + LOG_SUFFIX, create=True)
        for suffix in (INDEX_SUFFIX, TIME_SUFFIX):
            os.close(os.open(self.stem + suffix, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        self._offset_index = OffsetIndex(self.stem + INDEX_SUFFIX, self.base_offset, self._max_index_bytes)
        self._time_index = TimeIndex(self.stem + TIME_SUFFIX, self.base_offset, self._max_index_bytes)
        self.max_timestamp = -1

    def paths(self) -> list[str]:
        return [self.stem + suffix for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_SUFFIX, TXN_SUFFIX)]

    def forget_files(self) -> None:
        for path in self.paths():
            self._files.forget(path)

    def unload_indexes(self) -> None:
        """Frees the memory of indexes; they are read again when needed. Raises OSError."""
        self.save_indexes()
        self.offset_and_time_of_max()
        self._offset_index = self._time_index = None

    def move(self, directory: str) -> None:
        """The directory was renamed."""
        self.stem = os.path.join(directory, file_stem(self.base_offset))
        for index, suffix in (
            (self._offset_index, INDEX_SUFFIX),
            (self._time_index, TIME_SUFFIX),
            (self._txn_index, TXN_SUFFIX),
        ):
            if index is not None:
                index.path = self.stem + suffix

    def update_config(self, config: LogConfig) -> None:
        self._index_interval = config.index_interval_bytes
        self._max_index_bytes = config.segment_index_bytes

    # --- indexes ----------------------------------------------------------------------------------

    def offset_index(self) -> OffsetIndex:
        """Loaded on first use, and rebuilt from the log when it is missing or contradicts itself.
        Raises OSError."""
        index = self._offset_index
        if index is None:
            index = OffsetIndex(self.stem + INDEX_SUFFIX, self.base_offset, self._max_index_bytes)
            try:
                index.load(self._files, self.size)
                self._offset_index = index
            except (FileNotFoundError, CorruptIndexError) as e:
                self._rebuild(e)
                index = self._offset_index
                assert index is not None
        return index

    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            index = TimeIndex(self.stem + TIME_SUFFIX, self.base_offset, self._max_index_bytes)
            try:
                index.load(self._files)
                self._time_index = index
            except (FileNotFoundError, CorruptIndexError) as e:
                self._rebuild(e)
                index = self._time_index
                assert index is not None
        return index

    def txn_index(self) -> TransactionIndex:
        """Raises CorruptIndexError, OSError."""
        if self._txn_index is None:
            index = TransactionIndex(self.stem + TXN_SUFFIX, self.base_offset)
            if self.has_txn_index:
                index.load(self._files)
                for entry in index.entries:
                    self._check_marker(entry)
            self._txn_index = index
        return self._txn_index

    def _check_marker(self, entry: AbortedTransaction) -> None:
        """The log is the second source of an entry. Raises CorruptIndexError."""
        place = self.find(entry.last_offset)
        header = parse_header(self.read(place.position, BATCH_OVERHEAD)) if place is not None else None
        if (
            header is None
            or not header.is_control
            or (header.last_offset, header.producer_id) != (entry.last_offset, entry.producer_id)
        ):
            raise CorruptIndexError(f"{entry} of {self.stem}{TXN_SUFFIX} has no marker in the log")

    def append_aborted(self, entry: AbortedTransaction) -> None:
        """Raises OSError, CorruptIndexError."""
        self.txn_index().append(entry, self._files)
        self.has_txn_index = True

    def reset_txn_index(self) -> None:
        """Forgets all aborted transactions, before they are found again. Raises OSError."""
        self._txn_index = TransactionIndex(self.stem + TXN_SUFFIX, self.base_offset)
        if self.has_txn_index:
            os.ftruncate(self._files.get(self.stem + TXN_SUFFIX, create=True).fileno(), 0)

    def _rebuild(self, why: Exception) -> None:
        logger.warning("[Segment %s] Rebuilding the indexes from the log: %s", self.log_path, why)
        self._rebuilt = True
        self.rebuild_indexes(self.size)

    def rebuild_indexes(self, end: int) -> None:
        """Reads all headers up to `end` and makes both indexes anew. Raises OSError, CorruptRecordError."""
        self.begin_scan()
        for header, position in self.headers(0, end):
            self.note_scanned(header, position)
        self.end_scan()

    def begin_scan(self) -> None:
        self._offset_index = OffsetIndex(self.stem + INDEX_SUFFIX, self.base_offset, self._max_index_bytes)
        self._time_index = TimeIndex(self.stem + TIME_SUFFIX, self.base_offset, self._max_index_bytes)
        self._offset_index.mark_rewrite()
        self._time_index.mark_rewrite()
        self.max_timestamp = -1
        self.offset_of_max_timestamp = self.base_offset
        self._bytes_since_index = 0

    def note_scanned(self, header: BatchHeader, position: int) -> None:
        """One more batch of a scan or of an append: keeps the greatest timestamp and the sparse entries."""
        if header.max_timestamp > (
            self.max_timestamp if self.max_timestamp is not None else self.offset_and_time_of_max()[1]
        ):
            self.max_timestamp = header.max_timestamp
            self.offset_of_max_timestamp = header.last_offset
        if self._bytes_since_index > self._index_interval:
            self.offset_index().append(header.last_offset, position)
            self.time_index().maybe_append(self.max_timestamp or 0, self.offset_of_max_timestamp)
            self._bytes_since_index = 0
        self._bytes_since_index += header.size_bytes

    def end_scan(self) -> None:
        """A closed segment's time index ends with its greatest timestamp."""
        assert self._time_index is not None and self.max_timestamp is not None
        self._time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)

    def save_indexes(self, *, closing: bool = False) -> None:
        """Writes what the index files lack. Raises OSError."""
        if self._time_index is not None:
            if closing and self.max_timestamp is not None:
                self._time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
            if self._time_index.unsaved:
                self._time_index.save(self._files)
        if self._offset_index is not None and self._offset_index.unsaved:
            self._offset_index.save(self._files)

    def files_to_sync(self) -> list[OpenFile]:
        """Everything of a rolled segment that a flush must make durable. Raises OSError."""
        self.save_indexes(closing=True)
        suffixes = [LOG_SUFFIX, INDEX_SUFFIX, TIME_SUFFIX] + ([TXN_SUFFIX] if self.has_txn_index else [])
        return [
            self._files.get(self.stem + suffix, create=suffix in (INDEX_SUFFIX, TIME_SUFFIX))
            for suffix in suffixes
        ]

    # --- appending --------------------------------------------------------------------------------

    def accepts(self, last_offset: int) -> bool:
        """Whether indexes can hold the offset, and one more entry."""
        return (
            last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
            and not self.offset_index().is_full
            and not self.time_index().is_full
        )

    def append(self, parts: list[bytes | bytearray | memoryview], headers: list[BatchHeader]) -> None:
        """Writes whole batches, in one call, behind the last one. Raises OSError, and then has not
        moved its end."""
        position = self.size
        size = write_all(self.file().fileno(), parts, position)
        if self.first_timestamp is None and position == 0:
            self.first_timestamp = headers[0].max_timestamp
        for header in headers:
            self.note_scanned(header, position)
            position += header.size_bytes
        self.size += size
        if self._offset_index is not None:
            self._offset_index.save_if_many(self._files)
        if self._time_index is not None:
            self._time_index.save_if_many(self._files)

    def foreign_bytes(self) -> int:
        """How far the file goes beyond what was written through this object (below 0: falls short).
        Raises OSError."""
        return os.fstat(self.file().fileno()).st_size - self.size

    def truncate_to_position(self, position: int, offset: int) -> None:
        """Cuts the file at a batch boundary whose first offset is `offset`. Raises OSError."""
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

    def headers(self, position: int, end: int) -> Iterator[tuple[BatchHeader, int]]:
        """Headers of the batches from a boundary on, without their records.

        Raises CorruptRecordError at nonsense, at an offset that is out of its place (which no checksum
        covers), at a cut batch; OSError.
        """
        fd = self.file()
        chunk, start = b"", position
        lowest, highest = self.base_offset, self.base_offset + MAX_RELATIVE_OFFSET
        while position < end:
            at = position - start
            if at < 0 or at + BATCH_OVERHEAD > len(chunk):
                chunk, start, at = (
                    os.pread(fd.fileno(), min(_SCAN_BYTES, end - position), position),
                    position,
                    0,
                )
            header = parse_header(chunk, at)
            if position + header.size_bytes > end:
                raise CorruptRecordError(f"Batch at byte {position} of {self.log_path} passes byte {end}")
            last = header.last_offset
            if not lowest <= header.base_offset <= last <= highest:
                raise CorruptRecordError(
                    f"Batch at byte {position} of {self.log_path} claims the offsets {header.base_offset} to "
                    f"{last}, "
                    f"which cannot be there: they must lie between {lowest} and {highest}"
                )
            yield header, position
            position += header.size_bytes
            lowest = last + 1

    def cold_regions(self, offset: int) -> list[FileRegion]:
        """What `find` would have to wait for the disk for first; after that was read ahead, what it
        would have to wait for next.

        Raises OSError.
        """
        if self._offset_index is None:
            file = self._files.get(self.stem + INDEX_SUFFIX)
            length = os.fstat(file.fileno()).st_size
            if resident_bytes(file.fileno(), 0, length) < length:
                return [FileRegion(file, 0, length)]
        file, position = self.file(), self.offset_index().lookup(offset)[1]
        for _ in range(_COLD_HEADERS):
            length = min(_SCAN_BYTES, self.size - position)
            if resident_bytes(file.fileno(), position, length) < length:
                return [FileRegion(file, position, length)]
            if length < BATCH_OVERHEAD:
                break
            header = parse_header(os.pread(file.fileno(), BATCH_OVERHEAD, position))
            if header.last_offset >= offset:
                break
            position += header.size_bytes
        return []

    def find(self, offset: int) -> Place | None:
        """The first batch whose last offset is `offset` or greater. None behind the end. Raises
        OSError, CorruptRecordError."""
        index = self.offset_index()
        entry_offset, position = index.lookup(offset)
        try:
            for header, at in self.headers(position, self.size):
                if at == position and len(index) and at > 0 and header.last_offset != entry_offset:
                    raise CorruptRecordError(f"entry ({entry_offset}, {position}) does not name a batch")
                if header.last_offset >= offset:
                    return Place(header.base_offset, header.last_offset, at, header.size_bytes)
        except CorruptRecordError as e:
            if position == 0 or self._rebuilt:
                raise  # it is not the index
            self._rebuild(e)
            for header, at in self.headers(0, self.size):
                if header.last_offset >= offset:
                    return Place(header.base_offset, header.last_offset, at, header.size_bytes)
        return None

    def find_from(self, place: Place, offset: int) -> Place | None:
        """As `find`, starting behind a batch that is known to come before."""
        for header, at in self.headers(place.position + place.size, self.size):
            if header.last_offset >= offset:
                return Place(header.base_offset, header.last_offset, at, header.size_bytes)
        return None

    def batch_start_before(self, position: int) -> int:
        """Where a batch starts, at or before `position` and as near to it as the index knows.

        Raises OSError, CorruptRecordError.
        """
        offset, at = self.offset_index().lookup_position(position)
        if at == 0:
            return 0
        place = self.find(offset)  # checks the entry against the batch
        return place.position if place is not None and place.position <= position else 0

    def read(self, position: int, length: int) -> bytes:
        """Raises OSError, CorruptRecordError when the file is shorter."""
        data = os.pread(self.file().fileno(), length, position)
        if len(data) != length:
            raise CorruptRecordError(f"{self.log_path} ends before byte {position + length}")
        return data

    def next_offset(self) -> int:
        """One behind the last record. Raises OSError, CorruptRecordError when the tail is not whole."""
        if self.size == 0:
            return self.base_offset
        offset, position = self.offset_index().last()
        result = self.base_offset
        for header, at in self.headers(position, self.size):
            if at == position > 0 and header.last_offset != offset:
                raise CorruptRecordError(
                    f"Index entry ({offset}, {position}) of {self.log_path} does not name a batch"
                )
            result = header.next_offset
        return result

    # --- time -------------------------------------------------------------------------------------

    def offset_and_time_of_max(self) -> tuple[int, int]:
        """(offset of its batch's last record, timestamp) of the greatest timestamp; -1 without any.
        Raises OSError."""
        if self.max_timestamp is None:
            self.max_timestamp, self.offset_of_max_timestamp = self.time_index().last()
        return self.offset_of_max_timestamp, self.max_timestamp

    def largest_timestamp(self) -> int:
        """ms; of the records, else of the file. Raises OSError."""
        timestamp = self.offset_and_time_of_max()[1]
        return timestamp if timestamp >= 0 else self.last_modified_ms

    def time_waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """How long this segment has been taking records, in the time of its records if they have one."""
        if self.first_timestamp is None and self.size > 0:
            for header, _ in self.headers(0, self.size):
                self.first_timestamp = header.max_timestamp
                break
        if self.first_timestamp is not None and self.first_timestamp >= 0:
            return message_timestamp - self.first_timestamp
        return now_ms - self.created_ms

    def start_for_timestamp(self, timestamp: int, from_offset: int) -> int:
        """File position from which a record with at least this timestamp is to be searched. Raises
        OSError."""
        found, offset = self.time_index().lookup(timestamp)
        place = self.find(max(offset, from_offset)) if found >= 0 else None
        if place is not None and found >= 0 and offset >= from_offset:
            header = parse_header(self.read(place.position, BATCH_OVERHEAD))
            if header.max_timestamp != found:
                self._rebuild(CorruptIndexError(f"time entry ({found}, {offset}) does not name a batch"))
                return 0
        if place is not None:
            return place.position
        place = self.find(from_offset) if found < 0 else None
        return place.position if place is not None else 0

    # --- recovery ---------------------------------------------------------------------------------

    def recover(
        self,
        on_batch: Callable[[BatchHeader, int, memoryview], None],
        before_cut: Callable[[int, int, int, int], None] | None = None,
        *,
        least_epoch: int | None = None,
    ) -> int:
        """Checks every batch to the checksum, rebuilds the indexes, cuts the file behind the last good batch.

        `on_batch(header, position, batch)` sees each good one; `before_cut(descriptor, position, size,
        last offset)` may refuse the cut by raising. With `least_epoch` offsets must follow one another,
        and leader epochs from that one on must not fall: no checksum covers either. Returns the bytes
        cut. Raises OSError.
        """
        fd = self.file()
        end = os.fstat(fd.fileno()).st_size
        self.begin_scan()
        self.first_timestamp = None
        position, last, epoch = 0, self.base_offset - 1, least_epoch or 0
        data, start = b"", 0
        try:
            while end - position >= LOG_OVERHEAD:
                at = position - start
                size = _batch_size(data, at)
                if size is None or at + size > len(data):
                    wanted = max(_RECOVER_BYTES, size or 0)
                    data, start, at = (
                        os.pread(fd.fileno(), min(wanted, end - position), position),
                        position,
                        0,
                    )
                    size = _batch_size(data, 0)
                if size is None or size > len(data):
                    if size is not None and BATCH_OVERHEAD <= size <= end - position:
                        data = os.pread(fd.fileno(), size, position)
                    else:
                        break  # a torn last batch
                batch = memoryview(data)[at : at + (size or 0)]
                header = parse_header(batch)
                if header.base_offset <= last or header.last_offset_delta < 0:
                    raise CorruptRecordError(f"Offset {header.base_offset} after {last}")
                if least_epoch is not None and (
                    header.base_offset != last + 1 or header.leader_epoch < epoch
                ):
                    raise CorruptRecordError(
                        f"Offset {header.base_offset} of epoch {header.leader_epoch} after {last} of epoch "
                        f"{epoch}"
                    )
                if header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET or not verify_crc(batch):
                    raise CorruptRecordError(f"Record is corrupt (stored crc = {header.crc})")
                self.note_scanned(header, position)
                if position == 0:
                    self.first_timestamp = header.max_timestamp
                on_batch(header, position, batch)
                position += header.size_bytes
                last, epoch = header.last_offset, header.leader_epoch
        except CorruptRecordError as e:
            logger.warning(
                "Found invalid messages in log segment %s at byte offset %d: %s", self.log_path, position, e
            )
        cut = end - position
        if cut and before_cut is not None:
            before_cut(fd.fileno(), position, end, last)
        if cut:
            os.ftruncate(fd.fileno(), position)
        self.size = position
        self.end_scan()
        return cut


def _batch_size(data: bytes, at: int) -> int | None:
    """Size of the batch that starts at `at`, None if its length is not in the data. Raises
    CorruptRecordError."""
    if at + LOG_OVERHEAD > len(data):
        return None
    size: int = _PLACE.unpack_from(data, at)[1] + LOG_OVERHEAD
    if size < BATCH_OVERHEAD:
        raise CorruptRecordError(f"Length {size - LOG_OVERHEAD} is less than a batch's header")
    return size
