"""Snapshots of the metadata (KIP-630): a file of record batches that replaces the log before it.

    control batch   SnapshotHeader [, KRaftVersion, KRaftVoters: from kraft.version 1 on]
    data batches    the records of the image, up to 256 in each batch
    control batch   SnapshotFooter

Offsets in the file start at 0. The leader epoch of its batches is the epoch of the snapshot. The file
name has the end offset (exclusive) and the epoch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quorate.dataclass import dataclass
from quorate.lazy import lazy_module
from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import decode_record
from quorate.metadata.image import MetadataImage
from quorate.metadata.loader import load_snapshot
from quorate.protocol.errors import DecodeError, KafkaError
from quorate.protocol.schema import Data
from quorate.records.batch import (
    BatchHeader,
    build_control_batch,
    build_metadata_batch,
    control_records,
    iter_batches,
    metadata_values,
    verify_crc,
)
from quorate.records.control import (
    ControlRecordType,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

if TYPE_CHECKING:
    from quorate.metadata.image import writer as image_writer
else:
    image_writer = lazy_module("quorate.metadata.image.writer")

SUFFIX = ".checkpoint"
BOOTSTRAP_NAME = "bootstrap.checkpoint"

MAX_BATCH_RECORDS = 256
"""The records that are encoded at once, in one to three milliseconds between two turns of the event
loop."""

MAX_BATCH_BYTES = 4 << 20
"""Half of the limit of a Raft batch, so that every reader of the log accepts a batch of a snapshot."""

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """The end offset, which is the first offset that the snapshot does not contain, and the epoch of the
    last offset that it contains."""

    offset: int
    epoch: int


def snapshot_name(offset: int, epoch: int) -> str:
    """The name of a snapshot file: `00000000000000000038-0000000001.checkpoint`."""
    return f"{offset:020d}-{epoch:010d}{SUFFIX}"


def parse_name(name: str) -> SnapshotId | None:
    """The id of a complete snapshot with this file name, or None for any other name."""
    match = _NAME.fullmatch(name)
    return None if match is None else SnapshotId(int(match[1]), int(match[2]))


def data_batches(image: MetadataImage, *, base_offset: int, epoch: int, timestamp_ms: int) -> Iterator[bytes]:
    """The records of an image as batches, the first one at `base_offset`. Raises MetadataError if the
    image cannot be written."""
    values: list[bytes] = []
    size = 0
    for value in image_writer.image_values(image):
        if values and (len(values) == MAX_BATCH_RECORDS or size + len(value) > MAX_BATCH_BYTES):
            yield build_metadata_batch(
                values, base_offset=base_offset, leader_epoch=epoch, timestamp=timestamp_ms
            )
            base_offset += len(values)
            values, size = [], 0
        values.append(value)
        size += len(value)
    if values:
        yield build_metadata_batch(
            values, base_offset=base_offset, leader_epoch=epoch, timestamp=timestamp_ms
        )


def header_batch(
    *,
    epoch: int,
    last_contained_timestamp_ms: int,
    kraft_version: int,
    voters: VotersRecord | None,
    now_ms: int,
) -> bytes:
    """The control batch at the beginning. From kraft.version 1 on it has kraft.version and the voters. Only
    the first snapshot of a node that will join a quorum has no voters."""
    records: list[tuple[int, bytes]] = [
        (
            ControlRecordType.SNAPSHOT_HEADER,
            SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_timestamp_ms).encode(
                0
            ),
        )
    ]
    if kraft_version > 0:
        records.append(
            (
                ControlRecordType.KRAFT_VERSION,
                KRaftVersionRecord(version=0, kraft_version=kraft_version).encode(0),
            )
        )
        if voters is not None:
            records.append((ControlRecordType.KRAFT_VOTERS, voters.encode(0)))
    return build_control_batch(records, base_offset=0, leader_epoch=epoch, timestamp=now_ms)


def footer_batch(*, base_offset: int, epoch: int, now_ms: int) -> bytes:
    """The control batch at the end of the file."""
    footer = SnapshotFooterRecord(version=0).encode(0)
    return build_control_batch(
        [(ControlRecordType.SNAPSHOT_FOOTER, footer)],
        base_offset=base_offset,
        leader_epoch=epoch,
        timestamp=now_ms,
    )


def frame_batches(
    batches: Iterable[bytes],
    *,
    epoch: int,
    last_contained_timestamp_ms: int,
    kraft_version: int,
    voters: VotersRecord | None,
    now_ms: int,
) -> Iterator[bytes]:
    """A whole snapshot: header, data batches and footer. The data batches must start at
    `data_base_offset`."""
    yield header_batch(
        epoch=epoch,
        last_contained_timestamp_ms=last_contained_timestamp_ms,
        kraft_version=kraft_version,
        voters=voters,
        now_ms=now_ms,
    )
    offset = data_base_offset(kraft_version)
    for batch in batches:
        yield batch
        offset = int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big") + 1
    yield footer_batch(base_offset=offset, epoch=epoch, now_ms=now_ms)


def data_base_offset(kraft_version: int) -> int:
    """The offset of the first data record, after the header and the two records of kraft.version 1."""
    return 3 if kraft_version > 0 else 1


def snapshot_batches(
    image: MetadataImage,
    *,
    kraft_version: int,
    voters: VotersRecord | None,
    last_contained_timestamp_ms: int,
    now_ms: int,
) -> Iterator[bytes]:
    """All batches of a snapshot of the image. From kraft.version 1 on voters are required."""
    if kraft_version > 0 and voters is None:
        raise ValueError("a snapshot under kraft.version 1 holds the set of voters")
    epoch = max(image.provenance.epoch, 0)
    data = data_batches(image, base_offset=data_base_offset(kraft_version), epoch=epoch, timestamp_ms=now_ms)
    return frame_batches(
        data,
        epoch=epoch,
        last_contained_timestamp_ms=last_contained_timestamp_ms,
        kraft_version=kraft_version,
        voters=voters,
        now_ms=now_ms,
    )


def write_snapshot(
    path: Path,
    image: MetadataImage,
    *,
    kraft_version: int,
    voters: VotersRecord | None,
    last_contained_timestamp_ms: int,
    now_ms: int,
) -> int:
    """Writes and syncs a snapshot file. Returns its size. The caller moves it to its final name. Raises
    OSError."""
    size = 0
    with path.open("xb") as out:
        for batch in snapshot_batches(
            image,
            kraft_version=kraft_version,
            voters=voters,
            last_contained_timestamp_ms=last_contained_timestamp_ms,
            now_ms=now_ms,
        ):
            out.write(batch)
            size += len(batch)
        out.flush()
        os.fsync(out.fileno())
    return size


@dataclass(slots=True)
class SnapshotBatch:
    """A data batch of a snapshot in the form of a committed batch. Its offsets are those in the file."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    values: Sequence[memoryview]
    size_bytes: int


