"""The records with which a test cluster starts from the metadata snapshot of another cluster.

What describes that cluster's own nodes is left out: registrations of brokers and controllers, and configurations of single
brokers. Each partition gets replicas on the test cluster's brokers, as many as it had or as there are brokers, no leader
until one of them is unfenced, and no records. `min.insync.replicas` is lowered to the number of brokers where it is above,
or no record could be written with acks=all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from quorate.metadata.features import KRAFT_VERSION, METADATA_VERSION
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
from quorate.metadata.snapshot import decode_values, read_snapshot
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

_MIN_ISR = "min.insync.replicas"


def bootstrap_records_of(snapshot: Path, brokers: Sequence[int]) -> list[Data]:
    """The bootstrap records of a cluster with these brokers. Raises OSError, or MetadataError for what is no whole snapshot."""
    records = [record for record, _ in decode_values(read_snapshot(snapshot.read_bytes(), name=str(snapshot)))]
    return sorted(_adapted(records, brokers), key=_after_features)


def _after_features(record: Data) -> int:
    """metadata.version comes first: it decides about the versions of all other records."""
    if not isinstance(record, FeatureLevelRecord):
        return 2
    return 0 if record.name == METADATA_VERSION else 1


def _adapted(records: Sequence[Data], brokers: Sequence[int]) -> Iterator[Data]:
    placed = 0
    for record in records:
        if isinstance(record, PartitionRecord):
            yield _placed(record, brokers, placed)
            placed += 1
        elif isinstance(record, ConfigRecord):
            if record.resource_type == _BROKER_RESOURCE and record.resource_name:
                continue
            if record.name == _MIN_ISR and record.value and record.value.isdecimal() and int(record.value) > len(brokers):
                record.value = str(len(brokers))
            yield record
        elif not isinstance(record, _NODES) and not (isinstance(record, FeatureLevelRecord) and record.name == KRAFT_VERSION):
            yield record


def _placed(record: PartitionRecord, brokers: Sequence[int], first: int) -> PartitionRecord:
    """The partition on these brokers, beginning with number `first`. Its ISR has one member, as that of a partition whose
    brokers are all fenced; the others join it when they have caught up."""
    count = min(len(record.replicas), len(brokers))
    replicas = [brokers[(first + i) % len(brokers)] for i in range(count)]
    return PartitionRecord(
        partition_id=record.partition_id,
        topic_id=record.topic_id,
        replicas=replicas,
        isr=replicas[:1],
        leader=-1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[ZERO_UUID] * count if record.directories else [],
    )
