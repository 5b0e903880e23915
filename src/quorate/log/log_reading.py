"""The state of one partition's log, and all that reads it."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from quorate.log.config import LogConfig
from quorate.log.epoch_cache import EpochCache
from quorate.log.errors import CorruptIndexError, LogDirFailure
from quorate.log.files import OpenFiles
from quorate.log.housekeeping import Housekeeping
from quorate.log.producer_state import ProducerState, ProducerStates
from quorate.log.replay import SnapshotStore, replay
from quorate.log.results import FetchData
from quorate.log.segment import Place, Segment
from quorate.log.txn_index import TransactionIndex
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.regions import FileRegion
from quorate.records.batch import decode_records
from quorate.records.errors import CorruptRecordError

logger = logging.getLogger(__name__)

_TAIL_BATCHES = 16  # batches whose places are remembered for readers at the end of the log


def parse_directory_name(name: str) -> tuple[str, int]:
    """Topic and partition of a partition directory. Raises ValueError."""
    topic, dash, partition = name.rpartition("-")
    if not topic or not dash or not partition.isdigit():
        raise ValueError(f"{name!r} is not a partition directory: it must be <topic>-<partition>")
    return topic, int(partition)


class ReadableLog:
    """Offsets: log start <= last stable <= high watermark <= log end. All methods belong to one thread."""

    __slots__ = (
        "_bases",
        "_dir",
        "_epochs",
        "_epochs_lock",
        "_files",
        "_generation",
        "_high_watermark",
        "_housekeeping",
        "_leo",
        "_log_start",
        "_materialised",
        "_metadata_unsynced",
        "_producers",
        "_segments",
        "_snapshots",
        "_tail",
        "config",
        "last_flush_ms",
        "name",
        "partition",
        "recovery_point",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        files: OpenFiles,
        housekeeping: Housekeeping,
        topic_id: bytes | None,
    ) -> None:
        self._dir = str(directory)
        self.name = os.path.basename(self._dir)
        self.topic, self.partition = parse_directory_name(self.name)
        self.topic_id = topic_id
        self.config = config
        self.recovery_point = 0
        self.last_flush_ms = 0
        self._files = files
        self._housekeeping = housekeeping
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._log_start = self._leo = self._high_watermark = 0
        self._epochs = EpochCache()
        self._epochs_lock = threading.Lock()  # held while the checkpoint is written or the directory renamed
        self._producers = ProducerStates(self.name, config.producer_id_expiration_ms)
        self._snapshots = SnapshotStore(self._dir, {})
        self._tail: deque[Place] = deque(maxlen=_TAIL_BATCHES)
        self._materialised = self._metadata_unsynced = False
        self._generation = 0

    @contextlib.contextmanager
    def _disk(self, what: str) -> Iterator[None]:
        """An OSError inside fails the log's directory."""
        try:
            yield
        except OSError as e:
            raise self._failure(e, what) from e

    def _failure(self, error: OSError, what: str) -> LogDirFailure:
        parent = os.path.dirname(self._dir)
        return LogDirFailure(parent, f"Error while {what} log {self.name} in dir {parent}: {error}")

    @property
    def dir(self) -> Path:
        """The partition's directory; its parent is the log directory."""
        return Path(self._dir)

    # --- offsets ----------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self._log_start

    @property
    def log_end_offset(self) -> int:
        return self._leo

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        """Moves it up, at most to the log end; only truncation moves it back."""
        if offset > self._leo:
            offset = self._leo
        if offset > self._high_watermark:
            self._high_watermark = offset
            self._producers.on_high_watermark(offset)

    @property
    def first_unstable_offset(self) -> int | None:
        offset = self._producers.first_unstable_offset
        return None if offset is None else max(offset, self._log_start)

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed transactions stop."""
        unstable = self._producers.first_unstable_offset
        if unstable is None or unstable >= self._high_watermark:
            return self._high_watermark
        return max(unstable, self._log_start)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> Sequence[Segment]:
        return self._segments

    @property
    def is_materialised(self) -> bool:
        """Whether the log has files yet."""
        return self._materialised

    def active_producers(self) -> list[ProducerState]:
        return list(self._producers.producers.values())

    def remove_expired_producers(self, now_ms: int) -> None:
        if self._producers.producers:
            self._producers.remove_expired(now_ms)

    # --- leader epochs ----------------------------------------------------------------------------

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs.latest_epoch

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Notes that a leader epoch begins. In memory: the file follows at the next flush, roll or close."""
        self._epochs.assign(epoch, start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch of this log not above `epoch`; (-1, -1) when that
        is not known."""
        return self._epochs.end_offset_for(epoch, self._leo)

    def epoch_for_offset(self, offset: int) -> int:
        """The leader epoch of the record at `offset`, -1 when it is not known."""
        epoch = self._epochs.epoch_for(offset)
        return -1 if epoch is None else epoch

    def epoch_entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), ascending."""
        return self._epochs.entries()

    # --- reading ----------------------------------------------------------------------------------

    def _floor(self, offset: int) -> int:
        """Number of the segment that holds `offset`."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def _segment_end(self, number: int) -> int:
        return self._bases[number + 1] if number + 1 < len(self._bases) else self._leo

    def _place(self, number: int, offset: int) -> Place | None:
        """The first batch of a segment that ends at or behind `offset`."""
        if number == len(self._segments) - 1 and self._tail and self._tail[0].base_offset <= offset:
            for place in self._tail:
                if place.last_offset >= offset:
                    return place
            return None
        found = self._segments[number].find(offset)
        if found is not None and found.last_offset >= self._segment_end(number):
            raise CorruptRecordError(
                f"Batch at byte {found.position} of {self._segments[number].log_path} claims the offsets "
                f"{found.base_offset} to "
                f"{found.last_offset}, but its segment ends before {self._segment_end(number)}"
            )
        return found

    def cold_regions(self, offset: int) -> list[FileRegion]:
        """What a `read` at `offset` would have to wait for the disk for: parts of an index and of batch
        headers.

        To be read ahead in another thread before `read` is called; nothing for readers at the end of
        the log. Raises OSError.
        """
        if not self._materialised or not self._log_start <= offset < self._leo:
            return []
        number = self._floor(offset)
        if number == len(self._segments) - 1 and self._tail and self._tail[0].base_offset <= offset:
            return []
        return self._segments[number].cold_regions(offset)

    def read(
        self, offset: int, max_bytes: int, *, upper_offset: int | None = None, min_one: bool = True
    ) -> FetchData:
        """Batches of one segment from the one with `offset` on, up to `upper_offset`, the watermark
        that binds the reader.

        At most max_bytes, but the first batch whole if min_one; nothing when it does not fit otherwise.
        Raises OFFSET_OUT_OF_RANGE, LogDirFailure.
        """
        if not self._log_start <= offset <= self._leo:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self.name}, but we only have log "
                "segments from offset "
                f"{self._log_start} to {self._leo}.",
            )
        upper = self._leo if upper_offset is None else min(upper_offset, self._leo)
        if offset >= upper or not self._materialised:
            return FetchData(_next_offset=offset)
        with self._disk("reading from"):
            number = self._floor(offset)
            place = self._place(number, offset)
            while place is None and number + 1 < len(self._segments):
                number += 1
                place = self._place(number, offset)
            if place is None or place.base_offset >= upper:
                return FetchData(_next_offset=offset)
            segment = self._segments[number]
            end, end_offset = segment.size, self._segment_end(number)
            if upper < end_offset:
                limit = self._place(number, upper)
                if limit is not None:
                    end, end_offset = limit.position, upper
            available = end - place.position
            if available <= 0:
                return FetchData(_next_offset=offset)
            length = min(available, max_bytes)
            if length < min(place.size, available):
                if not min_one:
                    return FetchData(_next_offset=offset)
                length = min(place.size, available)
            stop = place.position + length
            behind = (
                end_offset
                if stop == end
                else lambda: segment.offset_index().upper_bound_offset(stop) or end_offset
            )
            return FetchData(
                [FileRegion(segment.file(), place.position, length)], length, place.base_offset, behind
            )

    def read_bytes(
        self, offset: int, max_bytes: int, *, upper_offset: int | None = None, min_one: bool = True
    ) -> bytes:
        """As `read`, the bytes themselves."""
        data = self.read(offset, max_bytes, upper_offset=upper_offset, min_one=min_one)
        with self._disk("reading from"):
            return b"".join(part.read() for part in data.parts)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that overlap [from_offset, to_offset).
        Raises LogDirFailure."""
        found: list[tuple[int, int]] = []
        with self._disk("reading from"):
            for segment in self._segments[self._floor(from_offset) :]:
                if not segment.has_txn_index:
                    continue
                entries, complete = self._txn_index(segment).collect(from_offset, to_offset)
                found += [(entry.producer_id, entry.first_offset) for entry in entries]
                if complete:
                    break
        return found

    def _txn_index(self, segment: Segment) -> TransactionIndex:
        """The segment's transaction index, found again in the log if its file is not right. Raises
        OSError."""
        try:
            return segment.txn_index()
        except (CorruptIndexError, FileNotFoundError) as e:
            logger.warning("[PartitionLog %s] Rebuilding a transaction index: %s", self.name, e)
            self._rebuild_txn_index(segment)
            return segment.txn_index()

    def _rebuild_txn_index(self, segment: Segment) -> None:
        states = ProducerStates(self.name, self.config.producer_id_expiration_ms)
        start = self._snapshots.load_latest(states, segment.base_offset, -1, 0)
        segment.reset_txn_index()
        number = self._segments.index(segment)
        first = self._bases[0] if start is None else start
        replay(
            self._segments[: number + 1],
            states,
            first,
            self._segment_end(number),
            txn_from=segment.base_offset,
        )

    # --- time -------------------------------------------------------------------------------------

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record of at least `timestamp` ms. Raises
        LogDirFailure."""
        with self._disk("searching"):
            for segment in self._segments:
                if segment.size and segment.largest_timestamp() >= timestamp:
                    found = self._search_time(segment, timestamp)
                    if found is not None:  # else all that is that late lies below the log start
                        return found
        return None

    def _search_time(self, segment: Segment, timestamp: int) -> tuple[int, int, int] | None:
        position = segment.start_for_timestamp(timestamp, self._log_start)
        for header, at in segment.headers(position, segment.size):
            if header.max_timestamp < timestamp or header.last_offset < self._log_start:
                continue
            for record in decode_records(segment.read(at, header.size_bytes)):
                if record.timestamp >= timestamp and record.offset >= self._log_start:
                    return record.timestamp, record.offset, header.leader_epoch
        return None

    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record with the greatest timestamp. Raises
        LogDirFailure."""
        with self._disk("searching"):
            best: Segment | None = None
            for segment in self._segments:
                if segment.size and (
                    best is None or segment.offset_and_time_of_max()[1] > best.offset_and_time_of_max()[1]
                ):
                    best = segment
            if best is None:
                return None
            batch_end, timestamp = best.offset_and_time_of_max()
            place = best.find(batch_end)
            if place is None or timestamp < 0:
                return None
            for header, at in best.headers(place.position, best.size):
                if header.max_timestamp == timestamp:
                    for record in decode_records(best.read(at, header.size_bytes)):
                        if record.timestamp == timestamp:
                            return timestamp, record.offset, header.leader_epoch
        return None
