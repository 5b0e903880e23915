"""Reads a range of a quorum's log as Arrow record batches. This runs in the tasks."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa

from quorate.admin.errors import ErrorCode, KafkaError
from quorate.admin.metadata_log import SnapshotId, first_readable_offset
from quorate.metadata.errors import MetadataError
from quorate.metadata.snapshot import snapshot_name
from quorate.pipeline.decoder.read import Reading, read_view
from quorate.pipeline.directories.layout import Slice
from quorate.pipeline.live.offsets import UNKNOWN_EPOCH, OffsetError, Range
from quorate.pipeline.live.quorum import Quorum
from quorate.records.batch import CorruptRecordError, iter_batches

_SNAPSHOT_ATTEMPTS: Final = 5
"""A new active controller may have other snapshots than the one before."""


def read_range(
    quorum: Quorum, wanted: Range, reading: Reading, *, snapshots: bool = True, complete: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a range, in order. Without `snapshots`, the rows of a snapshot are left out.

    Raises OffsetError if the log no longer has the start of a range that begins without a snapshot. With
    `complete`, the snapshot must be the one that ends with the range, and not a newer one.
    """
    bounds = reading.bounds
    first = max(bounds.first_offset, wanted.start)
    end = wanted.end if bounds.end_offset is None else min(bounds.end_offset, wanted.end)
    in_range = replace(reading, bounds=bounds._replace(first_offset=first, end_offset=end))
    offset, epoch = wanted.start, wanted.epoch
    attempts = 0
    while offset < end:
        found = quorum.fetch(offset, epoch)
        if found.snapshot is None:
            records, offset, epoch = _complete_batches(quorum, found.records, offset)
            part = Slice(quorum.name, 0, -1, len(records), committed=end)
            yield from read_view(part, records, in_range)
        elif found.needs_no_snapshot(offset):
            offset, epoch = first_readable_offset(found.log_start_offset), UNKNOWN_EPOCH
        elif not wanted.begins_with_snapshot:
            raise OffsetError(
                f"{quorum.name} no longer has offset {offset}: it was deleted since this batch was planned"
            )
        elif complete and found.snapshot.end_offset != wanted.end:
            raise OffsetError(
                f"{quorum.name} now offers the snapshot {found.snapshot.end_offset} instead of {wanted.end}"
            )
        else:
            try:
                yield from _read_snapshot(quorum, found.snapshot, reading, snapshots)
                offset, epoch = found.snapshot
            except KafkaError as error:
                attempts += 1
                if error.code is not ErrorCode.SNAPSHOT_NOT_FOUND or attempts == _SNAPSHOT_ATTEMPTS:
                    raise


def _complete_batches(quorum: Quorum, records: bytes, offset: int) -> tuple[memoryview, int, int]:
    """The complete batches of a response to a Fetch of this offset, the offset after them, and
    their epoch."""
    end, last_offset, epoch = 0, -1, UNKNOWN_EPOCH
    try:
        for header, _ in iter_batches(records):
            if end == 0 and header.base_offset > offset:
                raise MetadataError(
                    f"{quorum.name}: the response begins at {header.base_offset}", offset=offset
                )
            end += header.size_bytes
            last_offset, epoch = header.last_offset, header.leader_epoch
    except CorruptRecordError as error:
        raise MetadataError(f"{quorum.name}: {error}", offset=offset) from error
    if last_offset < offset:
        raise MetadataError(f"{quorum.name}: the response has no complete batch", offset=offset)
    return memoryview(records)[:end], last_offset + 1, epoch


def _read_snapshot(
    quorum: Quorum, snapshot: SnapshotId, reading: Reading, wanted: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of a snapshot. It is downloaded before the first row, so that an error leaves none behind."""
    if not wanted:
        return
    with tempfile.TemporaryFile() as file:
        size = quorum.download(snapshot, file)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    name = f"{snapshot_name(*snapshot)} of {quorum.name}"
    part = Slice(name, 0, -1, size, snapshot.end_offset, base_offset=0)
    yield from read_view(part, memoryview(mapped), reading)
