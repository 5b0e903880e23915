"""Finds the copies of a metadata log below the given paths, and merges them so that each offset is read
once.

The copy with the most advanced end (epoch, then offset, as in an election) is read as far as it goes. Other
copies give what it lacks: older segments and snapshots. A copy whose end was never committed may differ from
the others there, so it is read only up to an offset at which both have the same leader epoch, because then
everything before is equal too (Log Matching in Raft), or else up to its newest snapshot.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from quorate.pipeline.layout import METADATA_DIRECTORY, Layout, Segment, SnapshotFile, scan
from quorate.records.batch import BATCH_OVERHEAD, CorruptRecordError, parse_header, verify_crc

_DEPTH: Final = 3
"""A cluster's folder contains nodes, which contain log directories, which contain the metadata log."""

_EPOCH_FILE: Final = "leader-epoch-checkpoint"
_INDEX_ENTRY: Final = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class Copy:
    """One node's metadata log."""

    layout: Layout
    end_offset: int
    """The offset after its last intact batch."""
    last_epoch: int
    epochs: tuple[tuple[int, int], ...]
    """Each leader epoch and its first offset; empty if they are not known."""
    cluster_id: str | None

    def epoch_at(self, offset: int) -> int | None:
        """The leader epoch of the record at an offset, if it is known."""
        if offset >= self.end_offset or offset < self.layout.log_start_offset:
            return None
        found = [epoch for epoch, start in self.epochs if start <= offset]
        return found[-1] if found else None


def find_copies(paths: Sequence[str]) -> list[Copy]:
    """The copies below all paths. Raises FileNotFoundError for a path without one, and ValueError if they
    are of several clusters."""
    places = {place: None for path in paths for place in find_logs(path)}
    copies = [_copy(place) for place in places]
    clusters = sorted({copy.cluster_id for copy in copies if copy.cluster_id is not None})
    if len(clusters) > 1:
        raise ValueError(f"the paths contain logs of several clusters: {', '.join(clusters)}")
    return copies


def find_logs(path: str) -> list[Path]:
    """The metadata logs that `path` is, or that are below it: in a log directory, in a node's folder with log
    directories, or in a cluster's folder with nodes."""
    root = Path(path.removeprefix("file://").removeprefix("file:"))
    if not root.is_dir():
        raise FileNotFoundError(f"{path} is not a directory")
    level = [root]
    for _ in range(_DEPTH):
        found = [place / METADATA_DIRECTORY for place in level if (place / METADATA_DIRECTORY).is_dir()]
        if found:
            return sorted(found)
        level = [inner for place in level for inner in _folders(place)]
    scan(root)  # raises FileNotFoundError if it is no metadata log
    return [root]


def merge(copies: Sequence[Copy]) -> Layout:
    """The layout of all copies together."""
    ranked = sorted(copies, key=lambda copy: (copy.last_epoch, copy.end_offset), reverse=True)
    first = ranked[0]
    segments = list(first.layout.segments)
    start = first.layout.log_start_offset
    for other in ranked[1:]:
        older = _older_segments(other, first, start)
        if older:
            segments = [*older, *segments]
            start = older[0].base_offset
    snapshots: dict[tuple[int, int], SnapshotFile] = {}
    for copy in ranked:
        for snapshot in copy.layout.snapshots:
            snapshots.setdefault((snapshot.end_offset, snapshot.epoch), snapshot)
    return Layout(
        first.layout.directory, tuple(segments), tuple([snapshots[key] for key in sorted(snapshots)])
    )


def _older_segments(other: Copy, first: Copy, start: int) -> list[Segment]:
    """The segments of `other` that begin before `start`, limited to the offsets that are trusted."""
    limit = min(start, other.end_offset)
    epoch = other.epoch_at(first.layout.log_start_offset)
    if epoch is None or epoch != first.epoch_at(first.layout.log_start_offset):
        limit = min(limit, max([snapshot.end_offset for snapshot in other.layout.snapshots], default=0))
    return [
        replace(segment, limit=limit, is_last=False)
        for segment in other.layout.segments
        if segment.base_offset < limit
    ]


def _folders(place: Path) -> list[Path]:
    return [inner for inner in place.iterdir() if inner.is_dir() and not inner.is_symlink()]


def _copy(place: Path) -> Copy:
    layout = scan(place)
    end_offset, last_epoch = _end(layout)
    return Copy(layout, end_offset, last_epoch, _epochs(place), _cluster_id(place.parent))


def _end(layout: Layout) -> tuple[int, int]:
    """The offset after the last intact batch, and its epoch."""
    for segment in reversed(layout.segments):
        found = _segment_end(segment)
        if found is not None:
            return found
    if layout.snapshots:
        return layout.snapshots[-1].end_offset, layout.snapshots[-1].epoch
    return layout.log_start_offset, 0


def _segment_end(segment: Segment) -> tuple[int, int] | None:
    """The end of a segment, from the last entry of its index on."""
    last: tuple[int, int] | None = None
    try:
        with Path(segment.path).open("rb", buffering=0) as file:
            position = _indexed_position(segment)
            while position + BATCH_OVERHEAD <= segment.size_bytes:
                header = parse_header(os.pread(file.fileno(), BATCH_OVERHEAD, position))
                stop = position + header.size_bytes
                # The last batch may be half written.
                if stop > segment.size_bytes or (
                    stop == segment.size_bytes
                    and not verify_crc(os.pread(file.fileno(), header.size_bytes, position))
                ):
                    break
                last = header.last_offset + 1, header.leader_epoch
                position = stop
    except (OSError, CorruptRecordError):
        pass
    return last


def _indexed_position(segment: Segment) -> int:
    """The position of the last batch in the offset index, or 0 if the index does not match."""
    try:
        # The index of a running node is preallocated with zeros.
        index = Path(segment.path).with_suffix(".index").read_bytes().rstrip(b"\0")
        if not index:
            return 0
        last = (len(index) - 1) // _INDEX_ENTRY.size * _INDEX_ENTRY.size
        relative, position = _INDEX_ENTRY.unpack(index[last:].ljust(_INDEX_ENTRY.size, b"\0"))
        with Path(segment.path).open("rb") as file:
            file.seek(position)
            header = parse_header(file.read(BATCH_OVERHEAD))
    except (OSError, CorruptRecordError):
        return 0
    return position if header.last_offset == segment.base_offset + relative else 0


def _epochs(place: Path) -> tuple[tuple[int, int], ...]:
    """The file `leader-epoch-checkpoint`: version, number of entries, then epoch and first offset of each."""
    try:
        lines = (place / _EPOCH_FILE).read_text(encoding="ascii").split("\n")
        pairs = [line.split() for line in lines[2:] if line]
        return tuple([(int(epoch), int(start)) for epoch, start in pairs])
    except (OSError, ValueError):
        return ()


def _cluster_id(directory: Path) -> str | None:
    """The cluster id in `meta.properties`, or None."""
    try:
        lines = (directory / "meta.properties").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    found = [
        line.partition("=")[2].strip() for line in lines if line.partition("=")[0].strip() == "cluster.id"
    ]
    return found[0] if found else None
