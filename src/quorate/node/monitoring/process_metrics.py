"""The metrics of the process, with the names that Prometheus' own clients give them, and the bytes
that it reads and writes (`LinuxIoMetricsCollector` in Kafka). They are read from /proc; a system
without it has none.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from quorate.metrics import Family, Kind, gauge

PROC = Path("/proc")
PIECE = 1_000
"""Open files that are counted without a pause."""

_IO = {
    "rchar": "linux-disk-rchar",
    "wchar": "linux-disk-wchar",
    "syscr": "linux-disk-syscr",
    "syscw": "linux-disk-syscw",
    "read_bytes": "linux-disk-read-bytes",
    "write_bytes": "linux-disk-write-bytes",
    "cancelled_write_bytes": "linux-disk-cancelled-write-bytes",
}
_IO_TEXTS = {
    "rchar": "Bytes that the process has read, from disks, the page cache and sockets.",
    "wchar": "Bytes that the process has written, to files and sockets.",
    "syscr": "Read calls.",
    "syscw": "Write calls.",
    "read_bytes": "Bytes that disks have read for the process.",
    "write_bytes": "Bytes that the process has given to disks.",
    "cancelled_write_bytes": "Bytes whose file was removed before a disk had to write them.",
}


def process_families(proc: Path = PROC) -> Iterator[Family | None]:
    """Yields the families, and None where the work may be interrupted."""
    own = proc / "self"
    try:
        # The name of the command, in brackets, may contain spaces.
        fields = (own / "stat").read_text().rpartition(")")[2].split()
        boot_s = next(
            int(line.split()[1])
            for line in (proc / "stat").read_text().splitlines()
            if line.startswith("btime ")
        )
        entries = os.scandir(own / "fd")
    except (OSError, StopIteration):
        return
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    yield Family(
        "process_cpu_seconds_total",
        Kind.COUNTER,
        "CPU time of the process, in seconds.",
        [("", (int(fields[11]) + int(fields[12])) / ticks)],
    )
    yield _gauge("process_start_time_seconds", "When the process started.", boot_s + int(fields[19]) / ticks)
    yield _gauge("process_virtual_memory_bytes", "Virtual memory of the process.", int(fields[20]))
    yield _gauge("process_resident_memory_bytes", "Resident memory of the process.", int(fields[21]) * page)
    count = 0
    with entries:
        for count, _ in enumerate(entries, 1):
            if count % PIECE == 0:
                yield None
    yield _gauge("process_open_fds", "Open files and sockets.", count)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield _gauge("process_max_fds", "The limit of open files and sockets.", limit)
    yield from _io_families(own)


def _io_families(own: Path) -> Iterator[Family]:
    try:
        lines = (own / "io").read_text().splitlines()
    except OSError:  # a container may forbid it
        return
    for line in lines:
        name, _, value = line.partition(": ")
        if name in _IO:
            yield gauge(f"server.KafkaServer.{_IO[name]}", _IO_TEXTS[name], int(value))


def _gauge(name: str, text: str, value: float) -> Family:
    return Family(name, Kind.GAUGE, text, [("", value)])
