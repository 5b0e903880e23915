"""The two files of a formatted directory that hold batches, byte for byte as Kafka's formatter writes
them.

`bootstrap.checkpoint`, in every directory, has the metadata records that the first active controller
writes to the empty log. `__cluster_metadata-0/00000000000000000000-0000000000.checkpoint` has
kraft.version and the first voter set. KIP-778, KIP-853, KIP-1022.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from quorate.metadata import features
from quorate.metadata.errors import MetadataError
from quorate.metadata.framing import decode_record, encode_record
from quorate.metadata.records import FeatureLevelRecord, UserScramCredentialRecord
from quorate.metadata.snapshot import (
    BOOTSTRAP_NAME,
    footer_batch,
    frame_batches,
    header_batch,
    read_snapshot,
    snapshot_name,
)
from quorate.protocol.schema import Data
from quorate.records.batch import build_metadata_batch
from quorate.records.control import VotersRecord

METADATA_DIRECTORY = "__cluster_metadata-0"
FIRST_SNAPSHOT_NAME = snapshot_name(0, 0)

_EPOCH = 0


def bootstrap_records(
    levels: Mapping[str, int], scram: Sequence[UserScramCredentialRecord] = ()
) -> list[Data]:
    """The records of a new cluster: metadata.version, the other features above level 0 by name, then the
    credentials.

    kraft.version is never one of them. Raises ValueError if there is no metadata.version, or if it does
    not support the credentials.
    """
    metadata_version = levels.get(features.METADATA_VERSION)
    if metadata_version is None:
        raise ValueError("a bootstrap needs a metadata.version")
    if scram and metadata_version < features.FIRST_SCRAM:
        raise ValueError(
            f"SCRAM is only supported in metadata.version {features.LEVELS[features.FIRST_SCRAM]} or later."
        )
    records: list[Data] = [FeatureLevelRecord(name=features.METADATA_VERSION, feature_level=metadata_version)]
    others = levels.keys() - {features.METADATA_VERSION, features.KRAFT_VERSION}
    records += [
        FeatureLevelRecord(name=name, feature_level=levels[name])
        for name in sorted(others)
        if levels[name] > 0
    ]
    records.extend(scram)
    return records


def default_bootstrap(metadata_version: int = features.LATEST_STABLE_LEVEL) -> list[Data]:
    """The records for an empty log if there is no bootstrap.checkpoint: the metadata.version alone, as
    in Kafka."""
    return [FeatureLevelRecord(name=features.METADATA_VERSION, feature_level=metadata_version)]


def encode_bootstrap(records: Sequence[Data], *, now_ms: int) -> bytes:
    """The bytes of bootstrap.checkpoint. All records have version 0, the only version of their types."""
    data = build_metadata_batch(
        [encode_record(record, 0) for record in records], base_offset=1, leader_epoch=_EPOCH, timestamp=now_ms
    )
    return b"".join(
        frame_batches(
            [data], epoch=_EPOCH, last_contained_timestamp_ms=0, kraft_version=0, voters=None, now_ms=now_ms
        )
    )


def decode_bootstrap(data: bytes, *, name: str = BOOTSTRAP_NAME) -> list[tuple[Data, int]]:
    """The records of bootstrap.checkpoint with their versions. Raises MetadataError with the file and
    the reason."""
    snapshot = read_snapshot(data, name=name)
    records = []
    for batch in snapshot.batches:
        for offset, value in enumerate(batch.values, batch.base_offset):
            try:
                records.append(decode_record(value))
            except MetadataError as error:
                raise MetadataError(f"{name}: {error.reason}", offset=offset) from error
    return records


def write_bootstrap(directory: Path, records: Sequence[Data], *, now_ms: int) -> None:
    """Writes `bootstrap.checkpoint` of a log directory atomically. Raises OSError."""
    _write(directory / BOOTSTRAP_NAME, encode_bootstrap(records, now_ms=now_ms))


def read_bootstrap(directory: Path) -> list[Data]:
    """The records for a new cluster: those of the directory's file, or the default ones if there is no
    file.

    Raises MetadataError if the file is damaged.
    """
    path = directory / BOOTSTRAP_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return default_bootstrap()
    return [record for record, _ in decode_bootstrap(data, name=str(path))]


def metadata_version_of(records: Sequence[Data]) -> int:
    """The metadata.version of bootstrap records. Raises MetadataError if there is none."""
    level = 0
    for record in records:
        if isinstance(record, FeatureLevelRecord) and record.name == features.METADATA_VERSION:
            level = record.feature_level
    if not level:
        raise MetadataError("the bootstrap records have no metadata.version")
    return level


def encode_first_snapshot(voters: VotersRecord, *, kraft_version: int = 1, now_ms: int) -> bytes:
    """The bytes of the snapshot at offset 0 and epoch 0: header, kraft.version, voters and footer,
    without data."""
    head = header_batch(
        epoch=_EPOCH,
        last_contained_timestamp_ms=now_ms,
        kraft_version=kraft_version,
        voters=voters,
        now_ms=now_ms,
    )
    return head + footer_batch(base_offset=3, epoch=_EPOCH, now_ms=now_ms)


def write_first_snapshot(metadata_directory: Path, voters: VotersRecord, *, now_ms: int) -> None:
    """Writes the snapshot at offset 0 and epoch 0 to `__cluster_metadata-0` in a metadata log directory.
    Creates this directory if needed. Raises OSError."""
    directory = metadata_directory / METADATA_DIRECTORY
    directory.mkdir(exist_ok=True)
    _write(directory / FIRST_SNAPSHOT_NAME, encode_first_snapshot(voters, now_ms=now_ms))


def _write(path: Path, data: bytes) -> None:
    """Writes a file atomically: temporary file, fsync, rename, fsync of the directory."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
