"""Reads the metadata from files: a snapshot, a segment of the log, or a metadata log directory.

A node may write to the directory meanwhile. The last records of a log may be uncommitted: nothing in the
files says up to where the log is committed.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.metadata.errors import MetadataError
from quorate.metadata.image import MetadataImage
from quorate.metadata.image.image import EMPTY_WITHOUT_INDEXES
from quorate.metadata.loader import apply_committed, load_snapshot
from quorate.metadata.snapshot import Snapshot, SnapshotBatch, parse_name, read_snapshot
from quorate.pipeline.directories.layout import NoMetadataLogError, scan
from quorate.protocol.errors import DecodeError, KafkaError
from quorate.records.batch import control_records, iter_batches, metadata_values, verify_crc
from quorate.records.control import ControlRecordType, KRaftVersionRecord, VotersRecord
from quorate.tools.command_line import ToolError
from quorate.tools.shell.nodes import Control

if TYPE_CHECKING:
    from quorate.admin.quorum_log import SnapshotOfLeader

Metadata = tuple[MetadataImage, Control]

_WHICH_DIRECTORY = "Name the directory of metadata.log.dir, or one of log.dirs."


class NoMetadataError(ToolError):
    """A directory has no metadata log."""


def from_file(path: Path) -> Metadata:
    """Reads a snapshot, or one segment of the log as if the log began with it. Raises ToolError."""
    try:
        if path.suffix == ".log":
            return _with_log((EMPTY_WITHOUT_INDEXES, Control()), [path], 0)
        return _from_snapshot(path)
    except OSError as error:
        raise ToolError(f"Cannot read {path}: {error.strerror}") from error
    except MetadataError as error:
        raise ToolError(f"{path} is no metadata snapshot or segment: {error}") from error


def from_directory(path: Path) -> Metadata:
    """Reads the last snapshot of a metadata log and the log after it. Raises ToolError, NoMetadataError.

    `path` is `__cluster_metadata-0`, or the directory in which that is.
    """
    try:
        found = scan(path)
        metadata: Metadata = EMPTY_WITHOUT_INDEXES, Control()
        start = 0
        if found.snapshots:
            last = found.snapshots[-1]
            metadata = _from_snapshot(Path(last.path))
            start = last.end_offset
        return _with_log(metadata, [Path(segment.path) for segment in found.segments], start)
    except NoMetadataLogError as error:
        raise NoMetadataError(f"{error}. {_WHICH_DIRECTORY}") from error
    except FileNotFoundError as error:
        raise ToolError(f"{error}. {_WHICH_DIRECTORY}") from error
    except OSError as error:
        raise ToolError(f"Cannot read {path}: {error.strerror}") from error
    except MetadataError as error:
        raise ToolError(f"The metadata log in {path} cannot be read: {error}") from error


def image_of(snapshot: Snapshot, end_offset: int, epoch: int) -> Metadata:
    """Returns the image and the control records of a snapshot. Raises MetadataError."""
    image = load_snapshot(
        end_offset,
        epoch,
        snapshot.batches,
        timestamp_ms=snapshot.last_contained_timestamp_ms,
        base=EMPTY_WITHOUT_INDEXES,
    )
    return image, Control(snapshot.kraft_version, snapshot.voters)


def _from_snapshot(path: Path) -> Metadata:
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:
            raise MetadataError("it is empty")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    snapshot = read_snapshot(memoryview(data), name=path.name)
    named = parse_name(path.name)  # None for bootstrap.checkpoint
    last = snapshot.batches[-1].last_offset if snapshot.batches else 0
    return image_of(snapshot, *((named.offset, named.epoch) if named is not None else (last + 1, 0)))


def _with_log(metadata: Metadata, segments: Iterable[Path], start: int) -> Metadata:
    """Replays the segments from an offset on."""
    replay = Replay(*metadata, start)
    for segment in segments:
        replay.take(segment.read_bytes(), segment.name)
    return replay.image, replay.control


class Timeline:
    """The times at which the batches of a log were appended, by their offsets."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._times_ms: list[int] = []
        self.snapshot_time_ms = -1
        """The time of the last record in the snapshot before the first batch. -1 without a snapshot."""

    def added(self, batches: Iterable[SnapshotBatch]) -> Iterator[SnapshotBatch]:
        """Adds the batches behind all others while it yields them."""
        for batch in batches:
            self._offsets.append(batch.base_offset)
            self._times_ms.append(batch.timestamp_ms)
            yield batch

    def time_of(self, offset: int) -> int | None:
        """Returns the time of the batch with a record, in ms since 1970. None if it was in the snapshot."""
        position = bisect_right(self._offsets, offset)
        return self._times_ms[position - 1] if position else None


