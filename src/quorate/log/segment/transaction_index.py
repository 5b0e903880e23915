"""`.txnindex`: the aborted transactions whose markers are in a segment, by ascending last offset (KIP-98).

An entry has 34 bytes: int16 version 0, then int64 producer id, first offset, last offset, and the last
stable offset when the marker was appended. The file is created with its first entry.
"""

from __future__ import annotations

import os
import struct

from quorate.dataclass import dataclass
from quorate.log.errors import CorruptIndexError
from quorate.log.files import OpenFiles, write_all

_ENTRY = struct.Struct(">hqqqq")


@dataclass(slots=True, frozen=True)
class AbortedTransaction:
    """An entry of the index (Kafka's AbortedTxn)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The entries of one segment, in memory and in the file."""

    __slots__ = ("_entries", "base_offset", "path")

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._entries: list[AbortedTransaction] = []

    def load(self, files: OpenFiles) -> None:
        """Reads and checks the file. Raises CorruptIndexError naming the file and the entry, OSError."""
        fd = files.get(self.path).fileno()
        size = os.fstat(fd).st_size
        data = os.pread(fd, size, 0) if size else b""
        if len(data) % _ENTRY.size:
            raise CorruptIndexError(
                f"Transaction index {self.path} has {len(data)} bytes, not a multiple of {_ENTRY.size}"
            )
        entries: list[AbortedTransaction] = []
        for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data):
            if version != 0:
                raise CorruptIndexError(
                    f"Unexpected aborted transaction version {version} in {self.path}, expected 0"
                )
            if last < self.base_offset or first > last or (entries and last <= entries[-1].last_offset):
                raise CorruptIndexError(
                    f"Last offset {last} of entry {len(entries)} of {self.path} is out of order"
                )
            if stable > last + 1:
                raise CorruptIndexError(
                    f"Last stable offset {stable} of entry {len(entries)} of {self.path} passes its marker"
                )
            entries.append(AbortedTransaction(producer_id, first, last, stable))
        lowest = 1 << 63
        for entry in reversed(entries):
            if entry.last_stable_offset > lowest:
                raise CorruptIndexError(
                    f"Last stable offset {entry.last_stable_offset} in {self.path} passes an open transaction"
                )
            lowest = min(lowest, entry.first_offset)
        self._entries = entries

    @property
    def entries(self) -> list[AbortedTransaction]:
        return self._entries

    def append(self, entry: AbortedTransaction, files: OpenFiles) -> None:
        """Writes an entry. Raises OSError."""
        data = _ENTRY.pack(
            0, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset
        )
        write_all(files.get(self.path, create=True).fileno(), [data], len(self._entries) * _ENTRY.size)
        self._entries.append(entry)

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that overlap [fetch_offset, upper_bound), and whether later segments have no
        more of them."""
        found = []
        for entry in self._entries:
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def truncate_to(self, offset: int, files: OpenFiles) -> None:
        """Removes transactions whose last offset is at or above `offset`. Raises OSError."""
        keep = 0
        while keep < len(self._entries) and self._entries[keep].last_offset < offset:
            keep += 1
        if keep < len(self._entries):
            del self._entries[keep:]
            os.ftruncate(files.get(self.path, create=True).fileno(), keep * _ENTRY.size)

    def __len__(self) -> int:
        return len(self._entries)
