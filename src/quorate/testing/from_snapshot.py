"""Adapts the metadata snapshot of another cluster to the nodes of a test cluster.

Registrations of brokers and controllers and configurations of single brokers are left out. Each partition
gets the same number of replicas, or fewer if there are fewer brokers, on brokers of the test cluster. It has
no leader until one of them is unfenced, and no records. `min.insync.replicas` is limited to the number of
brokers, because otherwise no record could be written with acks=all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from quorate.metadata.bootstrap import FIRST_SNAPSHOT_NAME, metadata_version_of
from quorate.metadata.errors import MetadataError
from quorate.metadata.features import ELR_VERSION, KRAFT_VERSION, LEVELS
from quorate.metadata.image import MetadataImage
from quorate.metadata.image.builder import apply_records
from quorate.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from quorate.metadata.snapshot import (
    SnapshotId,
    decode_values,
    parse_name,
    read_snapshot,
    snapshot_name,
    write_snapshot,
)
from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.protocol.schema import Data
from quorate.protocol.uuids import ZERO_UUID

_NODES = (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

_BROKER_RESOURCE = 4
"""ConfigResource.Type.BROKER."""

_FIRST_DYNAMIC = 21
"""metadata.version 3.9-IV0, from which kraft.version 1 may be set (KIP-853)."""

_MIN_ISR = "min.insync.replicas"


class LocalSnapshot:
    """The adapted snapshot, which each controller gets. It has the name, end offset and epoch of the
    original.

    Raises OSError, and MetadataError for an incomplete snapshot and for one of a release before dynamic
    quorums.
    """

    def __init__(self, original: Path, brokers: Sequence[int]) -> None:
        whole = read_snapshot(original.read_bytes(), name=str(original))
        records = list(_adapted([record for record, _ in decode_values(whole)], brokers))
        level = metadata_version_of(records)
        if level < _FIRST_DYNAMIC:
            raise MetadataError(
                f"its metadata.version is {LEVELS.get(level, level)}, and the controllers of a test "
                f"cluster form a dynamic quorum, which needs {LEVELS[_FIRST_DYNAMIC]}: upgrade the "
                "feature, then take a newer snapshot"
            )
        self._id = parse_name(original.name) or SnapshotId(len(records) + 1, 1)
        self._timestamp_ms = whole.last_contained_timestamp_ms
        self.image = apply_records(
            MetadataImage(),
            records,
            offset=self._id.offset - 1,
            epoch=self._id.epoch,
            timestamp_ms=self._timestamp_ms,
        )

    def write(self, directory: Path, *, now_ms: int) -> None:
        """Adds the snapshot, with the voters of the format, to a formatted directory."""
        folder = directory / METADATA_DIRECTORY
        voters = read_snapshot((folder / FIRST_SNAPSHOT_NAME).read_bytes()).voters
        write_snapshot(
            folder / snapshot_name(*self._id),
            self.image,
            kraft_version=1,
            voters=voters,
            last_contained_timestamp_ms=self._timestamp_ms,
            now_ms=now_ms,
        )


def _adapted(records: Sequence[Data], brokers: Sequence[int]) -> Iterator[Data]:
    elr = any(
        isinstance(r, FeatureLevelRecord) and r.name == ELR_VERSION and r.feature_level > 0 for r in records
    )
    placed = 0
    for record in records:
        if isinstance(record, PartitionRecord):
            yield _placed(record, brokers, placed, elr)
            placed += 1
        elif isinstance(record, ConfigRecord):
            if record.resource_type == _BROKER_RESOURCE and record.resource_name:
                continue
            if (
                record.name == _MIN_ISR
                and record.value
                and record.value.isdecimal()
                and int(record.value) > len(brokers)
            ):
                record.value = str(len(brokers))
            yield record
        elif not isinstance(record, _NODES) and not (
            isinstance(record, FeatureLevelRecord) and record.name == KRAFT_VERSION
        ):
            yield record


def _placed(record: PartitionRecord, brokers: Sequence[int], first: int, elr: bool) -> PartitionRecord:
    """Returns the partition with replicas on these brokers, of which `first` is the index of the first.

    The first replica becomes the leader when its broker is unfenced. The others join the ISR when they have
    caught up. Without eligible leader replicas, the ISR of a partition keeps its last member while that is
    fenced. With them (KIP-966), a broker that registers for the first time is removed from the ISR, because
    it may have lost records, and the controller elects the last known leader.
    """
    count = min(len(record.replicas), len(brokers))
    replicas = [brokers[(first + i) % len(brokers)] for i in range(count)]
    return PartitionRecord(
        partition_id=record.partition_id,
        topic_id=record.topic_id,
        replicas=replicas,
        isr=[] if elr else replicas[:1],
        leader=-1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[ZERO_UUID] * count if record.directories else [],
        last_known_elr=replicas[:1] if elr else None,
    )
