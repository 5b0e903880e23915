"""A disk that is slow on demand, for real nodes, and a client that notices when a node's event loop
waits for it."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class SlowDisk:
    """Delays the fsyncs, and the reads that miss the page cache, of nodes that are started with `env`."""

    def __init__(self, directory: Path) -> None:
        library = directory / "slow_disk.so"
        source = Path(__file__).with_suffix(".c")
        try:
            subprocess.run(
                ["gcc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"],
                check=True,
                capture_output=True,
            )
        except FileNotFoundError:
            pytest.skip("gcc is missing: it builds the library that makes a disk slow")
        self._delays = directory / "delays"
        self._broken = directory / "broken"
        self.set()
        self.env = {
            "LD_PRELOAD": str(library),
            "SLOW_DISK": str(self._delays),
            "BROKEN_DISK": str(self._broken),
        }

    def set(self, *, fsync_ms: int = 0, read_ms: int = 0) -> None:
        """From now on; also for nodes that run already."""
        temporary = self._delays.with_suffix(".new")
        temporary.write_text(f"{fsync_ms} {read_ms}\n")
        temporary.replace(self._delays)

    def fail_fsyncs(self, directory: Path) -> None:
        """From now on, of all files below it."""
        temporary = self._broken.with_suffix(".new")
        temporary.write_text(str(directory))
        temporary.replace(self._broken)


def drop_from_page_cache(directory: Path) -> None:
    """Whoever reads the files below `directory` next has to wait for the disk."""
    for path in directory.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


class LoopProbe:
    """Asks a listener for its ApiVersions again and again; `longest_s` is how long an answer took at most."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.answers = 0


@contextlib.contextmanager
def probing(port: int) -> Iterator[LoopProbe]:
    """Probes 127.0.0.1:port from a thread of its own while the body runs, and until one probe after it."""
    probe = LoopProbe()
    stopping = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with socket.create_connection(("127.0.0.1", port), 30) as connection:
                connection.settimeout(60)
                stream = connection.makefile("rb")
                while True:
                    last = stopping.is_set()
                    asked = time.monotonic()
                    connection.sendall(_API_VERSIONS)
                    (size,) = struct.unpack(">i", stream.read(4))
                    stream.read(size)
                    probe.longest_s = max(probe.longest_s, time.monotonic() - asked)
                    probe.answers += 1
                    if last:
                        return
                    stopping.wait(0.002)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield probe
    finally:
        stopping.set()
        thread.join(90)
    assert not failed and probe.answers > 1, failed
