"""The bootstrap records of a new cluster, and the files of a formatted directory that hold them, byte for
byte as Kafka's formatter writes them.

`__cluster_metadata-0/00000000000000000000-0000000000.checkpoint`, which controllers have, holds the records
that the first active controller writes to the empty log, and kraft.version and the first voter set
(KIP-1170). A directory that was formatted before Kafka 4.4 has the records in `bootstrap.checkpoint`.
KIP-778, KIP-853, KIP-1022.
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
    header_batch,
    read_snapshot,
    snapshot_name,
)
from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.protocol.schema import Data
from quorate.records.batch import build_metadata_batch
from quorate.records.control import VotersRecord

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


def decode_bootstrap(data: bytes, *, name: str = BOOTSTRAP_NAME) -> list[tuple[Data, int]]:
    """The records of either file with their versions. Raises MetadataError with the file and the reason."""
    snapshot = read_snapshot(data, name=name)
    records = []
    for batch in snapshot.batches:
        for offset, value in enumerate(batch.values, batch.base_offset):
            try:
                records.append(decode_record(value))
            except MetadataError as error:
                raise MetadataError(f"{name}: {error.reason}", offset=offset) from error
    return records


def read_bootstrap(directory: Path) -> list[Data]:
    """The records for a new cluster in a metadata log directory.

    Those of the first snapshot come first, then those of `bootstrap.checkpoint`, as in Kafka's controller.
    Without either, they are the default ones. Raises MetadataError if a file is damaged.
    """
    for path in (directory / METADATA_DIRECTORY / FIRST_SNAPSHOT_NAME, directory / BOOTSTRAP_NAME):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        if records := [record for record, _ in decode_bootstrap(data, name=str(path))]:
            return records
    return default_bootstrap()


def metadata_version_of(records: Sequence[Data]) -> int:
    """The metadata.version of bootstrap records. Raises MetadataError if there is none."""
    level = 0
    for record in records:
        if isinstance(record, FeatureLevelRecord) and record.name == features.METADATA_VERSION:
            level = record.feature_level
    if not level:
        raise MetadataError("the bootstrap records have no metadata.version")
    return level


def encode_first_snapshot(
    records: Sequence[Data], *, kraft_version: int, voters: VotersRecord | None, now_ms: int
) -> bytes:
    """The bytes of the snapshot at offset 0 and epoch 0. It has voters if the initial controllers of a
    dynamic quorum are known. All records have version 0, the only version of their types."""
    head = header_batch(
        epoch=_EPOCH,
        last_contained_timestamp_ms=now_ms,
        kraft_version=kraft_version,
        voters=voters,
        now_ms=now_ms,
    )
    offset = 1 + (kraft_version > 0) + (voters is not None)
    data = build_metadata_batch(
        [encode_record(record, 0) for record in records],
        base_offset=offset,
        leader_epoch=_EPOCH,
        timestamp=now_ms,
    )
    return head + data + footer_batch(base_offset=offset + len(records), epoch=_EPOCH, now_ms=now_ms)


def write_first_snapshot(
    metadata_directory: Path,
    records: Sequence[Data],
    *,
    kraft_version: int,
    voters: VotersRecord | None,
    now_ms: int,
) -> None:
    """Writes the snapshot at offset 0 and epoch 0 to `__cluster_metadata-0` in a metadata log directory.
    Creates this directory if needed. Raises OSError."""
    directory = metadata_directory / METADATA_DIRECTORY
    directory.mkdir(exist_ok=True)
    data = encode_first_snapshot(records, kraft_version=kraft_version, voters=voters, now_ms=now_ms)
    _write(directory / FIRST_SNAPSHOT_NAME, data)


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
