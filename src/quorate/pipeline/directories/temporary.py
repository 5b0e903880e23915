"""Names of temporary files, which have parts of files that are not on a local disk.

A process that is killed leaves its files. A later process on the machine deletes them, a day after
the last write.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"quorate-(\d+)-.*")
_LEFT_S: Final = 86_400.0
"""A file that was not written to for so long, and whose process does not exist, is left over.
Processes of other containers may share the directory: that theirs is not seen here does not say
that it has ended."""


def temporary_prefix() -> str:
    """What the names of this process's temporary files begin with."""
    return f"quorate-{os.getpid()}-"


def delete_left_over() -> None:
    """Deletes the temporary files of processes that were killed. Each process does it once."""
    _delete_left_over(tempfile.gettempdir())


@cache
def _delete_left_over(folder: str) -> None:
    oldest = time.time() - _LEFT_S
    for path in Path(folder).glob("quorate-*"):
        named = _NAME.fullmatch(path.name)
        with suppress(OSError):  # another process deletes it, or it is another user's
            if named and path.is_file() and path.stat().st_mtime < oldest and not _is_running(int(named[1])):
                path.unlink()


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
