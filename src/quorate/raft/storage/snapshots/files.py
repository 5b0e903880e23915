"""Snapshot files of the metadata log: `<end offset, 20 digits>-<epoch, 10 digits>.checkpoint` (KIP-630).

A snapshot is written to a `.checkpoint.part` file and frozen by fsync and an atomic rename. It holds a
control batch with the header, data batches, and a control batch with the footer. From kraft.version 1 on
the first batch also holds kraft.version and the voters. Its offsets begin at 0.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Iterator
from itertools import islice
from pathlib import Path
from random import SystemRandom

from quorate.dataclass import dataclass
from quorate.log.files import fsync_directory, naming, write_all
from quorate.protocol.errors import DecodeError
from quorate.raft.core.control_records import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
    voter_set,
    voters_record,
)
from quorate.raft.core.voters import VoterSet
from quorate.raft.storage.snapshots.verification import (
    MAX_SNAPSHOT_BATCH_BYTES,
    SnapshotError,
    SnapshotVerifier,
)
from quorate.raft.types import CommittedBatch, OffsetEpoch
from quorate.records.batch import (
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptRecordError,
    InvalidRecordError,
    build_control_batch,
    control_records,
    iter_metadata_values,
    parse_header,
    set_placement,
    verify_crc,
)
from quorate.records.control import (
    CONTROL_RECORDS,
    ControlRecordType,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

SUFFIX = ".checkpoint"
PART = ".checkpoint.part"
DELETED = ".checkpoint.deleted"
_NAME = re.compile(
    r"(\d{20})-(\d{10})(\.checkpoint|-[^.]*\.checkpoint\.part|\.checkpoint\.part|\.checkpoint\.deleted)"
)
READ_BYTES = 1 << 20
PIECE_RECORDS = 256  # decoded at a time; replaying them takes two to three milliseconds


def snapshot_name(snapshot: OffsetEpoch) -> str:
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}{SUFFIX}"


def parse_name(name: str) -> tuple[OffsetEpoch, str] | None:
    """The id and the kind of a file: "snapshot", "part", "download" or "deleted". None for other files.

    A "download" is the file of an incomplete download.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    tail = found[3]
    kind = (
        "snapshot"
        if tail == SUFFIX
        else "deleted"
        if tail == DELETED
        else "download"
        if "-from-" in tail
        else "part"
    )
    return OffsetEpoch(int(found[1]), int(found[2])), kind


class SnapshotWriter:
    """A `.part` file, which is appended to until it is frozen or deleted. Raises OSError."""

    def __init__(self, directory: Path, snapshot: OffsetEpoch, path: Path | None = None) -> None:
        """Creates a file, or opens the one at `path`, which may exist."""
        self.snapshot = snapshot
        self.final = directory / snapshot_name(snapshot)
        stem = f"{snapshot.offset:020d}-{snapshot.epoch:010d}"
        self.path = path or directory / f"{stem}-{SystemRandom().getrandbits(63)}{PART}"
        self.fd = os.open(
            self.path, os.O_RDWR | os.O_CREAT | (0 if path else os.O_EXCL) | os.O_CLOEXEC, 0o644
        )
        self.size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with naming(str(self.path)):
            self.size += write_all(self.fd, [data], self.size)

    def freeze(self) -> None:
        """Makes the file durable and read-only, and gives it its final name."""
        with naming(str(self.path)):
            os.fsync(self.fd)
            self.close()
            self.path.chmod(0o444)
            self.path.rename(self.final)
            fsync_directory(str(self.final.parent))

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def abandon(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)


def header_batch(
    snapshot: OffsetEpoch, last_timestamp_ms: int, now_ms: int, kraft: int, voters: VoterSet
) -> bytes:
    """The first batch: the header, and from kraft.version 1 on kraft.version and the voters."""
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp_ms)
    records: list[tuple[int, bytes]] = [(SNAPSHOT_HEADER, header.encode(0))]
    if kraft >= 1:
        records.append((KRAFT_VERSION, KRaftVersionRecord(version=0, kraft_version=kraft).encode(0)))
        records.append((KRAFT_VOTERS, voters_record(voters).encode(0)))
    return build_control_batch(records, base_offset=0, leader_epoch=snapshot.epoch, timestamp=now_ms)


def footer_batch(snapshot: OffsetEpoch, base_offset: int, now_ms: int) -> bytes:
    footer = SnapshotFooterRecord(version=0).encode(0)
    return build_control_batch(
        [(SNAPSHOT_FOOTER, footer)], base_offset=base_offset, leader_epoch=snapshot.epoch, timestamp=now_ms
    )


def place(batch: bytes | memoryview, base_offset: int, epoch: int) -> tuple[bytearray, int]:
    """Moves a batch to `base_offset`, and returns it with the offset after it.

    The checksum does not cover offset and epoch.
    """
    out = bytearray(batch)
    header = parse_header(out)
    set_placement(out, base_offset, epoch)
    return out, base_offset + header.last_offset_delta + 1


