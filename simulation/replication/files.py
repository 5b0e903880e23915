"""The simulated disks of brokers: what `quorate.log` uses beyond the storage of Raft, and the scheduler of
slow disk work on virtual time."""

from __future__ import annotations

import asyncio
import errno
import heapq
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from quorate.log.scheduler import BackgroundScheduler
from simulation.nodes.disk import MOUNT, Directory, File
from simulation.nodes.filesystem import SimulatedFilesystem


class BrokerFilesystem(SimulatedFilesystem):
    """Serves `os.truncate` and `os.rmdir` too."""

    def truncate(self, path: Any, length: int) -> None:
        disk, parts = self._at(path)
        node = disk.find(parts)
        if not isinstance(node, File):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", os.fspath(path))
        disk.before_change()
        if len(node.data) < length:
            node.write(length, b"")
        else:
            node.truncate(length)

    def rmdir(self, path: Any, **_: Any) -> None:
        disk, parts = self._at(path)
        node = disk.find(parts)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", os.fspath(path))
        if node.names:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", os.fspath(path))
        disk.before_change()
        disk.directory(parts[:-1]).change(**{parts[-1]: None})

    @contextmanager
    def installed(self) -> Iterator[None]:
        with super().installed(), ExitStack() as stack:
            for name in ("truncate", "rmdir"):
                stack.enter_context(mock.patch.object(os, name, _on_mount(name, getattr(self, name))))
            yield


def _on_mount(name: str, ours: Callable[..., Any]) -> Callable[..., Any]:
    real = getattr(os, name)

    def call(path: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(path, int) and os.fspath(path).startswith(MOUNT):
            return ours(path, *args, **options)
        return real(path, *args, **options)

    return call


def remove_tree(path: Any, *_: Any, **__: Any) -> None:
    """`shutil.rmtree` for simulated paths."""
    with os.scandir(path) as entries:
        found = [(Path(entry.path), entry.is_dir()) for entry in entries]
    for inner, is_directory in found:
        if is_directory:
            remove_tree(inner)
        else:
            inner.unlink()
    Path(path).rmdir()


class VirtualScheduler(BackgroundScheduler):
    """Runs the jobs of a log manager in the event loop, one at a time and a little later, as a thread
    would."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def _start(self) -> None:
        if self._jobs:
            wait_s = self._loop.executor_delay()  # type: ignore[attr-defined]
        elif self._removals:
            wait_s = max(self._removals[0][0] - time.monotonic(), 0.0)
        else:
            return
        if self._timer is not None:
            if self._timer.when() <= self._loop.time() + wait_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(wait_s, self._step)

    def _step(self) -> None:
        self._timer = None
        if self._jobs:
            self._run_job(*self._jobs.popleft())
        elif self._removal_is_due():
            self._remove(heapq.heappop(self._removals)[1])
        self._start()

    def wait_idle(self) -> None:
        while self._jobs:
            self._run_job(*self._jobs.popleft())

    def close(self) -> None:
        self.wait_idle()
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
