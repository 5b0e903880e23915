"""What a log asks to be done beside its own work: making rolled segments durable, removing files later.

`Inline` does it at once, in the caller's thread; the log manager has a thread for it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Protocol

from quorate.log.files import OpenFile, fsync_directory


class Housekeeping(Protocol):
    def sync_later(self, files: Sequence[OpenFile], directory: str, done: Callable[[], None] | None) -> None:
        """Makes files and their directory durable, then calls `done` (in the log's own thread)."""

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Removes files that were renamed out of the way."""


class Inline:
    """Everything at once."""

    def sync_later(self, files: Sequence[OpenFile], directory: str, done: Callable[[], None] | None) -> None:
        for file in files:
            os.fsync(file.fileno())
        fsync_directory(directory)
        if done is not None:
            done()

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