@dataclass(slots=True)
class Snapshot:
    """The control records and the data batches of a snapshot."""

    last_contained_timestamp_ms: int
    kraft_version: int
    voters: VotersRecord | None
    batches: list[SnapshotBatch]


def read_snapshot(data: bytes | memoryview, *, name: str = "snapshot") -> Snapshot:
    """Reads a whole snapshot. Raises MetadataError with the file and the invalid batch."""
    result: Snapshot | None = None
    footer = False
    position = 0
    try:
        for header, batch in iter_batches(data):
            position += header.size_bytes
            where = f"{name}, batch at offset {header.base_offset}"
            if footer:
                raise MetadataError(f"{where}: it follows the footer")
            if not verify_crc(batch):
                raise MetadataError(f"{where}: its checksum does not fit")
            if header.is_control:
                result, footer = _control(result, header, batch, where)
            elif result is None:
                raise MetadataError(f"{where}: a snapshot starts with its header")
            else:
                result.batches.append(
                    SnapshotBatch(
                        header.base_offset,
                        header.last_offset,
                        header.leader_epoch,
                        header.max_timestamp,
                        metadata_values(batch),
                        header.size_bytes,
                    )
                )
    except (KafkaError, DecodeError) as error:
        raise MetadataError(f"{name}: {error}") from error
    if result is None or not footer or position != len(data):
        raise MetadataError(
            f"{name} ends early: {'its footer is missing' if result is not None else 'it has no header'}"
        )
    return result


def _control(
    result: Snapshot | None, header: BatchHeader, batch: memoryview, where: str
) -> tuple[Snapshot | None, bool]:
    """Reads a control batch. Returns the snapshot, and whether the batch has the footer."""
    footer = False
    for kind, value in control_records(batch):
        if result is None and kind != ControlRecordType.SNAPSHOT_HEADER:
            raise MetadataError(
                f"{where}: a snapshot starts with its header, not with control record type {kind}"
            )
        match kind:
            case ControlRecordType.SNAPSHOT_HEADER:
                if result is not None:
                    raise MetadataError(f"{where}: a second header")
                result = Snapshot(
                    SnapshotHeaderRecord.decode(value, 0).last_contained_log_timestamp, 0, None, []
                )
            case ControlRecordType.KRAFT_VERSION:
                assert result is not None
                result.kraft_version = KRaftVersionRecord.decode(value, 0).kraft_version
            case ControlRecordType.KRAFT_VOTERS:
                assert result is not None
                result.voters = VotersRecord.decode(value, 0)
            case ControlRecordType.SNAPSHOT_FOOTER:
                SnapshotFooterRecord.decode(value, 0)
                footer = True
            case _:
                raise MetadataError(f"{where}: control record type {kind} has no place in a snapshot")
    return result, footer


def image_from_snapshot(
    data: bytes | memoryview, snapshot_id: SnapshotId, *, name: str | None = None
) -> MetadataImage:
    """The image of a snapshot. Raises MetadataError as `read_snapshot` does, or if a record cannot be
    replayed."""
    snapshot = read_snapshot(data, name=name or snapshot_name(*snapshot_id))
    return load_snapshot(
        snapshot_id.offset,
        snapshot_id.epoch,
        snapshot.batches,
        timestamp_ms=snapshot.last_contained_timestamp_ms,
    )


def decode_values(snapshot: Snapshot) -> Iterator[tuple[Data, int]]:
    """The records of a snapshot with their versions."""
    for batch in snapshot.batches:
        for value in batch.values:
            yield decode_record(value)
