"""Lists and reads files, on local disks and in any file system of Hadoop.

A path without a scheme, or with `file:`, is local. All others (`hdfs://`, `s3a://`, `webhdfs://`,
...) are read through Hadoop's classes, see `quorate.pipeline.directories.hadoop`.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeAlias

from quorate.dataclass import dataclass
from quorate.lazy import lazy_module

if TYPE_CHECKING:
    from quorate.pipeline.directories import hadoop
else:  # starts a Java process
    hadoop = lazy_module("quorate.pipeline.directories.hadoop")

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or directory, as its directory lists it."""

    path: str
    is_directory: bool
    size_bytes: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


Reader: TypeAlias = Callable[[int, int], bytes]
"""Reads from a position on up to a number of bytes, or fewer at the end of the file."""


@dataclass(frozen=True, slots=True)
class Files:
    """The file systems of this machine and of Hadoop."""

    hadoop: Mapping[str, str] = field(default_factory=dict)
    """Properties of Hadoop's configuration, on top of its files."""

    def entries(self, directory: str) -> list[Entry]:
        """Lists a directory. Raises FileNotFoundError if there is none, and OSError."""
        if is_remote(directory):
            return [Entry(*found) for found in hadoop.entries(directory, self.hadoop)]
        found = []
        with os.scandir(local_path(directory)) as listed:
            for entry in listed:
                try:
                    found.append(Entry(entry.path, entry.is_dir(), entry.stat().st_size))
                except FileNotFoundError:
                    continue  # renamed for deletion since it was listed
        return found

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory of this name."""
        if is_remote(path):
            return hadoop.is_directory(path, self.hadoop)
        return Path(local_path(path)).is_dir()

    def read(self, path: str) -> bytes:
        """Reads a small file. Raises OSError."""
        with self.open(path) as reader:
            return reader(0, 1 << 24)

    def open(self, path: str) -> AbstractContextManager[Reader]:
        """Opens a file. Raises OSError."""
        return hadoop.open_file(path, self.hadoop) if is_remote(path) else _open_local(path)

    def view(self, path: str, start: int, end: int) -> memoryview:
        """The bytes of a file up to `end`, or to the end of the file if that is -1.

        Those before `start` may be zeros. A file that has been renamed for its deletion is still
        found. Raises OSError.
        """
        try:
            return self._view(path, start, end)
        except FileNotFoundError:
            return self._view(f"{path}.deleted", start, end)

    def _view(self, path: str, start: int, end: int) -> memoryview:
        if is_remote(path):
            with hadoop.fetched(path, start, end, self.hadoop) as fetched:
                return _mapped(fetched, end)
        with Path(local_path(path)).open("rb") as file:
            return _mapped(file, end)


LOCAL: Final = Files()


def is_remote(path: str) -> bool:
    """Whether a path is in a file system of Hadoop."""
    scheme = _SCHEME.match(path)
    return scheme is not None and scheme[1].lower() != "file"


def local_path(path: str) -> str:
    """The path without the scheme `file:`."""
    return path.removeprefix("file://").removeprefix("file:")


@contextmanager
def _open_local(path: str) -> Iterator[Reader]:
    with Path(local_path(path)).open("rb", buffering=0) as file:
        descriptor = file.fileno()
        yield lambda position, size: os.pread(descriptor, size, position)


def _mapped(file: IO[bytes], end: int) -> memoryview:
    """The bytes of a file up to `end`, in memory until the last view is gone.

    An empty file cannot be mapped.
    """
    size = file.seek(0, 2)
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    return memoryview(data)[: size if end < 0 else min(end, size)]
