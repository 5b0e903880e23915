"""Snapshots of the producer state: files named `%020d.snapshot` after the offset up to which they hold.

A file has int16 version 1, uint32 CRC-32C of the rest, int32 number of entries, then entries of 46
bytes (Kafka's ProducerStateManager).
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
from collections.abc import Callable, Iterable, Sequence

import google_crc32c

from quorate.log.files import write_all
from quorate.log.partition.producer_state import BatchMetadata, ProducerState, ProducerStates
from quorate.log.segment.segment import SNAPSHOT_SUFFIX, file_stem

logger = logging.getLogger(__name__)

_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1
_CRC_END = 6
_EMPTY_FILE_BYTES = _HEAD.size


class CorruptSnapshotError(Exception):
    """A producer snapshot is malformed."""


def encode_snapshot(states: Iterable[ProducerState]) -> bytes:
    """The bytes of a snapshot file."""
    rows = [
        _ENTRY.pack(
            s.producer_id,
            s.producer_epoch,
            s.last_sequence,
            s.last_offset,
            s.last_offset_delta,
            s.last_timestamp,
            s.coordinator_epoch,
            s.current_txn_first_offset,
        )
        for s in states
    ]
    body = struct.pack(">i", len(rows)) + b"".join(rows)
    return struct.pack(">hI", _VERSION, google_crc32c.value(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerState]:
    """The producers in a snapshot file, each with its last batch. Raises CorruptSnapshotError."""
    if len(data) < _HEAD.size:
        raise CorruptSnapshotError(f"Snapshot of {len(data)} bytes is shorter than its header")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshotError(f"Snapshot contained an unknown file version {version}")
    computed = google_crc32c.value(data[_CRC_END:])
    if crc != computed:
        raise CorruptSnapshotError(
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. Computed crc: {computed}"
        )
    if count < 0 or len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"Snapshot of {len(data)} bytes cannot hold {count} entries")
    states = []
    for row in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = (
            row
        )
        state = ProducerState(producer_id, epoch, coordinator_epoch, timestamp, max(first_offset, -1))
        if last_offset >= 0:
            state.batches.append(BatchMetadata(last_sequence, last_offset, delta, timestamp))
        states.append(state)
    return states


class ProducerSnapshots:
    """The snapshot files of one log."""

    __slots__ = ("directory", "sizes")

    def __init__(self, directory: str, sizes: dict[int, int]) -> None:
        self.directory = directory
        self.sizes = sizes
        """The file sizes by offset."""

    def path(self, offset: int) -> str:
        return os.path.join(self.directory, file_stem(offset) + SNAPSHOT_SUFFIX)

    def remove(self, condition: Callable[[int], bool]) -> None:
        """Removes the snapshots whose offset fulfils a condition. Raises OSError."""
        for path in self.forget(condition):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def forget(self, condition: Callable[[int], bool]) -> list[str]:
        """The paths of the snapshots whose offset fulfils a condition, which the caller removes."""
        offsets = [offset for offset in self.sizes if condition(offset)]
        for offset in offsets:
            del self.sizes[offset]
        return [self.path(offset) for offset in offsets]

    def remove_strays(self, segment_bases: Sequence[int]) -> None:
        """Removes snapshots before the last segment at offsets where no segment begins. Raises OSError."""
        bases, last = set(segment_bases), segment_bases[-1]
        self.remove(lambda offset: offset < last and offset not in bases)

    def load_latest(self, states: ProducerStates, at_most: int, above: int, now_ms: int) -> int | None:
        """Loads the newest readable snapshot with an offset in (above, at_most] into empty `states`.
        Returns its offset, None without one. Raises OSError."""
        for offset in sorted(self.sizes, reverse=True):
            if not above < offset <= at_most:
                continue
            if self.sizes[offset] == _EMPTY_FILE_BYTES:
                return offset
            try:
                with open(self.path(offset), "rb") as file:
                    entries = decode_snapshot(file.read())
            except (CorruptSnapshotError, FileNotFoundError) as e:
                logger.warning("Failed to load producer snapshot from %s: %s", self.path(offset), e)
                self.remove(lambda candidate, bad=offset: candidate == bad)  # type: ignore[misc]
                continue
            states.load(entries, now_ms)
            return offset
        return None

    def take(self, states: ProducerStates) -> str | None:
        """Writes a snapshot of `states` at their end offset, without fsync. Returns its path, None if
        there is one already. Raises OSError."""
        offset = states.map_end_offset
        if offset in self.sizes:
            return None
        data = encode_snapshot(states.producers.values())
        path = self.path(offset)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(fd, [data], 0)
        finally:
            os.close(fd)
        self.sizes[offset] = len(data)
        return path
