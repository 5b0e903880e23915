"""Measures the pauses of a node's event loop: asks one of its listeners for ApiVersions again and
again, which the loop answers at once unless it does something else.

The probe is a process of its own, so that the test's other clients do not delay it. From the time of each
answer it takes away for how long the loop's thread and the probe were ready and had no CPU, as
`/proc/PID/task/TID/schedstat` counts it: on a busy machine that is most of the time. The longest such wait of
another thread of the node is taken away as well, because the loop waits for a thread that has the
interpreter's lock and no CPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

INTERVAL_S = 0.002
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


@dataclass
class LoopProbe:
    """The results, at the end of `probing`."""

    longest_s: float = 0.0
    """The longest pause of the event loop, without the time in which it waited for a CPU."""
    answers: int = 0
    slowest: list[tuple[float, float]] = field(default_factory=list)
    """The longest pauses: (seconds after the start, milliseconds)."""


@contextlib.contextmanager
def probing(port: int, pid: int) -> Iterator[LoopProbe]:
    """Probes the node with this process id at 127.0.0.1:port while the body runs, and until one answer after
    it."""
    probe = LoopProbe()
    process = subprocess.Popen(
        [sys.executable, __file__, str(port), str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "started\n"
        yield probe
        out, _ = process.communicate("", 90)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    probe.answers, slowest = json.loads(out)
    probe.slowest = [(at, milliseconds) for milliseconds, at in slowest]
    probe.longest_s = probe.slowest[0][1] / 1000
    assert probe.answers > 1


class _CpuWaits:
    """The times for which the threads of a process were ready and had no CPU. The first thread is that of the
    event loop."""

    def __init__(self, pid: int) -> None:
        self._tasks = Path(f"/proc/{pid}/task")
        self._loop = str(pid)
        self._files: dict[str, int] = {}

    def read(self) -> dict[str, int]:
        """Nanoseconds since the start of each thread."""
        for thread in self._tasks.iterdir():
            if thread.name not in self._files:
                with contextlib.suppress(OSError):  # the thread has ended
                    self._files[thread.name] = os.open(thread / "schedstat", os.O_RDONLY)
        waits: dict[str, int] = {}
        for thread_id, fd in list(self._files.items()):
            try:
                waits[thread_id] = int(os.pread(fd, 100, 0).split()[1])
            except OSError:  # the thread has ended
                os.close(self._files.pop(thread_id))
        return waits

    def since_s(self, before: dict[str, int]) -> float:
        """The wait of the loop's thread, and the longest one of another thread, in seconds."""
        waits = {thread: total - before.get(thread, 0) for thread, total in self.read().items()}
        return (waits.pop(self._loop, 0) + max(waits.values(), default=0)) / 1e9


def _main(port: int, pid: int) -> None:
    processes = [_CpuWaits(pid), _CpuWaits(os.getpid())]
    answers = 0
    slowest: list[tuple[float, float]] = []
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.settimeout(60)
        stream = connection.makefile("rb")
        print("started", flush=True)
        started = time.monotonic()
        last = False
        while True:
            before = [process.read() for process in processes]
            asked = time.monotonic()
            connection.sendall(_API_VERSIONS)
            (size,) = struct.unpack(">i", stream.read(4))
            stream.read(size)
            took = time.monotonic() - asked
            if took > 0.01:
                took -= sum(map(_CpuWaits.since_s, processes, before))
            answers += 1
            slowest = sorted([*slowest, (round(took * 1000, 1), round(asked - started, 3))])[-8:]
            if last:
                break
            last = bool(select.select([sys.stdin], [], [], INTERVAL_S)[0])
    print(json.dumps((answers, slowest[::-1])))


if __name__ == "__main__":
    _main(*map(int, sys.argv[1:]))
