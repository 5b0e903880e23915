"""Opening a log's directory: what is on disk, what an interrupted operation left, recovery after an
unclean stop.

After a clean stop the ends are read from the indexes. After an unclean one every segment that may not
have been flushed (from the one that holds the recovery point) is checked to the last checksum and cut
behind the last good batch; segments after a cut one go. The order of the steps is that of Kafka's own
loader, so either may find what the other left.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from quorate.log.config import LogConfig
from quorate.log.damage import cut_tail_only, torn_tail_only
from quorate.log.errors import CheckpointError, CorruptIndexError
from quorate.log.files import OpenFiles
from quorate.log.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_SUFFIX,
    TXN_SUFFIX,
    Segment,
)
from quorate.records.batch import BATCH_OVERHEAD, BatchHeader, parse_header
from quorate.records.errors import CorruptRecordError

logger = logging.getLogger(__name__)

_SWAP_SUFFIX, _CLEANED_SUFFIX = ".swap", ".cleaned"
_KRAFT_SNAPSHOT_DELETED = ".checkpoint.deleted"


@dataclass(slots=True)
class Listing:
    """The files of one partition directory."""

    logs: list[int] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    modified_ms: dict[int, int] = field(default_factory=dict)
    indexes: set[str] = field(default_factory=set)
    snapshots: dict[int, int] = field(default_factory=dict)  # offset -> size
    others: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)


def list_directory(directory: str) -> Listing:
    """Raises OSError; FileNotFoundError when there is no directory."""
    found = Listing()
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            found.names.add(name)
            stem, suffix = name[:20], name[20:]
            if stem.isdigit() and len(stem) == 20:
                if suffix == LOG_SUFFIX:
                    stat = entry.stat()
                    offset = int(stem)
                    found.logs.append(offset)
                    found.sizes[offset] = stat.st_size
                    found.modified_ms[offset] = stat.st_mtime_ns // 1_000_000
                    continue
                if suffix in (INDEX_SUFFIX, TIME_SUFFIX, TXN_SUFFIX):
                    found.indexes.add(name)
                    continue
                if suffix == SNAPSHOT_SUFFIX:
                    found.snapshots[int(stem)] = entry.stat().st_size
                    continue
            if name.endswith((DELETED_SUFFIX, _SWAP_SUFFIX, _CLEANED_SUFFIX)):
                found.others.append(name)
    found.logs.sort()
    return found


def finish_interrupted(directory: str, found: Listing) -> bool:
    """Removes what was being deleted or cleaned, completes swaps of finished compactions. Whether to
    list again.

    Raises OSError.
    """
    if not found.others:
        return False
    cleaned = [name for name in found.others if name.endswith(_CLEANED_SUFFIX)]
    swaps = [name for name in found.others if name.endswith(_SWAP_SUFFIX)]
    lowest_cleaned = min((int(name[:20]) for name in cleaned if name[:20].isdigit()), default=None)
    for name in found.others:
        is_deleted = name.endswith(DELETED_SUFFIX) and not name.endswith(_KRAFT_SNAPSHOT_DELETED)
        unfinished = (
            name in swaps
            and lowest_cleaned is not None
            and name[:20].isdigit()
            and int(name[:20]) >= lowest_cleaned
        )
        if is_deleted or unfinished or name in cleaned:
            _unlink(os.path.join(directory, name))
            if unfinished:
                swaps.remove(name)
    if not swaps:
        return True
    first, after = 1 << 63, -1
    for name in swaps:
        if name.endswith(LOG_SUFFIX + _SWAP_SUFFIX):
            base = int(name[:20])
            size = os.stat(os.path.join(directory, name)).st_size
            end = _swap_end(os.path.join(directory, name), base, size)
            first, after = min(first, base), max(after, end)
    for name in found.names:
        if (
            name[:20].isdigit()
            and name not in swaps
            and first <= int(name[:20]) < after
            and not name.endswith(SNAPSHOT_SUFFIX)
        ):
            logger.info(
                "Deleting segment file %s that is compacted but has not been deleted yet.",
                os.path.join(directory, name),
            )
            _unlink(os.path.join(directory, name))
    for name in swaps:
        path = os.path.join(directory, name)
        logger.info("Recovering file %s by renaming from .swap files.", path)
        os.replace(path, path.removesuffix(_SWAP_SUFFIX))
    return True


def _swap_end(path: str, base: int, size: int) -> int:
    """Next offset of a complete swap file."""
    end = base
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        position = 0
        while position + BATCH_OVERHEAD <= size:
            header = parse_header(os.pread(fd, BATCH_OVERHEAD, position))
            end = header.next_offset
            position += header.size_bytes
    except CorruptRecordError as e:
        logger.warning("Found invalid messages in %s: %s", path, e)
    finally:
        os.close(fd)
    return end


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


@dataclass(slots=True)
class LoadedSegments:
    segments: list[Segment]
    log_end_offset: int
    recovered_from: int | None  # base offset of the first segment that was scanned
    producers_seen: bool  # whether the scanned part holds batches of producers
    cut: bool
    scanned_end: int = -1  # one behind the last batch that was scanned, and its epoch
    scanned_epoch: int = 0


def load_segments(
    directory: str,
    found: Listing,
    config: LogConfig,
    files: OpenFiles,
    *,
    recovery_point: int,
    clean: bool,
    now_ms: int,
    on_batch: Callable[[BatchHeader], None],
) -> LoadedSegments:
    """Segments in order, each with its true size.

    Raises OSError, CorruptRecordError for a flushed segment that is not readable.
    """
    for name in list(found.indexes):
        if int(name[:20]) not in found.sizes:
            logger.warning(
                "Found an orphaned index file %s, with no corresponding log file.",
                os.path.join(directory, name),
            )
            _unlink(os.path.join(directory, name))
    segments: list[Segment] = []
    for base in found.logs:
        segment = Segment(directory, base, config, files, found.sizes[base], now_ms)
        segment.last_modified_ms = found.modified_ms[base]
        segment.has_txn_index = f"{base:020d}{TXN_SUFFIX}" in found.indexes
        segments.append(segment)
    state = LoadedSegments(segments, 0, None, False, False)
    first_unflushed = len(segments)
    if not clean and segments:
        first_unflushed = max(
            (i for i, s in enumerate(segments) if s.base_offset <= recovery_point), default=0
        )
    for i in range(first_unflushed, len(segments)):
        if (
            config.cuts_torn_tail_only
            and i > first_unflushed
            and segments[i].base_offset != state.scanned_end
        ):
            raise CorruptRecordError(
                f"{segments[i].log_path} begins at offset {segments[i].base_offset}, but what is before it "
                "ends at "
                f"{state.scanned_end}: a segment is missing or was cut"
            )
        check = (
            torn_tail_only(segments[i].log_path, len(segments) - i - 1)
            if config.cuts_torn_tail_only
            else None
        )
        if not _recover(segments[i], state, on_batch, check, without_gaps=config.cuts_torn_tail_only):
            for dropped in segments[i + 1 :]:
                logger.warning("Deleting segment %s behind a corrupt one.", dropped.log_path)
                remove_segment_files(dropped)
            del segments[i + 1 :]
            break
    if segments:
        last = segments[-1]
        try:
            state.log_end_offset = last.next_offset()
        except (CorruptRecordError, CorruptIndexError) as e:
            logger.warning("The end of %s is not whole although it was closed: %s", last.log_path, e)
            _recover(last, state, on_batch, cut_tail_only(last.log_path))
            state.log_end_offset = last.next_offset()
    return state


def _recover(
    segment: Segment,
    state: LoadedSegments,
    on_batch: Callable[[BatchHeader], None],
    before_cut: Callable[[int, int, int, int], None] | None = None,
    *,
    without_gaps: bool = False,
) -> bool:
    """Whether the segment was whole."""
    started = time.perf_counter()
    if state.recovered_from is None:
        state.recovered_from = segment.base_offset
    seen = False
    state.scanned_end = max(state.scanned_end, segment.base_offset)

    def note(header: BatchHeader, position: int, batch: memoryview) -> None:
        nonlocal seen
        state.scanned_end, state.scanned_epoch = header.next_offset, header.leader_epoch
        if header.producer_id >= 0:
            seen = True
        on_batch(header)

    cut = segment.recover(note, before_cut, least_epoch=state.scanned_epoch if without_gaps else None)
    state.producers_seen |= seen
    if cut:
        state.cut = True
        logger.warning("Corruption found in segment %s, truncating %d bytes", segment.log_path, cut)
    elif segment.size > 64 << 20:
        logger.info(
            "Recovered segment %s (%d bytes) in %.1f s",
            segment.log_path,
            segment.size,
            time.perf_counter() - started,
        )
    return not cut


def remove_segment_files(segment: Segment) -> None:
    """Raises OSError."""
    segment.forget_files()
    for path in segment.paths():
        _unlink(path)


def read_topic_id_leniently(path: str, *, clean: bool) -> bytes | None:
    """The topic id of a partition directory. After an unclean stop a file without content counts as
    absent: it is written anew.

    Raises CheckpointError, OSError.
    """
    from quorate.log.partition_metadata import read_topic_id

    try:
        return read_topic_id(path)
    except CheckpointError:
        if clean or os.stat(path).st_size:
            raise
        logger.warning(
            "Partition metadata file %s is empty after an unclean stop; it will be written anew", path
        )
        _unlink(path)
        return None
