"""Repeats the beginning of a generated log, for logs of more records than can be simulated.

A cycle ends with the deletion of all topics. Its repetition has the same batches with later
offsets, epochs and times, and with other ids: topics of the same names are created anew. So it is
valid after the cycle before it, too.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from quorate.dataclass import dataclass
from quorate.pipeline.generator.files import LogFiles
from quorate.records.batch import compute_crc

_AFTER_LENGTH: Final = 12
"""The bytes of a batch that its length does not count: offset and length."""
_EPOCH: Final = 12
_CRC: Final = 17
_TIMES: Final = (27, 35)
_HALF_ID: Final = 8
_APPEND_BYTES: Final = 1 << 20

Bytes: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Cycle:
    """The batches of a log from its beginning on."""

    data: Bytes
    begins: npt.NDArray[np.int64]
    """Where each batch begins, and the end of the last one."""
    ids: npt.NDArray[np.int64]
    """Where there are ids."""
    records: int
    epochs: int
    first_ms: int
    last_ms: int

    @classmethod
    def of(
        cls, folder: Path, ids: Collection[bytes], records: int, epochs: int, first_ms: int, last_ms: int
    ) -> Cycle:
        """The cycle that the segments in a directory have."""
        data = np.concatenate([np.fromfile(path, np.uint8) for path in sorted(folder.glob("*.log"))])
        begins = [0]
        while begins[-1] < len(data):
            [length] = struct.unpack_from(">i", data.data, begins[-1] + 8)
            begins.append(begins[-1] + _AFTER_LENGTH + length)
        return cls(data, np.array(begins), _places(data, ids), records, epochs, first_ms, last_ms)

    def repeat(self, files: LogFiles, times: int, pause_ms: int) -> None:
        """Appends the cycle again and again. It begins `pause_ms` after the end of the one before it."""
        for number in range(1, times + 1):
            self._append(files, number, number * (self.last_ms - self.first_ms + pause_ms))

    def _append(self, files: LogFiles, number: int, later_ms: int) -> None:
        data = self.data.copy()
        begins = self.begins[:-1]
        mask = np.frombuffer(struct.pack(">Q", number), np.uint8)
        data[self.ids[:, None] + np.arange(_HALF_ID)] ^= mask
        _add(data, begins, ">i8", number * self.records)
        _add(data, begins + _EPOCH, ">i4", number * self.epochs)
        for place in _TIMES:
            _add(data, begins + place, ">i8", later_ms)
        view = data.data
        sums = [
            compute_crc(view[begin:end])
            for begin, end in zip(begins.tolist(), self.begins[1:].tolist(), strict=True)
        ]
        crc = np.array(sums, ">u4").view(np.uint8).reshape(-1, 4)
        data[(begins + _CRC)[:, None] + np.arange(4)] = crc
        at = 0
        while at < len(begins):
            after = int(np.searchsorted(self.begins, self.begins[at] + _APPEND_BYTES, "right")) - 1
            after = max(at + 1, after)
            files.append_batches(view[self.begins[at] : self.begins[after]], self.last_ms + later_ms)
            at = after
        files.continue_epoch((number + 1) * self.epochs)


def _places(data: Bytes, ids: Collection[bytes]) -> npt.NDArray[np.int64]:
    """Where some ids are in the data."""
    known = np.frombuffer(b"".join(ids), np.uint64).reshape(-1, 2)
    found = []
    for shift in range(_HALF_ID):
        size = (len(data) - shift) // _HALF_ID * _HALF_ID
        words = data[shift : shift + size].view(np.uint64)
        first = np.flatnonzero(np.isin(words[:-1], known[:, 0]))
        found.append(first[np.isin(words[first + 1], known[:, 1])] * _HALF_ID + shift)
    return np.sort(np.concatenate(found))


def _add(data: Bytes, places: npt.NDArray[np.int64], kind: str, more: int) -> None:
    """Adds to the numbers at some places."""
    size = np.dtype(kind).itemsize
    cells = places[:, None] + np.arange(size)
    numbers = np.ascontiguousarray(data[cells]).view(kind)[:, 0] + more
    data[cells] = numbers.astype(kind).view(np.uint8).reshape(-1, size)
