"""Loads the log in a partition's directory, and recovers it after an unclean stop (Kafka's LogLoader).

After a clean stop, the log end is found from the last index entry and the batch headers after it. After
an unclean stop, the segments from the recovery point on may not have been flushed. Each is verified, and cut
after its last valid batch. Segments after one that was cut are deleted, as are empty ones after a gap.
The steps are in the order of Kafka's LogLoader, so that Quorate and Apache Kafka can load each other's
directories.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from quorate.dataclass import dataclass
from quorate.lazy import lazy_module
from quorate.log.checkpoints import LEADER_EPOCHS, read_epochs
from quorate.log.errors import CheckpointError, CorruptIndexError, NotALogError
from quorate.log.partition.epoch_cache import EpochCache
from quorate.log.partition.listing import DirectoryListing, complete_interrupted_swaps, list_directory, unlink
from quorate.log.partition.local_log import LocalLog
from quorate.log.partition.partition_metadata import FILE_NAME, is_torn, read_topic_id
from quorate.log.partition.producer_snapshots import ProducerSnapshots
from quorate.log.partition.producer_state_manager import ProducerStateManager
from quorate.log.segment.index_rebuild import read_end_offset, rebuild_missing
from quorate.log.segment.segment import INDEX_SUFFIX, TIME_SUFFIX, TXN_SUFFIX, Segment
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.records.batch import BatchHeader
from quorate.records.errors import CorruptRecordError

if TYPE_CHECKING:
    from quorate.log.segment import recovery
else:  # only after an unclean stop
    recovery = lazy_module("quorate.log.segment.recovery")

logger = logging.getLogger(__name__)

_SLOW_REBUILD_BYTES = 1 << 20  # 17 ms, if the batches are small
_SLOW_RECOVERY_BYTES = 64 << 20  # from this size on, the recovery of a segment is logged


@dataclass(slots=True)
class LoadedLog:
    """The parts of a log that was loaded; its segments are in the `LocalLog` (Kafka's LoadedLogOffsets)."""

    epochs: EpochCache
    producers: ProducerStateManager
    log_start: int
    recovery_point: int


def load_log(
    log: LocalLog,
    *,
    recovery_point: int,
    log_start_offset: int,
    clean: bool,
    now_ms: int,
    must_exist: bool,
) -> LoadedLog:
    """Loads the segments of `log`, their leader epochs and producer state.

    The log starts empty, without files, if it has no directory. Raises OSError, CorruptRecordError,
    CheckpointError and KafkaError INCONSISTENT_TOPIC_ID. If `must_exist` is set, raises NotALogError for a
    directory that has neither `partition.metadata` nor a segment.
    """
    producers = ProducerStateManager(log, log.config.producer_id_expiration_ms)
    try:
        found = list_directory(log.directory)
    except FileNotFoundError:
        start = log_start_offset
        log.set_segments([log.new_segment(start, now_ms)], start)
        producers.states.clear(start)
        return LoadedLog(EpochCache(), producers, start, start)
    if must_exist and not found.logs and FILE_NAME not in found.names:
        raise NotALogError(f"{log.directory} has neither {FILE_NAME} nor a segment")
    if complete_interrupted_swaps(log.directory, found):
        found = list_directory(log.directory)
    log.exists = True
    _load_topic_id(log, found, clean)
    epochs, epochs_lost = _load_epochs(log.directory, found.names)
    loaded = _load_segments(log, found, epochs, recovery_point, clean, now_ms)
    producers.snapshots = ProducerSnapshots(log.directory, found.snapshots)
    if loaded.segments and loaded.log_end_offset < log_start_offset:
        logger.warning(
            "[PartitionLog %s] Deleting all segments: the log end offset (%d) is smaller than the log "
            "start offset %d.",
            log.name,
            loaded.log_end_offset,
            log_start_offset,
        )
        for segment in loaded.segments:
            remove_segment_files(segment)
        loaded.segments.clear()
        epochs.clear()
    if not loaded.segments:
        producers.snapshots.remove(lambda offset: True)
        segment = log.new_segment(log_start_offset, now_ms)
        segment.create_files()
        loaded.segments.append(segment)
        loaded.log_end_offset = log_start_offset
    needs_no_recovery = clean and loaded.recovered_from is None
    if needs_no_recovery and recovery_point < loaded.log_end_offset:
        _check_closed_end(log, loaded, recovery_point)
    log.set_segments(loaded.segments, loaded.log_end_offset)
    log_start = max(log_start_offset, log.bases[0])
    last_epoch = log.last_epoch()
    if len(epochs) and last_epoch >= 0 and epochs.epoch_for(log.end_offset - 1) != last_epoch:
        epochs_lost = f"the epoch of the last batch, {last_epoch}, is not the last one in {LEADER_EPOCHS}"
    if epochs_lost is not None and log.end_offset > log.bases[0] and loaded.recovered_from != log.bases[0]:
        logger.warning(
            "[PartitionLog %s] Rebuilding the leader epochs from the batches: %s", log.name, epochs_lost
        )
        epochs.rebuild(header for segment in log.segments for header, _ in segment.headers(0, segment.size))
    epochs.truncate_from_end(log.end_offset)
    epochs.truncate_from_start(log_start)
    _load_producers(log, producers, loaded, log_start, clean, now_ms)
    new_recovery_point = log.end_offset if needs_no_recovery else min(recovery_point, log.end_offset)
    return LoadedLog(epochs, producers, log_start, new_recovery_point)


def _check_closed_end(log: LocalLog, loaded: _LoadedSegments, recovery_point: int) -> None:
    """Checks a log that was closed cleanly, and ends after its recovery point: it had a gap there, which is
    still known then. Raises OSError, CorruptRecordError."""
    if _is_gap(loaded.segments, recovery_point):
        log.gap_start = None if log.config.compacts else recovery_point
    elif recovery_point > 0:
        raise CorruptRecordError(
            f"{loaded.segments[-1].log_path} was closed at offset {recovery_point} "
            "(recovery-point-offset-checkpoint), but its last batch claims to end before "
            f"{loaded.log_end_offset}. Restore the file from a replica or a backup"
        )


def _is_gap(segments: list[Segment], offset: int) -> bool:
    """Whether a batch or a segment ends at `offset`, and the records after it begin later. The copy of a log
    with a gap has it inside of a segment. Raises OSError."""
    number = bisect_right(segments, offset, key=attrgetter("base_offset")) - 1
    if number < 0:
        return False
    segment = segments[number]
    try:
        before = segment.find(offset - 1) if offset > segment.base_offset else None
        after = segment.find(offset)
    except CorruptRecordError:
        return False
    if offset > segment.base_offset and (before is None or before.last_offset != offset - 1):
        return False
    return number + 1 < len(segments) if after is None else after.base_offset > offset


def _load_topic_id(log: LocalLog, found: DirectoryListing, clean: bool) -> None:
    """Reads `partition.metadata`, or writes it if it is missing and the topic id is known."""
    metadata, path = log.metadata, os.path.join(log.directory, FILE_NAME)
    on_disk = _read_topic_id_leniently(path, clean=clean) if FILE_NAME in found.names else None
    if on_disk is None:
        if metadata.topic_id is not None:
            metadata.write(log.directory)
        return
    if metadata.topic_id is not None and on_disk != metadata.topic_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"{log.directory} belongs to another topic of the same name: its {FILE_NAME} differs",
        )
    metadata.topic_id = on_disk
    if not clean:
        metadata.unsynced_by_predecessor()


