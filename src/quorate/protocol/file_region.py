"""A range of a file that is sent from disk to socket without a copy in Python."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Protocol

from quorate.dataclass import dataclass

READ_AHEAD_ROUNDS = 8
"""Rounds of reading pages in a thread: an index leads to a batch header, which leads to the next one.
Pages that are still missing then are read in the event loop."""


class HasFileno(Protocol):
    """An open file for `os.sendfile`. It must stay open until the response is written."""

    def fileno(self) -> int: ...


class ReadAhead(Protocol):
    """Work on the disk that a thread does before the event loop reads."""

    def read(self) -> bytes:
        """Does the work. Raises OSError, EOFError."""
        ...


def touch(regions: Iterable[ReadAhead]) -> None:
    """Loads regions into the page cache. Called in a thread. Raises OSError, EOFError."""
    for region in regions:
        region.read()


@dataclass(slots=True, frozen=True)
class FileRegion:
    """`length` bytes from `position` of the file behind `fd_owner`."""

    fd_owner: HasFileno
    position: int
    length: int

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """Reads the bytes, for TLS and tests, which cannot use sendfile.

        Raises OSError, and EOFError if the file is too short.
        """
        data = os.pread(self.fd_owner.fileno(), self.length, self.position)
        while len(data) < self.length:  # pread may return less than requested, at most 2 GiB at once
            more = os.pread(self.fd_owner.fileno(), self.length - len(data), self.position + len(data))
            if not more:
                raise EOFError(f"file ends {self.length - len(data)} bytes before the end of its region")
            data += more
        return data
