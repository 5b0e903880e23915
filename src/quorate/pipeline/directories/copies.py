"""Finds the copies of a metadata log below the given paths, and merges them so that each offset is read
once.

The copy with the most advanced end (epoch, then offset, as in an election) is read as far as it
goes. Other copies give what it lacks: older segments and snapshots. If offsets are still missing
between two copies, the log begins after them. A copy whose end was never committed may differ from
the others there, so it is read only up to an offset at which both have the same leader epoch,
because then everything before is equal too (Log Matching in Raft), or else up to its newest
snapshot.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from quorate.dataclass import dataclass
from quorate.pipeline.datasource.bounds import EVERYTHING
from quorate.pipeline.decoder.batches import Batch, read_batches
from quorate.pipeline.directories.files import LOCAL, Files, Reader, is_remote, local_path
from quorate.pipeline.directories.layout import Layout, Segment, Slice, SnapshotFile, index_path, scan
from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.records.batch import BATCH_OVERHEAD, CorruptRecordError, parse_header

_DEPTH: Final = 3
"""A cluster's folder contains nodes, which contain log directories, which contain the metadata log."""

_META_PROPERTIES: Final = "meta.properties"
_EPOCH_FILE: Final = "leader-epoch-checkpoint"
_INDEX_ENTRY: Final = struct.Struct(">ii")

_SMALL_BYTES: Final = 16 << 20
"""The part of a segment that is read into memory. The index has an entry every 4 KiB."""


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
    node_id: int | None = None
    directory_id: str | None = None

    def epoch_at(self, offset: int) -> int | None:
        """The leader epoch of the record at an offset, if it is known."""
        if offset >= self.end_offset or offset < self.layout.log_start_offset:
            return None
        found = [epoch for epoch, start in self.epochs if start <= offset]
        return found[-1] if found else None


def find_copies(paths: Sequence[str], files: Files = LOCAL) -> list[Copy]:
    """The copies below all paths. Raises FileNotFoundError for a path without one, and ValueError if they
    are of several clusters."""
    places = {place: None for path in paths for place in find_logs(path, files)}
    copies = [_copy(place, files) for place in places]
    clusters = sorted({copy.cluster_id for copy in copies if copy.cluster_id is not None})
    if len(clusters) > 1:
        raise ValueError(f"the paths contain logs of several clusters: {', '.join(clusters)}")
    return copies


def find_logs(path: str, files: Files = LOCAL) -> list[str]:
    """The metadata logs that `path` is, or that are below it: in a log directory, in a node's folder with log
    directories, or in a cluster's folder with nodes."""
    root = path.rstrip("/") if is_remote(path) else str(Path(local_path(path)))
    if not files.is_directory(root):
        raise FileNotFoundError(f"{path} is not a directory")
    found: list[str] = []
    level = [root]
    for _ in range(_DEPTH):
        following: list[str] = []
        for place in level:
            try:
                entries = {entry.name: entry for entry in files.entries(place)}
            except FileNotFoundError:
                continue  # deleted since it was listed
            log = entries.get(METADATA_DIRECTORY)
            if log is not None and log.is_directory:
                found.append(f"{place}/{METADATA_DIRECTORY}")
            elif _META_PROPERTIES not in entries:  # the directories in a log directory are partitions
                following += [entry.path for entry in entries.values() if entry.is_directory]
        level = following
    if found:
        return sorted(found)
    scan(root, files)  # raises FileNotFoundError if it is no metadata log
    return [root]


def ranked(copies: Sequence[Copy]) -> list[Copy]:
    """The copies in the order of an election: the most advanced one first."""
    return sorted(copies, key=lambda copy: (copy.last_epoch, copy.end_offset), reverse=True)


