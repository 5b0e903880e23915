"""What lies in a metadata log directory, and how its reading is shared out. Knows files' names and
sizes, not what is in them.

The directory may be written meanwhile: the newest segment grows, old segments and snapshots are renamed
(`.deleted`) and go a minute later.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from quorate.metadata.snapshot import parse_name
from quorate.records.batch import BATCH_OVERHEAD, CorruptRecordError, parse_header

METADATA_DIRECTORY = "__cluster_metadata-0"

SLICE_BYTES = 64 << 20
"""What one task reads. A task costs Spark about 0.4 s before its first row, so many small ones are
slower than few big ones."""

_INDEX_ENTRY = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of the log: its base offset, and its size when it was listed."""

    path: str
    base_offset: int
    size_bytes: int
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A finished snapshot: it covers the offsets below `end_offset`."""

    path: str
    end_offset: int
    epoch: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Segments by base offset, snapshots by end offset and epoch."""

    directory: str
    segments: tuple[Segment, ...]
    snapshots: tuple[SnapshotFile, ...]

    @property
    def log_start_offset(self) -> int:
        """Base offset of the oldest segment; without any, the newest snapshot's end offset, or 0."""
        if self.segments:
            return self.segments[0].base_offset
        return self.snapshots[-1].end_offset if self.snapshots else 0

    def base_snapshot(self) -> SnapshotFile | None:
        """The snapshot that stands for what lies before the log, None when the log is whole.

        The oldest that ends in the log: with it the history is longest. A log that starts at 0 needs none.
        """
        start = self.log_start_offset
        if start == 0:
            return None
        return next((snapshot for snapshot in self.snapshots if snapshot.end_offset >= start), None)

    def resets(self) -> list[SnapshotFile]:
        """The snapshots that tell what the log no longer does: the base and those before it; of an
        equal offset, the newest."""
        base = self.base_snapshot()
        if base is None:
            return []
        last = {
            found.end_offset: found for found in self.snapshots if 0 < found.end_offset <= base.end_offset
        }
        return list(last.values())


def scan(path: str | Path) -> Layout:
    """Lists a metadata log directory, given itself or by the directory that holds it. FileNotFoundError
    when it is neither."""
    directory = Path(path)
    if (directory / METADATA_DIRECTORY).is_dir():
        directory = directory / METADATA_DIRECTORY
    if not directory.is_dir():
        raise FileNotFoundError(f"{path} is no directory")
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
    """Bytes of one file, from a batch's start to a batch's end (or to the end of the file, -1)."""

    path: str
    start: int
    end: int
    size_bytes: int
    snapshot_end_offset: int | None = None
    """Of a snapshot's file, None for a segment."""
    may_be_cut: bool = False
    """The newest segment: its last batch may be half written."""


def slices(
    layout: Layout,
    *,
    snapshots: Iterable[SnapshotFile],
    start_offset: int = 0,
    end_offset: int | None = None,
    slice_bytes: int = SLICE_BYTES,
) -> Iterator[Slice]:
    """The slices to read: the given snapshots whole, and the segments that may hold offsets of the range."""
    for snapshot in snapshots:
        yield Slice(snapshot.path, 0, -1, snapshot.size_bytes, snapshot_end_offset=snapshot.end_offset)
    for number, segment in enumerate(layout.segments):
        following = layout.segments[number + 1] if number + 1 < len(layout.segments) else None
        if following is not None and following.base_offset <= start_offset:
            continue
        if end_offset is not None and segment.base_offset >= end_offset:
            continue
        if segment.size_bytes == 0:
            continue
        cuts = [0, *_cuts(segment, slice_bytes)]
        for start, end in zip(cuts, [*cuts[1:], -1], strict=True):
            size = (segment.size_bytes if end < 0 else end) - start
            yield Slice(segment.path, start, end, size, may_be_cut=segment.is_last and end < 0)


def group(parts: Iterable[Slice], target_bytes: int = SLICE_BYTES) -> list[list[Slice]]:
    """Slices in tasks of about the target's size, in order."""
    tasks: list[list[Slice]] = []
    room = 0
    for part in parts:
        if not tasks or part.size_bytes > room:
            tasks.append([])
            room = target_bytes
        tasks[-1].append(part)
        room -= part.size_bytes
    return tasks


def _cuts(segment: Segment, slice_bytes: int) -> list[int]:
    """Positions of batches at which a big segment may be cut, from its offset index; none when the
    index is not to be trusted."""
    if segment.size_bytes <= slice_bytes * 3 // 2:
        return []
    cuts: list[int] = []
    try:
        index = Path(segment.path).with_suffix(".index").read_bytes()
        with Path(segment.path).open("rb") as log:
            for relative, position in _INDEX_ENTRY.iter_unpack(index[: len(index) // 8 * 8]):
                if position < (cuts[-1] if cuts else 0) + slice_bytes or position >= segment.size_bytes:
                    continue
                log.seek(position)
                if parse_header(log.read(BATCH_OVERHEAD)).last_offset != segment.base_offset + relative:
                    return []
                cuts.append(position)
    except (OSError, CorruptRecordError):
        return []
    return cuts