def _read_topic_id_leniently(path: str, *, clean: bool) -> bytes | None:
    """The topic id of a partition directory. After an unclean stop, an empty or torn file is removed and
    counts as missing, because the file is not synced when it is created. Raises CheckpointError, OSError."""
    try:
        return read_topic_id(path)
    except CheckpointError:
        if clean or not is_torn(path):
            raise
        logger.warning("Partition metadata file %s is torn after an unclean stop; it will be rewritten", path)
        unlink(path)
        return None


def _load_epochs(directory: str, names: set[str]) -> tuple[EpochCache, str | None]:
    """Reads `leader-epoch-checkpoint`. The second value is the reason why the epochs are lost, or None.

    The file may be missing if the log is empty or is recovered from its first segment, because recovery
    takes the epochs from the batches. Any other log needs it: a follower without epochs would truncate its
    log to its high watermark. Raises OSError.
    """
    if LEADER_EPOCHS not in names:
        return EpochCache(), f"there is no {LEADER_EPOCHS}"
    path = os.path.join(directory, LEADER_EPOCHS)
    try:
        epochs = EpochCache(read_epochs(path))
    except (CheckpointError, ValueError) as e:
        return EpochCache(), str(e)
    if not len(epochs) and not os.stat(path).st_size:
        return epochs, f"{LEADER_EPOCHS} is empty"
    return epochs, None