def iter_file(path: Path) -> Generator[memoryview, None, None]:
    """Yields each batch after verifying its checksum. Raises SnapshotError, OSError."""
    with path.open("rb", buffering=0) as file:
        pending = b""
        position = missing = 0
        while True:
            chunk = file.read(max(READ_BYTES, missing))
            data = memoryview(pending + chunk if pending else chunk)
            at = 0
            while len(data) - at >= LOG_OVERHEAD:
                size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True) + LOG_OVERHEAD
                if not BATCH_OVERHEAD <= size <= MAX_SNAPSHOT_BATCH_BYTES:
                    raise SnapshotError(f"{path}: batch of {size} bytes at byte {position + at}")
                missing = size - (len(data) - at)
                if missing > 0:
                    break
                batch = data[at : at + size]
                if batch[16] != 2 or not verify_crc(batch):
                    raise SnapshotError(
                        f"{path}: wrong magic or checksum in the batch at byte {position + at}"
                    )
                yield batch
                at += size
            pending = bytes(data[at:])
            position += at
            if not chunk:
                if pending:
                    raise SnapshotError(f"{path}: cut at byte {position + len(pending)}, inside a batch")
                return


def verify_file(path: Path) -> None:
    """Verifies a complete file. Raises SnapshotError, OSError."""
    verifier = SnapshotVerifier()
    with path.open("rb", buffering=0) as file:
        try:
            while chunk := file.read(READ_BYTES):
                verifier.feed(chunk)
        except SnapshotError as e:
            raise SnapshotError(f"{path}: {e}") from e
    if not verifier.complete:
        raise SnapshotError(f"{path}: cut at byte {verifier.position}, it has no footer")


@dataclass(slots=True)
class SnapshotHead:
    """The control records at the begin of a snapshot."""

    last_timestamp_ms: int
    kraft_version: int | None = None
    voters: VoterSet | None = None


def read_head(path: Path) -> SnapshotHead:
    """Reads the control records before the data. Raises SnapshotError, OSError."""
    head: SnapshotHead | None = None
    with contextlib.closing(iter_file(path)) as batches:
        for batch in batches:
            if not parse_header(batch).is_control:
                break
            for kind, value in _controls(path, batch):
                if kind == SNAPSHOT_HEADER and isinstance(value, SnapshotHeaderRecord):
                    head = SnapshotHead(value.last_contained_log_timestamp)
                elif head is None:
                    raise SnapshotError(f"{path}: does not begin with a snapshot header")
                elif isinstance(value, KRaftVersionRecord):
                    head.kraft_version = value.kraft_version
                elif isinstance(value, VotersRecord):
                    head.voters = voter_set(value)
                elif kind == SNAPSHOT_FOOTER:
                    return head
    if head is None:
        raise SnapshotError(f"{path}: does not begin with a snapshot header")
    return head


def read_batches(path: Path, epoch: int) -> Iterator[CommittedBatch]:
    """Yields the data batches. Large ones, of up to 8 MiB in Kafka, are divided and decoded piece by piece.

    Raises SnapshotError if the header or the footer is missing.
    """
    started = ended = False
    for batch in iter_file(path):
        if ended:
            raise SnapshotError(f"{path}: something follows the footer")
        header = parse_header(batch)
        if header.is_control:
            kinds = [kind for kind, _ in control_records(batch)]
            if not started and (not kinds or kinds[0] != SNAPSHOT_HEADER):
                raise SnapshotError(f"{path}: does not begin with a snapshot header")
            started = True
            ended = SNAPSHOT_FOOTER in kinds
            continue
        if not started:
            raise SnapshotError(f"{path}: does not begin with a snapshot header")
        try:
            yield from _pieces(header, batch, epoch)
        except (CorruptRecordError, InvalidRecordError) as e:
            raise SnapshotError(f"{path}: {e}") from e
    if not ended:
        raise SnapshotError(f"{path}: ends without a footer")


def _pieces(header: BatchHeader, batch: memoryview, epoch: int) -> Iterator[CommittedBatch]:
    values, offset = iter_metadata_values(batch), header.base_offset
    while piece := list(islice(values, PIECE_RECORDS)):
        last = offset + len(piece) - 1
        yield CommittedBatch(offset, last, epoch, header.base_timestamp, piece, sum(map(len, piece)))
        offset = last + 1


def _controls(path: Path, batch: memoryview) -> Iterator[tuple[int, object]]:
    for kind, value in control_records(batch):
        declared = CONTROL_RECORDS.get(ControlRecordType(kind)) if kind in _KINDS else None
        if declared is None:
            raise SnapshotError(f"{path}: control record of unknown type {kind}")
        try:
            yield kind, declared.decode(value, 0)
        except DecodeError as e:
            raise SnapshotError(f"{path}: control record of type {kind}: {e}") from e


_KINDS = frozenset(int(k) for k in ControlRecordType)