def merge(copies: Sequence[Copy]) -> Layout:
    """The layout of all copies together."""
    copies = ranked(copies)
    first = copies[0]
    segments = list(first.layout.segments)
    start = first.layout.log_start_offset
    for other in copies[1:]:
        older = _older_segments(other, first, start)
        if older:
            segments = [*older, *segments]
            start = older[0].base_offset
    snapshots: dict[tuple[int, int], SnapshotFile] = {}
    for copy in copies:
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


def _copy(place: str, files: Files) -> Copy:
    layout = scan(place, files)
    end_offset, last_epoch = _end(layout, files)
    meta = _meta_properties(place.rpartition("/")[0], files)
    node_id = meta.get("node.id", "")
    return Copy(
        layout,
        end_offset,
        last_epoch,
        _epochs(place, files),
        meta.get("cluster.id"),
        int(node_id) if node_id.isascii() and node_id.isdigit() else None,
        meta.get("directory.id"),
    )


def _end(layout: Layout, files: Files) -> tuple[int, int]:
    """The offset after the last intact batch, and its epoch."""
    for segment in reversed(layout.segments):
        found = _segment_end(segment, files)
        if found is not None:
            return found
    if layout.snapshots:
        return layout.snapshots[-1].end_offset, layout.snapshots[-1].epoch
    return layout.log_start_offset, 0


def _segment_end(segment: Segment, files: Files) -> tuple[int, int] | None:
    """The offset after the last intact batch of a segment, and its epoch; None if there is no such batch.

    The search begins at the last entry of the index. Batches behind a damaged place count, because the log
    goes on there.
    """
    try:
        with files.open(segment.path) as read:
            indexed = _indexed_position(segment, read, files)
            for position in (indexed, 0) if indexed else (0,):
                left = segment.size_bytes - position
                if left <= _SMALL_BYTES:  # a file that a node shortens meanwhile must not be mapped
                    part, view = Slice(segment.path, 0, -1, left), memoryview(read(position, left))
                else:
                    part = Slice(segment.path, position, -1, left)
                    view = files.view(segment.path, position, -1)
                found = _last_batch(replace(part, may_be_cut=True), view)
                if found is not None:
                    return found
    except OSError:
        pass
    return None


def _last_batch(part: Slice, view: memoryview) -> tuple[int, int] | None:
    last: tuple[int, int] | None = None
    for found in read_batches(part, view, EVERYTHING):
        if isinstance(found, Batch):
            last = found.last_offset + 1, found.epoch
        elif last is not None and found.next_offset is not None:
            last = found.next_offset, last[1]
    return last


def _indexed_position(segment: Segment, read: Reader, files: Files) -> int:
    """The position of the last batch in the offset index, or 0 if the index does not match."""
    try:
        # The index of a running node is preallocated with zeros.
        index = files.read(index_path(segment)).rstrip(b"\0")
        if not index:
            return 0
        last = (len(index) - 1) // _INDEX_ENTRY.size * _INDEX_ENTRY.size
        relative, position = _INDEX_ENTRY.unpack(index[last:].ljust(_INDEX_ENTRY.size, b"\0"))
        header = parse_header(read(position, BATCH_OVERHEAD))
    except (OSError, CorruptRecordError):
        return 0
    return position if header.last_offset == segment.base_offset + relative else 0


def _epochs(place: str, files: Files) -> tuple[tuple[int, int], ...]:
    """The file `leader-epoch-checkpoint`: version, number of entries, then epoch and first offset of each."""
    try:
        lines = files.read(f"{place}/{_EPOCH_FILE}").decode("ascii").split("\n")
        pairs = [line.split() for line in lines[2:] if line]
        return tuple([(int(epoch), int(start)) for epoch, start in pairs])
    except (OSError, ValueError):
        return ()


def _meta_properties(directory: str, files: Files) -> dict[str, str]:
    """The file `meta.properties` of a log directory: the ids of cluster, node and directory, if it
    has them."""
    try:
        lines = files.read(f"{directory}/{_META_PROPERTIES}").decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = [line.partition("=") for line in lines if "=" in line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}