def _load_producers(
    log: LocalLog,
    producers: ProducerStateManager,
    loaded: _LoadedSegments,
    log_start: int,
    clean: bool,
    now_ms: int,
) -> None:
    snapshots = producers.snapshots
    had_snapshots = bool(snapshots.sizes)
    snapshots.remove_strays(log.bases)
    snapshots.remove(lambda offset: offset > log.end_offset)
    if loaded.recovered_from is not None:
        # A power failure may have brought back one of records that were truncated before.
        snapshots.remove(lambda offset: offset > log.bases[-1])
    if clean and loaded.recovered_from is None and not had_snapshots:
        # A clean close without a snapshot means that there were no producers.
        producers.states.map_end_offset = log.end_offset
    elif loaded.producers_seen:
        # The recovered segments are replayed completely, which rebuilds their transaction indexes.
        assert loaded.recovered_from is not None
        for segment in log.segments:
            if segment.base_offset >= loaded.recovered_from:
                segment.reset_txn_index()
        producers.rebuild(log_start, loaded.recovered_from, now_ms, txn_from=loaded.recovered_from)
    else:
        producers.rebuild(log_start, log.end_offset, now_ms, skip_from=loaded.recovered_from)


# --- segments -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _LoadedSegments:
    """The segments of a log after a start, with the findings of the recovery."""

    segments: list[Segment]
    log_end_offset: int = 0
    recovered_from: int | None = None
    """The base offset of the first segment that was recovered."""
    producers_seen: bool = False
    """Whether the recovered segments hold batches of producers."""
    scanned_end: int = -1
    """The offset after the last recovered batch."""
    scanned_epoch: int = 0
    """The leader epoch of the last recovered batch."""


def _load_segments(
    log: LocalLog, found: DirectoryListing, epochs: EpochCache, recovery_point: int, clean: bool, now_ms: int
) -> _LoadedSegments:
    """Returns the segments in order, each with its true size. Recovers those that may not have been flushed,
    and corrects `epochs` from their batches.

    Raises OSError, and CorruptRecordError if a damaged segment must not be truncated.
    """
    for name in list(found.indexes):
        if int(name[:20]) not in found.sizes:
            logger.warning(
                "Found an orphaned index file %s, with no corresponding log file.",
                os.path.join(log.directory, name),
            )
            unlink(os.path.join(log.directory, name))
    segments: list[Segment] = []
    unindexed: list[int] = []
    for base in found.logs:
        segment = log.new_segment(base, now_ms, found.sizes[base])
        segment.last_modified_ms = found.modified_ms[base]
        segment.has_txn_index = f"{base:020d}{TXN_SUFFIX}" in found.indexes
        segments.append(segment)
        if segment.size and not {f"{base:020d}{INDEX_SUFFIX}", f"{base:020d}{TIME_SUFFIX}"} <= found.indexes:
            unindexed.append(len(segments) - 1)
    loaded = _LoadedSegments(segments)
    first_unflushed = len(segments)
    if not clean and segments:
        first_unflushed = max(
            (i for i, s in enumerate(segments) if s.base_offset <= recovery_point), default=0
        )
    rebuild_missing(segments[number] for number in unindexed if number < first_unflushed)
    strict = log.config.is_metadata_log
    for i in range(first_unflushed, len(segments)):
        segment = segments[i]
        if strict and i > first_unflushed and segment.base_offset != loaded.scanned_end:
            raise CorruptRecordError(
                f"{segment.log_path} begins at offset {segment.base_offset}, but the segment before "
                f"it ends at {loaded.scanned_end}: a segment is missing or was truncated"
            )
        check_truncation = (
            recovery.check_torn_tail(segment.log_path, len(segments) - i - 1) if strict else None
        )
        if not _recover(segment, loaded, epochs, check_truncation, without_gaps=strict):
            for dropped in segments[i + 1 :]:
                logger.warning("Deleting segment %s after a corrupt one.", dropped.log_path)
                remove_segment_files(dropped)
            del segments[i + 1 :]
            break
    if not clean and not log.config.compacts:
        _drop_empty_segments_after_gap(segments, recovery_point)
        known = recovery_point < loaded.scanned_end and _is_gap(segments, recovery_point)
        log.gap_start = recovery_point if known else _gap_start(segments, first_unflushed)
    if segments:
        last = segments[-1]
        try:
            loaded.log_end_offset = last.next_offset()
            if last.size > _SLOW_REBUILD_BYTES:
                last.time_index()  # the first append would rebuild a damaged one on the event loop
        except (CorruptRecordError, CorruptIndexError) as e:
            logger.warning(
                "The end of %s is incomplete although the log was closed cleanly: %s", last.log_path, e
            )
            _recover(last, loaded, epochs, recovery.check_lost_end(last.log_path))
            loaded.log_end_offset = last.next_offset()
    return loaded


