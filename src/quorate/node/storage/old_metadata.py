"""The files that show that a node ran with a metadata directory."""

from __future__ import annotations

from pathlib import Path

from quorate.metadata import bootstrap
from quorate.protocol.metadata_partition import METADATA_DIRECTORY


def old_metadata_files(directory: Path) -> list[str]:
    """Names of the segments, snapshots and quorum-state in the metadata log of a directory, in order; none
    where there is no log. The files of an interrupted format do not count. Raises OSError."""
    try:
        names = sorted(path.name for path in (directory / METADATA_DIRECTORY).iterdir())
    except FileNotFoundError:
        return []
    found = [name for name in names if name.endswith((".log", ".checkpoint")) or name == "quorum-state"]
    return [] if found == [bootstrap.FIRST_SNAPSHOT_NAME] else found
