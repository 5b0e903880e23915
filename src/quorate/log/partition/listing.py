"""The files in a partition's directory, and the compactions and deletions that a stop has interrupted."""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import field

from quorate.dataclass import dataclass
from quorate.log.segment.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_SUFFIX,
    TXN_SUFFIX,
)
from quorate.records.batch import BATCH_OVERHEAD, parse_header
from quorate.records.errors import CorruptRecordError

logger = logging.getLogger(__name__)

_SWAP_SUFFIX, _CLEANED_SUFFIX = ".swap", ".cleaned"
_KRAFT_SNAPSHOT_DELETED = ".checkpoint.deleted"


@dataclass(slots=True)
class DirectoryListing:
    """The files of one partition directory."""

    logs: list[int] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    modified_ms: dict[int, int] = field(default_factory=dict)
    indexes: set[str] = field(default_factory=set)
    snapshots: dict[int, int] = field(default_factory=dict)  # offset -> size
    others: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)


def list_directory(directory: str) -> DirectoryListing:
    """Lists a partition's directory. Raises OSError, FileNotFoundError if it does not exist."""
    found = DirectoryListing()
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            found.names.add(name)
            stem, suffix = name[:20], name[20:]
            if stem.isdigit() and len(stem) == 20:
                if suffix == LOG_SUFFIX:
                    stat = entry.stat()
                    offset = int(stem)
                    found.logs.append(offset)
                    found.sizes[offset] = stat.st_size
                    found.modified_ms[offset] = stat.st_mtime_ns // 1_000_000
                    continue
                if suffix in (INDEX_SUFFIX, TIME_SUFFIX, TXN_SUFFIX):
                    found.indexes.add(name)
                    continue
                if suffix == SNAPSHOT_SUFFIX:
                    found.snapshots[int(stem)] = entry.stat().st_size
                    continue
            if name.endswith((DELETED_SUFFIX, _SWAP_SUFFIX, _CLEANED_SUFFIX)):
                found.others.append(name)
    found.logs.sort()
    return found


def complete_interrupted_swaps(directory: str, found: DirectoryListing) -> bool:
    """Finishes the deletions and compactions that the last stop has interrupted. Returns whether files
    have changed. Raises OSError."""
    if not found.others:
        return False
    cleaned = [name for name in found.others if name.endswith(_CLEANED_SUFFIX)]
    swaps = [name for name in found.others if name.endswith(_SWAP_SUFFIX)]
    lowest_cleaned = min((int(name[:20]) for name in cleaned if name[:20].isdigit()), default=None)
    for name in found.others:
        is_deleted = name.endswith(DELETED_SUFFIX) and not name.endswith(_KRAFT_SNAPSHOT_DELETED)
        unfinished = (
            name in swaps
            and lowest_cleaned is not None
            and name[:20].isdigit()
            and int(name[:20]) >= lowest_cleaned
        )
        if is_deleted or unfinished or name in cleaned:
            unlink(os.path.join(directory, name))
            if unfinished:
                swaps.remove(name)
    if not swaps:
        return True
    first, after = 1 << 63, -1
    for name in swaps:
        if name.endswith(LOG_SUFFIX + _SWAP_SUFFIX):
            base = int(name[:20])
            size = os.stat(os.path.join(directory, name)).st_size
            end = _swap_end(os.path.join(directory, name), base, size)
            first, after = min(first, base), max(after, end)
    for name in found.names:
        if (
            name[:20].isdigit()
            and name not in swaps
            and first <= int(name[:20]) < after
            and not name.endswith(SNAPSHOT_SUFFIX)
        ):
            logger.info(
                "Deleting segment file %s that is compacted but has not been deleted yet.",
                os.path.join(directory, name),
            )
            unlink(os.path.join(directory, name))
    for name in swaps:
        path = os.path.join(directory, name)
        logger.info("Recovering file %s by renaming from .swap files.", path)
        os.replace(path, path.removesuffix(_SWAP_SUFFIX))
    return True


def _swap_end(path: str, base: int, size: int) -> int:
    """The offset after the last batch of a complete swap file."""
    end = base
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        position = 0
        while position + BATCH_OVERHEAD <= size:
            header = parse_header(os.pread(fd, BATCH_OVERHEAD, position))
            end = header.next_offset
            position += header.size_bytes
    except CorruptRecordError as e:
        logger.warning("Found invalid messages in %s: %s", path, e)
    finally:
        os.close(fd)
    return end


def unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
