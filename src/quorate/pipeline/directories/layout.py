"""Lists the files of a metadata log directory and divides them into slices for parallel reads.

A node may write to the directory meanwhile: the newest segment grows, and old segments and snapshots are
renamed to `.deleted` and deleted a minute later.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from quorate.dataclass import dataclass
from quorate.metadata.snapshot import parse_name
from quorate.pipeline.directories.files import LOCAL, Files
from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.records.batch import BATCH_OVERHEAD, CorruptRecordError, parse_header

SLICE_BYTES = 64 << 20
"""The size of the slices of one task. Spark takes about 0.4 s to start a task, so few large tasks are faster.
"""

_SEGMENT = re.compile(r"([0-9]{20})\.log")
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
        """The base offset of the first segment from which on no offset is missing.

        Without segments, the end offset of the last snapshot, or 0.
        """
        start: Segment | None = None
        for segment in reversed(self.segments):
            if start is not None and not _continues(segment, start):
                break
            start = segment
        if start is not None:
            return start.base_offset
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

    def check_snapshot(self, which: str) -> None:
        """Raises ValueError if the option `snapshots` names a snapshot that is not there."""
        if which.isdigit() and not self.chosen_snapshots(which):
            known = ", ".join([str(found.end_offset) for found in self.snapshots])
            raise ValueError(f"{self.directory} has no snapshot {which}, only {known or 'the log'}")

    def check_complete(self, start_offset: int) -> None:
        """Raises ValueError if the log has lost records from an offset on."""
        if self.log_start_offset > start_offset:
            raise ValueError(
                f"{self.directory} begins at offset {self.log_start_offset}, after startOffset {start_offset}"
            )

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
            case "all":
                return list(self.snapshots)
            case end_offset:
                named = {found.end_offset: found for found in self.snapshots}.get(int(end_offset))
                return [] if named is None else [named]


class NoMetadataLogError(FileNotFoundError):
    """A directory has neither segments nor snapshots."""


def scan(path: str | Path, files: Files = LOCAL) -> Layout:
    """Lists a metadata log directory. `path` is that directory or its parent directory.

    Raises FileNotFoundError if there is no directory, and NoMetadataLogError if it has no metadata log.
    """
    directory = str(path).rstrip("/")
    if files.is_directory(f"{directory}/{METADATA_DIRECTORY}"):
        directory = f"{directory}/{METADATA_DIRECTORY}"
    if not files.is_directory(directory):
        raise FileNotFoundError(f"{path} is not a directory")
    segments: list[Segment] = []
    snapshots: list[SnapshotFile] = []
    for entry in files.entries(directory):
        if entry.is_directory:
            continue
        snapshot_id = parse_name(entry.name)
        segment = _SEGMENT.fullmatch(entry.name)
        if snapshot_id is not None:
            snapshots.append(
                SnapshotFile(entry.path, snapshot_id.offset, snapshot_id.epoch, entry.size_bytes)
            )
        elif segment is not None:
            segments.append(Segment(entry.path, int(segment[1]), entry.size_bytes))
    if not segments and not snapshots:
        raise NoMetadataLogError(
            f"{path} holds no metadata log: neither segments nor snapshots, nor a {METADATA_DIRECTORY}"
        )
    segments.sort(key=lambda segment: segment.base_offset)
    if segments:
        segments[-1] = replace(segments[-1], is_last=True)
    snapshots.sort(key=lambda snapshot: (snapshot.end_offset, snapshot.epoch))
    return Layout(directory, tuple(segments), tuple(snapshots))


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
    committed: int = 0,
    files: Files = LOCAL,
) -> Iterator[Slice]:
    """Yields the slices of snapshots, and of the segments that may have offsets of the range.

    Records before `committed`, and those that a snapshot contains, are known to be committed.
    """
    committed = max([committed, *[snapshot.end_offset for snapshot in layout.snapshots]])
    for snapshot in snapshots:
        whole = Slice(snapshot.path, 0, -1, snapshot.size_bytes, snapshot.end_offset, base_offset=0)
        yield from _divide(whole, _batch_cuts(snapshot, slice_bytes, files))
    for number, segment in enumerate(layout.segments):
        following = layout.segments[number + 1] if number + 1 < len(layout.segments) else None
        if following is not None and following.base_offset <= start_offset:
            continue
        if end_offset is not None and segment.base_offset >= end_offset:
            continue
        if segment.size_bytes == 0 and following is None:
            continue
        same_copy = following is not None and _same_copy(segment, following)
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
        yield from _divide(whole, _index_cuts(segment, slice_bytes, files))


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


def index_path(segment: Segment) -> str:
    """The offset index of a segment."""
    return f"{segment.path.removesuffix('.log')}.index"


def _same_copy(one: Segment, other: Segment) -> bool:
    return one.path.rpartition("/")[0] == other.path.rpartition("/")[0]


def _continues(segment: Segment, following: Segment) -> bool:
    """Whether no offset is missing between two segments. Inside of one copy, a gap is damage, which the read
    reports."""
    return _same_copy(segment, following) or (
        segment.limit is not None and segment.limit >= following.base_offset
    )


def _index_cuts(segment: Segment, slice_bytes: int, files: Files) -> list[tuple[int, int]]:
    """Returns position and base offset of batches at which a large segment can be divided, from its offset
    index.

    Returns none if the index does not match the segment.
    """
    if segment.size_bytes <= slice_bytes * 3 // 2:
        return []
    cuts: list[tuple[int, int]] = []
    try:
        index = files.read(index_path(segment))
        with files.open(segment.path) as read:
            for relative, position in _INDEX_ENTRY.iter_unpack(index[: len(index) // 8 * 8]):
                if position < (cuts[-1][0] if cuts else 0) + slice_bytes or position >= segment.size_bytes:
                    continue
                header = parse_header(read(position, BATCH_OVERHEAD))
                if header.last_offset != segment.base_offset + relative:
                    return []
                cuts.append((position, header.base_offset))
    except (OSError, CorruptRecordError):
        return []
    return cuts


def _batch_cuts(snapshot: SnapshotFile, slice_bytes: int, files: Files) -> list[tuple[int, int]]:
    """Returns position and base offset of batches at which a large snapshot can be divided.

    A snapshot has no index, so the headers of its batches are followed. A damaged header ends the search.
    """
    if snapshot.size_bytes <= slice_bytes * 3 // 2:
        return []
    cuts: list[tuple[int, int]] = []
    position = 0
    try:
        with files.open(snapshot.path) as read:
            while position < snapshot.size_bytes:
                header = parse_header(read(position, BATCH_OVERHEAD))
                if position >= (cuts[-1][0] if cuts else 0) + slice_bytes:
                    cuts.append((position, header.base_offset))
                position += header.size_bytes
    except (OSError, CorruptRecordError):
        pass
    return cuts