def _drop_empty_segments_after_gap(segments: list[Segment], recovery_point: int) -> None:
    """Deletes empty segments at the end of the log that begin after the end of the segment before them.

    Without compaction such a gap means that a power failure has lost the end of that segment, but not the
    name of the next file. A log that ended after it would claim to have the lost offsets: followers would
    wait for them forever, and would not find their divergence. (Kafka keeps the gap.) A gap below the
    recovery point has another cause: the topic was compacted before. Raises OSError.
    """
    while len(segments) > 1 and segments[-1].size == 0 and segments[-1].base_offset > recovery_point:
        end = read_end_offset(segments[-2])
        if end is None or end >= segments[-1].base_offset:
            return
        dropped = segments.pop()
        logger.warning(
            "Deleting the empty segment %s, because the segment before it ends at offset %d.",
            dropped.log_path,
            end,
        )
        remove_segment_files(dropped)


def _gap_start(segments: list[Segment], first_unflushed: int) -> int | None:
    """The end of the first segment that ends before the next one begins, or None. Of the segments before
    number `first_unflushed`, only empty ones are looked at.

    Without compaction, a power failure or an interrupted full truncation leaves such a gap. The records after
    it stay, as they may be the only copy; a follower copies them again (see `certain_end`). Raises OSError.
    """
    for number, (segment, following) in enumerate(itertools.pairwise(segments)):
        looked_at = number >= first_unflushed or not segment.size
        if looked_at and (end := segment.next_offset()) < following.base_offset:
            return end
    return None


def _recover(
    segment: Segment,
    loaded: _LoadedSegments,
    epochs: EpochCache,
    check_truncation: recovery.TruncationCheck | None,
    *,
    without_gaps: bool = False,
) -> bool:
    """Recovers one segment. Returns whether nothing had to be truncated. Raises OSError,
    CorruptRecordError."""
    started = time.perf_counter()
    if loaded.recovered_from is None:
        loaded.recovered_from = segment.base_offset
    seen = False
    loaded.scanned_end = max(loaded.scanned_end, segment.base_offset)

    def on_batch(header: BatchHeader) -> None:
        nonlocal seen
        loaded.scanned_end, loaded.scanned_epoch = header.next_offset, header.leader_epoch
        if header.producer_id >= 0:
            seen = True
        epochs.correct(header.leader_epoch, header.base_offset)

    cut = recovery.recover_segment(
        segment, on_batch, check_truncation, min_epoch=loaded.scanned_epoch if without_gaps else None
    )
    loaded.producers_seen |= seen
    if cut:
        logger.warning("Corruption found in segment %s, truncating %d bytes", segment.log_path, cut)
    elif segment.size > _SLOW_RECOVERY_BYTES:
        logger.info(
            "Recovered segment %s (%d bytes) in %.1f s",
            segment.log_path,
            segment.size,
            time.perf_counter() - started,
        )
    return not cut


def remove_segment_files(segment: Segment) -> None:
    """Deletes the files of a segment at once. Raises OSError."""
    segment.forget_files()
    for path in segment.paths():
        unlink(path)
