"""The value of `cordoned.log.dirs` (KIP-1066): log directories that get no new replicas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from quorate.config.definitions import ConfigError

CORDONED_LOG_DIRS = "cordoned.log.dirs"
ALL = "*"


def cordoned_entries(text: str) -> list[str]:
    """The entries of the value."""
    return [entry for part in text.split(",") if (entry := part.strip())]


def parse_cordoned_dirs(text: str, log_dirs: Sequence[Path]) -> tuple[Path, ...]:
    """The cordoned directories: some of `log_dirs`, or all of them for `*`. Raises ConfigError for another
    path, and for `*` beside other entries."""
    entries = cordoned_entries(text)
    if ALL in entries:
        if len(entries) > 1:
            raise ConfigError(
                CORDONED_LOG_DIRS, text, f"it must not contain other values beside {ALL}, which means all"
            )
        return tuple(log_dirs)
    unknown = [entry for entry in entries if Path(entry) not in log_dirs]
    if unknown:
        raise ConfigError(
            CORDONED_LOG_DIRS,
            text,
            "all entries must be present in log.dirs or log.dir. Missing entries: " + ", ".join(unknown),
        )
    return tuple(Path(entry) for entry in entries)
