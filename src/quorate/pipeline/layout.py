"""Lists the files of a metadata log directory and divides them into slices for parallel reads.

A node may write to the directory meanwhile: the newest segment grows, and old segments and snapshots are
renamed to `.deleted` and deleted a minute later.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from quorate.metadata.snapshot import parse_name
from quorate.records.batch import BATCH_OVERHEAD, CorruptRecordError, parse_header

METADATA_DIRECTORY = "__cluster_metadata-0"

SLICE_BYTES = 64 << 20
"""The size of the slices of one task. Spark takes about 0.4 s to start a task, so few large tasks are faster.
"""

_INDEX_ENTRY = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of the log, with its size when it was listed."""

    path: str
    base_offset: int
    size_bytes: int
    is_last: bool = False
    limit: int | None = None
    """Records from this offset on are read from another copy of the log."""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A complete snapshot. It covers the offsets below `end_offset`."""

    path: str
    end_offset: int
    epoch: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The segments in order of base offset, and the snapshots in order of end offset and epoch."""

    directory: str
    segments: tuple[Segment, ...]
    snapshots: tuple[SnapshotFile, ...]

    @property
    def log_start_offset(self) -> int:
        """The base offset of the first segment.

        Without segments, the end offset of the last snapshot, or 0.
        """
        if self.segments:
            return self.segments[0].base_offset
        return self.snapshots[-1].end_offset if self.snapshots else 0

    def base_snapshot(self) -> SnapshotFile | None:
        """The snapshot that replaces the deleted start of the log, or None if the log starts at 0.

        It is the oldest snapshot whose end offset is in the log, because that gives the longest history.
        """
        start = self.log_start_offset
        if start == 0:
            return None
        return next((snapshot for snapshot in self.snapshots if snapshot.end_offset >= start), None)

    def resets(self) -> list[SnapshotFile]:
        """The base snapshot and those before it. Of several with the same end offset, the one with the
        highest epoch.
        """
        base = self.base_snapshot()
        if base is None:
            return []
        last = {
            found.end_offset: found for found in self.snapshots if 0 < found.end_offset <= base.end_offset
        }
        return list(last.values())

    def chosen_snapshots(self, which: str) -> list[SnapshotFile]:
        """The snapshots of the option `snapshots`."""
        match which:
            case "none":
                return []
            case "base":
                base = self.base_snapshot()
                return [] if base is None else [base]
            case "resets":
                return self.resets()
            case "latest":
                return list(self.snapshots[-1:])
            case _:
                return list(self.snapshots)