class LogReader:
    """Reads the batches of a log from an offset on, and what its control records say."""

    def __init__(self, control: Control, end_offset: int) -> None:
        self.control = control
        self.end_offset = end_offset
        """The offset of the next batch."""

    def batches(
        self, data: bytes | memoryview, name: str, *, end: int | None = None
    ) -> Iterator[SnapshotBatch]:
        """Yields the complete batches in data from `end_offset` on, up to `end` if given.

        The data may end in the middle of a batch, because a node may be writing it. Raises MetadataError,
        which names the log.
        """
        try:
            for header, batch in iter_batches(data):
                if header.last_offset < self.end_offset:
                    continue
                if end is not None and header.last_offset >= end:
                    return
                if not verify_crc(batch):
                    raise MetadataError(
                        f"The checksum of the batch at offset {header.base_offset} does not fit"
                    )
                if header.base_offset > self.end_offset > 0:
                    raise MetadataError(f"Offset {self.end_offset} is missing in the log")
                if header.is_control:
                    self._read_control(batch)
                self.end_offset = header.last_offset + 1
                yield SnapshotBatch(
                    header.base_offset,
                    header.last_offset,
                    header.leader_epoch,
                    header.max_timestamp,
                    () if header.is_control else metadata_values(batch),
                    header.size_bytes,
                )
        except (KafkaError, DecodeError) as error:
            raise MetadataError(f"{name}: {error}") from error

    def _read_control(self, batch: memoryview) -> None:
        for kind, value in control_records(batch):
            if kind == ControlRecordType.KRAFT_VERSION:
                version = KRaftVersionRecord.decode(value, 0).kraft_version
                self.control = replace(self.control, kraft_version=version)
            elif kind == ControlRecordType.KRAFT_VOTERS:
                self.control = replace(self.control, voters=VotersRecord.decode(value, 0))


class Replay:
    """Applies the batches of a log to an image, and reads its control records."""

    def __init__(
        self, image: MetadataImage, control: Control, end_offset: int, timeline: Timeline | None = None
    ) -> None:
        """`timeline`, if given, gets the times of the batches."""
        self.image = image
        self._timeline = timeline
        self._log = LogReader(control, end_offset)

    @property
    def control(self) -> Control:
        """What the control records say last."""
        return self._log.control

    @property
    def end_offset(self) -> int:
        """The offset of the next batch."""
        return self._log.end_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record."""
        return max(self.image.provenance.epoch, 0)

    def take(self, data: bytes, name: str, *, end: int | None = None) -> None:
        """Applies the complete batches in data from `end_offset` on, up to `end` if given. Raises
        MetadataError, which names the log."""
        batches = self._log.batches(data, name, end=end)
        if self._timeline is not None:
            batches = self._timeline.added(batches)
        self.image = apply_committed(self.image, batches)

    def load(self, data: memoryview, found: SnapshotOfLeader) -> None:
        """Replaces the image by a snapshot, after which the log continues. Raises MetadataError."""
        snapshot = read_snapshot(data)
        self.image, control = image_of(snapshot, found.end_offset, found.epoch)
        self._log = LogReader(control, found.end_offset)
        if self._timeline is not None:
            self._timeline.snapshot_time_ms = snapshot.last_contained_timestamp_ms
