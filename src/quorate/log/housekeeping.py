"""What a log leaves to others beside its own work: making rolled segments durable, removing files later.

`Inline` does it at once, in the caller's thread; the log manager has a thread for it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Protocol

from quorate.log.files import OpenFile, fsync_directory


class Housekeeping(Protocol):
    def run_later(
        self, work: Callable[[], None], log_directory: str, done: Callable[[], None] | None = None
    ) -> None:
        """Runs `work` in order with all other work, possibly in another thread, then `done` in the
        log's own thread.

        An OSError of `work` fails the log directory, and `done` is not called.
        """

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Removes files that were renamed out of the way."""


class Inline:
    """Everything at once."""

    def run_later(
        self, work: Callable[[], None], log_directory: str, done: Callable[[], None] | None = None
    ) -> None:
        work()
        if done is not None:
            done()

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def sync_files(files: Sequence[OpenFile], directory: str) -> None:
    """Makes files and the names in their directory durable. Raises OSError; a directory that is gone
    needs nothing."""
    for file in files:
        os.fsync(file.fileno())
    with contextlib.suppress(FileNotFoundError):
        fsync_directory(directory)
