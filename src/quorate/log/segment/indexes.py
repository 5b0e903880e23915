"""Sparse indexes of a segment: offset to file position (`.index`) and timestamp to offset (`.timeindex`).

====== =================================== ==================================================================
file   entry, big-endian                   meaning
====== =================================== ==================================================================
.index int32 relative offset, int32 byte   last offset of a batch, where that batch starts
.time  int64 timestamp, int32 rel. offset  greatest timestamp so far, last offset of the batch that has it
====== =================================== ==================================================================

There is one entry for every `index.interval.bytes` of log. Entries are kept in arrays and are written in
groups, at the latest when the segment is rolled or closed. Recovery rebuilds the indexes of segments that
were not flushed, so a file may lack entries. Files have exactly the size of their entries. Java
preallocates 10 MiB and trims files on close; it enlarges these files when it opens them.
"""

from __future__ import annotations

import operator
import os
import struct
import sys
from array import array
from bisect import bisect_right

from quorate.log.errors import CorruptIndexError
from quorate.log.files import OpenFiles, write_all

MAX_RELATIVE_OFFSET = 0x7FFFFFFF
_SAVE_EVERY = 64  # entries written at once: those of a quarter of a MiB of log or more
_TIME_ENTRY = struct.Struct(">qi")
_SWAP = sys.byteorder == "little"