def scan(path: str | Path) -> Layout:
    """Lists a metadata log directory. `path` is that directory or its parent directory.

    Raises FileNotFoundError if there is no metadata log.
    """
    directory = Path(path)
    if (directory / METADATA_DIRECTORY).is_dir():
        directory = directory / METADATA_DIRECTORY
    if not directory.is_dir():
        raise FileNotFoundError(f"{path} is not a directory")
    segments: list[Segment] = []
    snapshots: list[SnapshotFile] = []
    for entry in directory.iterdir():
        snapshot_id = parse_name(entry.name)
        is_segment = entry.suffix == ".log" and entry.stem.isdigit()
        if not is_segment and snapshot_id is None:
            continue
        try:
            size = entry.stat().st_size
        except FileNotFoundError:
            continue  # renamed for deletion since it was listed
        if snapshot_id is not None:
            snapshots.append(SnapshotFile(str(entry), snapshot_id.offset, snapshot_id.epoch, size))
        else:
            segments.append(Segment(str(entry), int(entry.stem), size))
    if not segments and not snapshots:
        raise FileNotFoundError(
            f"{path} holds no metadata log: neither segments nor snapshots, nor a {METADATA_DIRECTORY}"
        )
    segments.sort(key=lambda segment: segment.base_offset)
    if segments:
        last = segments[-1]
        segments[-1] = Segment(last.path, last.base_offset, last.size_bytes, is_last=True)
    snapshots.sort(key=lambda snapshot: (snapshot.end_offset, snapshot.epoch))
    return Layout(str(directory), tuple(segments), tuple(snapshots))


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of complete batches in a file. `end` is -1 for the end of the file."""

    path: str
    start: int
    end: int
    size_bytes: int
    snapshot_end_offset: int | None = None
    """The end offset of a snapshot; None for a segment."""
    may_be_cut: bool = False
    """Whether the last batch may be incomplete, as in the newest segment."""
    base_offset: int | None = None
    """The offset in the file of the first record; None if it is not known."""
    end_offset: int | None = None
    """The offset after the last record; None if it is not known."""
    limit: int | None = None
    """Records from this offset on are read elsewhere."""
    committed: int = 0
    """Records of the log with smaller offsets are known to be committed."""


def slices(
    layout: Layout,
    *,
    snapshots: Iterable[SnapshotFile],
    start_offset: int = 0,
    end_offset: int | None = None,
    slice_bytes: int = SLICE_BYTES,
) -> Iterator[Slice]:
    """Yields the slices of snapshots, and of the segments that may have offsets of the range.

    Records that a snapshot contains are known to be committed.
    """
    committed = max([snapshot.end_offset for snapshot in layout.snapshots], default=0)
    for snapshot in snapshots:
        whole = Slice(snapshot.path, 0, -1, snapshot.size_bytes, snapshot.end_offset, base_offset=0)
        yield from _divide(whole, _batch_cuts(snapshot, slice_bytes))
    for number, segment in enumerate(layout.segments):
        following = layout.segments[number + 1] if number + 1 < len(layout.segments) else None
        if following is not None and following.base_offset <= start_offset:
            continue
        if end_offset is not None and segment.base_offset >= end_offset:
            continue
        if segment.size_bytes == 0 and following is None:
            continue
        same_copy = following is not None and Path(following.path).parent == Path(segment.path).parent
        whole = Slice(
            segment.path,
            0,
            -1,
            segment.size_bytes,
            may_be_cut=segment.is_last,
            base_offset=segment.base_offset,
            end_offset=following.base_offset if following is not None and same_copy else None,
            limit=segment.limit,
            committed=committed,
        )
        yield from _divide(whole, _index_cuts(segment, slice_bytes))


def _divide(whole: Slice, cuts: list[tuple[int, int]]) -> Iterator[Slice]:
    """Divides the slice of a file at (position, offset) of some of its batches."""
    starts = [(0, whole.base_offset), *cuts]
    for (start, base_offset), (end, end_offset) in zip(starts, [*cuts, (-1, whole.end_offset)], strict=True):
        yield replace(
            whole,
            start=start,
            end=end,
            size_bytes=(whole.size_bytes if end < 0 else end) - start,
            may_be_cut=whole.may_be_cut and end < 0,
            base_offset=base_offset,
            end_offset=end_offset,
        )


def group(parts: Iterable[Slice], target_bytes: int = SLICE_BYTES) -> list[list[Slice]]:
    """Groups slices, in order, into tasks of about `target_bytes`."""
    tasks: list[list[Slice]] = []
    room = 0
    for part in parts:
        if not tasks or part.size_bytes > room:
            tasks.append([])
            room = target_bytes
        tasks[-1].append(part)
        room -= part.size_bytes
    return tasks


def _index_cuts(segment: Segment, slice_bytes: int) -> list[tuple[int, int]]:
    """Returns position and base offset of batches at which a large segment can be divided, from its offset
    index.

    Returns none if the index does not match the segment.
    """
    if segment.size_bytes <= slice_bytes * 3 // 2:
        return []
    cuts: list[tuple[int, int]] = []
    try:
        index = Path(segment.path).with_suffix(".index").read_bytes()
        with Path(segment.path).open("rb") as log:
            for relative, position in _INDEX_ENTRY.iter_unpack(index[: len(index) // 8 * 8]):
                if position < (cuts[-1][0] if cuts else 0) + slice_bytes or position >= segment.size_bytes:
                    continue
                log.seek(position)
                header = parse_header(log.read(BATCH_OVERHEAD))
                if header.last_offset != segment.base_offset + relative:
                    return []
                cuts.append((position, header.base_offset))
    except (OSError, CorruptRecordError):
        return []
    return cuts


def _batch_cuts(snapshot: SnapshotFile, slice_bytes: int) -> list[tuple[int, int]]:
    """Returns position and base offset of batches at which a large snapshot can be divided.

    A snapshot has no index, so the headers of its batches are followed. A damaged header ends the search.
    """
    if snapshot.size_bytes <= slice_bytes * 3 // 2:
        return []
    cuts: list[tuple[int, int]] = []
    position = 0
    try:
        with Path(snapshot.path).open("rb", buffering=0) as file:
            while position < snapshot.size_bytes:
                header = parse_header(os.pread(file.fileno(), BATCH_OVERHEAD, position))
                if position >= (cuts[-1][0] if cuts else 0) + slice_bytes:
                    cuts.append((position, header.base_offset))
                position += header.size_bytes
    except (OSError, CorruptRecordError):
        pass
    return cuts
