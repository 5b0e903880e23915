"""Telling damage from a torn tail.

A crash leaves a half-written batch at the very end of a log, and cutting it loses nothing that was
acknowledged. A bad batch with a whole one behind it was once whole itself: cutting there would throw
away what was acknowledged.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from quorate.records.batch import BATCH_OVERHEAD, MAGIC, parse_header, verify_crc
from quorate.records.errors import CorruptRecordError

_SEARCHED_BYTES = 16 << 20  # of what is behind the bad batch: twice the largest metadata batch


def whole_batch_behind(fd: int, position: int, end: int, last_offset: int) -> int | None:
    """The file position of the first whole batch from `position` on, None if there is none: at
    `position` itself whatever its offsets, which no checksum covers, and further on one that continues
    behind `last_offset`.

    Raises OSError.
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


def cut_tail_only(path: str) -> Callable[[int, int, int, int], None]:
    """As `torn_tail_only`, for a log that was closed in order: only a file that lost its end may be
    cut, not a batch whose header is no header any more. (Kafka does not start then.)"""
    torn = torn_tail_only(path, 0)

    def check(fd: int, position: int, end: int, last_offset: int) -> None:
        torn(fd, position, end, last_offset)
        if end - position >= BATCH_OVERHEAD:
            try:
                header = parse_header(os.pread(fd, BATCH_OVERHEAD, position))
            except CorruptRecordError as e:
                raise CorruptRecordError(
                    f"{path} is damaged behind offset {last_offset}, although it was closed: {e}"
                ) from None
            if position + header.size_bytes <= end:
                raise CorruptRecordError(
                    f"{path} is damaged at byte {position}, although it was closed: offsets "
                    f"{header.base_offset} to "
                    f"{header.last_offset} have a wrong checksum"
                )

    return check


def torn_tail_only(path: str, segments_behind: int) -> Callable[[int, int, int, int], None]:
    """A check for `Segment.recover` to make before it cuts a segment: refuses damage, lets a torn tail go.

    Called with descriptor, byte position, file size and last good offset; raises CorruptRecordError,
    which names the place. The remedy depends on whose log it is, which only the caller of the log knows
    (`raft.remedies`): a voter whose log is simply moved away would start again as the same voter
    without what it has acknowledged.
    """

    def check(fd: int, position: int, end: int, last_offset: int) -> None:
        behind = whole_batch_behind(fd, position, end, last_offset)
        if behind is None and not segments_behind:
            return
        what = (
            f"{segments_behind} segment(s) follow"
            if behind is None
            else f"a whole batch stands behind it at byte {behind}"
            if behind > position
            else "only its offsets or its epoch are wrong"
        )
        raise CorruptRecordError(
            f"{path} is damaged at byte {position}: the batch after offset {last_offset} is not as it was "
            f"written, but {what}"
        )

    return check