class _IndexFile:
    """The file of an index: new entries are appended, or the file is rewritten completely."""

    __slots__ = ("_rewrite", "_saved", "base_offset", "max_entries", "path")

    ENTRY_SIZE = 8

    def __init__(self, path: str, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.ENTRY_SIZE
        self._saved = 0
        self._rewrite = False

    def _load(self, files: OpenFiles) -> bytes:
        fd = files.get(self.path).fileno()
        size = os.fstat(fd).st_size
        if size % self.ENTRY_SIZE or size > max(self.max_entries * self.ENTRY_SIZE, 64 << 20):
            raise CorruptIndexError(
                f"Index file {self.path} is corrupt: {size} bytes are not a multiple of {self.ENTRY_SIZE}"
            )
        data = os.pread(fd, size, 0)
        if len(data) != size:
            raise CorruptIndexError(f"Index file {self.path} was truncated while it was read")
        self._saved = size // self.ENTRY_SIZE
        return data

    def _encode(self, first: int) -> bytes:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def mark_rewrite(self) -> None:
        """Lets the next save replace the complete content of the file."""
        self._rewrite = True
        self._saved = 0

    @property
    def unsaved(self) -> bool:
        return self._rewrite or len(self) > self._saved

    def save(self, files: OpenFiles) -> None:
        """Makes the file equal to the entries in memory. Raises OSError."""
        count = len(self)
        if self._rewrite or count < self._saved:
            fd = files.get(self.path, create=True).fileno()
            if self._rewrite:
                self._saved = 0
            os.ftruncate(fd, min(self._saved, count) * self.ENTRY_SIZE)
            self._saved = min(self._saved, count)
            self._rewrite = False
        if count > self._saved:
            fd = files.get(self.path, create=True).fileno()
            write_all(fd, [self._encode(self._saved)], self._saved * self.ENTRY_SIZE)
            self._saved = count

    def save_if_many(self, files: OpenFiles) -> None:
        """Saves if `_SAVE_EVERY` entries are unsaved. Raises OSError."""
        if len(self) - self._saved >= _SAVE_EVERY:
            self.save(files)

    @property
    def size_bytes(self) -> int:
        return len(self) * self.ENTRY_SIZE


class OffsetIndex(_IndexFile):
    """Finds the file position from which to read for an offset."""

    __slots__ = ("_offsets", "_positions")

    ENTRY_SIZE = 8

    def __init__(self, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(path, base_offset, max_bytes)
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    def load(self, files: OpenFiles, log_size: int) -> None:
        """Reads the file. Raises CorruptIndexError if entries do not ascend or point after the log,
        OSError."""
        both = array("i", self._load(files))
        if _SWAP:
            both.byteswap()
        offsets, positions = both[0::2], both[1::2]
        if offsets and (
            offsets[0] < 0
            or positions[0] < 0
            or positions[-1] >= log_size
            or not all(map(operator.lt, offsets, offsets[1:]))
            or not all(map(operator.lt, positions, positions[1:]))
        ):
            raise CorruptIndexError(
                f"Index file {self.path} is corrupt: its entries do not ascend within the segment"
            )
        self._offsets, self._positions = offsets, positions

    def _encode(self, first: int) -> bytes:
        both = array("i", bytes(8 * (len(self._offsets) - first)))
        both[0::2] = self._offsets[first:]
        both[1::2] = self._positions[first:]
        if _SWAP:
            both.byteswap()
        return both.tobytes()

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self.max_entries

    def append(self, offset: int, position: int) -> None:
        """Adds an entry. Raises ValueError if the offset is not above the last one."""
        relative = offset - self.base_offset
        if self._offsets and relative <= self._offsets[-1]:
            raise ValueError(
                f"Attempt to append offset {offset}, no larger than the last one, to {self.path}"
            )
        self._offsets.append(relative)
        self._positions.append(position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """(offset, position) of the greatest entry not above `offset`; (base offset, 0) without one."""
        at = bisect_right(self._offsets, min(offset - self.base_offset, MAX_RELATIVE_OFFSET)) - 1
        if at < 0:
            return self.base_offset, 0
        return self.base_offset + self._offsets[at], self._positions[at]

    def upper_bound_offset(self, position: int) -> int | None:
        """The offset of the first entry at or after a file position."""
        at = bisect_right(self._positions, position - 1)
        return self.base_offset + self._offsets[at] if at < len(self._offsets) else None

    def lookup_position(self, position: int) -> tuple[int, int]:
        """(offset, position) of the last entry at or before a file position; (base offset, 0) without
        one."""
        at = bisect_right(self._positions, position) - 1
        if at < 0:
            return self.base_offset, 0
        return self.base_offset + self._offsets[at], self._positions[at]

    def last(self) -> tuple[int, int]:
        if not self._offsets:
            return self.base_offset, 0
        return self.base_offset + self._offsets[-1], self._positions[-1]

    def truncate_to(self, offset: int) -> None:
        """Removes entries at or above `offset`."""
        keep = bisect_right(self._offsets, offset - self.base_offset - 1)
        del self._offsets[keep:], self._positions[keep:]

    def clear(self) -> None:
        del self._offsets[:], self._positions[:]


class TimeIndex(_IndexFile):
    """Finds an offset before which all records have smaller timestamps than the one searched for."""

    __slots__ = ("_offsets", "_timestamps")

    ENTRY_SIZE = 12

    def __init__(self, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(path, base_offset, max_bytes)
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    def load(self, files: OpenFiles) -> None:
        """Raises CorruptIndexError when timestamps or offsets do not ascend, OSError."""
        timestamps, offsets = array("q"), array("i")
        for timestamp, offset in _TIME_ENTRY.iter_unpack(self._load(files)):
            timestamps.append(timestamp)
            offsets.append(offset)
        if offsets and (
            offsets[0] < 0
            or timestamps[0] < 0
            or not all(map(operator.lt, timestamps, timestamps[1:]))
            or not all(map(operator.le, offsets, offsets[1:]))
        ):
            raise CorruptIndexError(f"Time index file {self.path} is corrupt: its entries do not ascend")
        self._timestamps, self._offsets = timestamps, offsets

    def _encode(self, first: int) -> bytes:
        pack = _TIME_ENTRY.pack
        return b"".join(map(pack, self._timestamps[first:], self._offsets[first:]))

    @property
    def is_full(self) -> bool:
        return len(self._timestamps) >= self.max_entries - 1  # the last place is for the entry added on roll

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry if the timestamp is above the last one."""
        if timestamp > (self._timestamps[-1] if self._timestamps else -1):
            relative = offset - self.base_offset
            if self._offsets and relative < self._offsets[-1]:
                raise ValueError(f"Attempt to append offset {offset}, below the last one, to {self.path}")
            self._timestamps.append(timestamp)
            self._offsets.append(relative)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """(timestamp, offset) of the greatest entry not above `timestamp`; (-1, base offset) without
        one."""
        at = bisect_right(self._timestamps, timestamp) - 1
        return (
            (-1, self.base_offset) if at < 0 else (self._timestamps[at], self.base_offset + self._offsets[at])
        )

    def last(self) -> tuple[int, int]:
        if not self._timestamps:
            return -1, self.base_offset
        return self._timestamps[-1], self.base_offset + self._offsets[-1]

    def truncate_to(self, offset: int) -> None:
        """Removes entries of offsets at or above `offset`."""
        keep = bisect_right(self._offsets, offset - self.base_offset - 1)
        del self._timestamps[keep:], self._offsets[keep:]

    def clear(self) -> None:
        del self._timestamps[:], self._offsets[:]
