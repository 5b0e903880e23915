"""Recovery of a segment after an unclean stop, and the distinction of damage from a torn tail.

A crash leaves an incomplete batch at the very end of a log. Truncating it loses no acknowledged record. A
bad batch that is followed by a valid one was once valid itself: truncating there would lose acknowledged
records.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Iterator

from quorate.log.segment.indexes import MAX_RELATIVE_OFFSET
from quorate.log.segment.segment import Segment
from quorate.records.batch import (
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    has_crc,
    parse_header,
    verify_crc,
)
from quorate.records.errors import CorruptRecordError

logger = logging.getLogger(__name__)

_READ_BYTES = 1 << 20
_SEARCHED_BYTES = 16 << 20  # searched after a bad batch: twice the size of the largest metadata batch
_OFFSET_AND_LENGTH = struct.Struct(">qi")

TruncationCheck = Callable[[int, int, int, int], None]
"""Called with (descriptor, byte position, file size, last good offset) before a segment is truncated.
Raises CorruptRecordError to prevent the truncation."""


def recover_segment(
    segment: Segment,
    on_batch: Callable[[BatchHeader], None],
    check_truncation: TruncationCheck | None = None,
    *,
    min_epoch: int | None = None,
) -> int:
    """Verifies the checksum of every batch, rebuilds the indexes and truncates the file after the last
    valid batch. Returns the number of bytes truncated.

    `on_batch` is called for each valid batch. With `min_epoch`, offsets must be contiguous, and leader
    epochs must begin at or above it and not decrease; no checksum covers either. Raises OSError, and
    CorruptRecordError from `check_truncation`.
    """
    fd = segment.file()
    end = os.fstat(fd.fileno()).st_size
    segment.begin_scan()
    segment.first_timestamp = None
    position, last = 0, segment.base_offset - 1
    try:
        for header in scan_batches(fd.fileno(), segment.base_offset, end, min_epoch=min_epoch):
            segment.note_scanned(header, position)
            if position == 0:
                segment.first_timestamp = header.max_timestamp
            on_batch(header)
            position += header.size_bytes
            last = header.last_offset
    except CorruptRecordError as e:
        logger.warning(
            "Found invalid messages in log segment %s at byte offset %d: %s", segment.log_path, position, e
        )
    cut = end - position
    if cut:
        if check_truncation is not None:
            check_truncation(fd.fileno(), position, end, last)
        os.ftruncate(fd.fileno(), position)
    segment.size = position
    segment.end_scan()
    return cut


def scan_batches(
    fd: int, base_offset: int, end: int, *, min_epoch: int | None = None
) -> Iterator[BatchHeader]:
    """Yields the header of each valid batch of a segment, from its start on. Changes nothing.

    Ends at the end of the file or at an incomplete last batch. Raises OSError, and
    CorruptRecordError for a batch whose checksum, offsets or epoch are wrong. `min_epoch` as in
    `recover_segment`.
    """
    position, last, epoch = 0, base_offset - 1, min_epoch or 0
    data, start = b"", 0
    while end - position >= LOG_OVERHEAD:
        at = position - start
        size = _batch_size(data, at)
        if size is None or at + size > len(data):
            wanted = min(max(_READ_BYTES, size or 0), end - position)
            data, start, at = os.pread(fd, wanted, position), position, 0
            size = _batch_size(data, 0)
        if size is None or size > len(data):
            if size is not None and BATCH_OVERHEAD <= size <= end - position:
                data = os.pread(fd, size, position)
            else:
                return  # an incomplete last batch
        header = parse_header(data, at)
        base, delta = header.base_offset, header.last_offset_delta
        if base <= last or delta < 0:
            raise CorruptRecordError(f"Offset {base} after {last}")
        if min_epoch is not None and (base != last + 1 or header.leader_epoch < epoch):
            raise CorruptRecordError(
                f"Offset {base} of epoch {header.leader_epoch} after {last} of epoch {epoch}"
            )
        last = base + delta
        if last - base_offset > MAX_RELATIVE_OFFSET or not has_crc(data, at, header):
            raise CorruptRecordError(f"Record is corrupt (stored crc = {header.crc})")
        yield header
        position += header.size_bytes
        epoch = header.leader_epoch


def _batch_size(data: bytes, at: int) -> int | None:
    """The size of the batch that starts at `at`; None if its length is not in the data. Raises
    CorruptRecordError."""
    if at + LOG_OVERHEAD > len(data):
        return None
    size: int = _OFFSET_AND_LENGTH.unpack_from(data, at)[1] + LOG_OVERHEAD
    if size < BATCH_OVERHEAD:
        raise CorruptRecordError(f"Length {size - LOG_OVERHEAD} is less than a batch's header")
    return size


# --- damage or torn tail --------------------------------------------------------------------------


def find_whole_batch(fd: int, position: int, end: int, last_offset: int) -> int | None:
    """The file position of the first valid batch from `position` on, or None.

    A batch at `position` itself counts whatever its offsets are, because no checksum covers them. A
    later one must have offsets above `last_offset`. Raises OSError.
    """
    data = os.pread(fd, min(end - position, _SEARCHED_BYTES), position)
    view = memoryview(data)
    at = data.find(b"\x02", MAGIC)
    while at >= 0:
        start = at - MAGIC
        if len(data) - start < BATCH_OVERHEAD:
            return None
        try:
            header = parse_header(view, start)
        except CorruptRecordError:
            header = None
        if (
            header is not None
            and (start == 0 or last_offset < header.base_offset <= last_offset + (1 << 31))
            and start + header.size_bytes <= len(data)
            and header.count > 0
            and verify_crc(view[start : start + header.size_bytes])
        ):
            return position + start
        at = data.find(b"\x02", at + 1)
    return None


def check_torn_tail(path: str, segments_behind: int) -> TruncationCheck:
    """A check that allows only a torn tail to be truncated.

    The message of its CorruptRecordError names the place but no remedy, which depends on the owner of
    the log (`raft.storage.recovery_advice`): a voter that starts again with an empty log would lack the
    records that it has acknowledged.
    """

    def check(fd: int, position: int, end: int, last_offset: int) -> None:
        behind = find_whole_batch(fd, position, end, last_offset)
        if behind is None and not segments_behind:
            return
        reason = (
            f"{segments_behind} segment(s) follow"
            if behind is None
            else f"a valid batch follows it at byte {behind}"
            if behind > position
            else "only its offsets or its epoch are wrong"
        )
        raise CorruptRecordError(
            f"{path} is damaged at byte {position}: the batch after offset {last_offset} is not as it was "
            f"written, but {reason}"
        )

    return check


def check_lost_end(path: str) -> TruncationCheck:
    """Like `check_torn_tail`, for a log that was closed cleanly: only a file that has lost its end may
    be truncated. A batch with a malformed header or a wrong checksum may not. (Kafka does not start then.)"""
    check_tail = check_torn_tail(path, 0)

    def check(fd: int, position: int, end: int, last_offset: int) -> None:
        check_tail(fd, position, end, last_offset)
        if end - position >= BATCH_OVERHEAD:
            try:
                header = parse_header(os.pread(fd, BATCH_OVERHEAD, position))
            except CorruptRecordError as e:
                raise CorruptRecordError(
                    f"{path} is damaged after offset {last_offset}, although it was closed: {e}"
                ) from None
            if position + header.size_bytes <= end:
                raise CorruptRecordError(
                    f"{path} is damaged at byte {position}, although it was closed: offsets "
                    f"{header.base_offset} to {header.last_offset} have a wrong checksum"
                )

    return check
