"""Turns an image into records: the smallest list that gives the same image, in the order and in the
versions in which Kafka writes a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from quorate.metadata.errors import MetadataError
from quorate.metadata.features import (
    FIRST_CONTROLLER_REGISTRATION,
    FIRST_CORDONED_DIRECTORIES,
    FIRST_DIRECTORIES,
    FIRST_ELR_RECORDS,
    FIRST_MIGRATION,
    FIRST_SCRAM,
    FIRST_TOKENS,
    METADATA_VERSION,
    record_version,
)
from quorate.metadata.framing import decode_record, encode_record, frame
from quorate.metadata.image.cluster import BrokerRegistration, ControllerRegistration, Endpoint, UnknownTags
from quorate.metadata.image.encoded import decoded
from quorate.metadata.image.image import MetadataImage
from quorate.metadata.image.partitions import MIGRATING_DIRECTORY, PartitionImage
from quorate.metadata.records import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from quorate.protocol.schema import Data, Struct


def image_records(image: MetadataImage) -> Iterator[Data]:
    """The records of an image, in the order in which Kafka writes them.

    Raises MetadataError if a transaction is open, or if the metadata.version has no record for a part of
    the image.
    """
    return (decode_record(found)[0] if isinstance(found, bytes) else found for found in _records(image))


def image_values(image: MetadataImage) -> Iterator[bytes]:
    """The values of the same records in a batch, including the frame. Partitions that are stored in
    encoded form are not decoded."""
    level = image.features.metadata_version
    for found in _records(image):
        yield found if isinstance(found, bytes) else encode_record(found, record_version(found.KEY, level))


def _records(image: MetadataImage) -> Iterator[Data | bytes]:
    """The records of an image. A partition that is stored in encoded form in the required version is
    returned as these bytes."""
    if image.transaction is not None:
        raise MetadataError(
            f"the transaction begun at offset {image.transaction.offset} is open: no snapshot inside of it"
        )
    level = image.features.metadata_version
    tags = image.unknown_tags
    as_is = frame(PartitionRecord.KEY, record_version(PartitionRecord.KEY, level))
    yield from _features(image, tags)
    for broker in image.cluster.brokers.values():
        yield broker_record(broker, level)
    for controller in image.cluster.controllers.values():
        if level < FIRST_CONTROLLER_REGISTRATION:
            raise _lost("controller registrations", level)
        yield controller_record(controller)
    for topic in image.topics.by_id.values():
        yield _tagged(
            TopicRecord(name=topic.name, topic_id=topic.id), tags.get(("topic", topic.id)) if tags else None
        )
        for partition_id, entry in topic.partitions.entries():
            if isinstance(entry, bytes) and not tags and entry.startswith(as_is):
                yield entry
                continue
            record = partition_record(topic.id, partition_id, decoded(entry), level)
            yield _tagged(record, tags.get(("partition", topic.id, partition_id))) if tags else record
    for (kind, name), entries in image.configs.resources.items():
        for key, value in entries.items():
            config = ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
            yield _tagged(config, tags.get(("config", kind, name, key)) if tags else None)
    for entity, quotas in image.client_quotas.entities.items():
        for quota_key, quota_value in quotas.items():
            quota = ClientQuotaRecord(
                entity=[
                    ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                ],
                key=quota_key,
                value=quota_value,
            )
            yield _tagged(quota, tags.get(("quota", entity, quota_key)))
    if image.producer_ids.next_producer_id >= 0:
        ids = ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.producer_ids.next_producer_id
        )
        yield _tagged(ids, tags.get(("producer ids",)))
    yield from image.acls.by_id.values()
    yield from _since(image.scram.credentials.values(), level, FIRST_SCRAM, "SCRAM credentials")
    yield from _since(image.delegation_tokens.tokens.values(), level, FIRST_TOKENS, "delegation tokens")


def _features(image: MetadataImage, tags: Any) -> Iterator[Data]:
    finalized = image.features.finalized
    names = sorted(finalized, key=lambda name: (name != METADATA_VERSION, name))
    for name in names:  # metadata.version comes first because it determines how the other records are read
        yield _tagged(
            FeatureLevelRecord(name=name, feature_level=finalized[name]), tags.get(("feature", name))
        )


def broker_record(broker: BrokerRegistration, metadata_version: int) -> RegisterBrokerRecord:
    """The registration as a record at this metadata.version."""
    if broker.is_migrating_zk_broker and metadata_version < FIRST_MIGRATION:
        raise _lost("the migration state of brokers", metadata_version)
    if broker.log_dirs and metadata_version < FIRST_DIRECTORIES:
        raise _lost("log directories of brokers", metadata_version)
    cordoned = broker.cordoned_log_dirs
    if cordoned is not None and metadata_version < FIRST_CORDONED_DIRECTORIES:
        raise _lost("cordoned log directories of brokers", metadata_version)
    tags = dict(broker.unknown_tags)
    record = RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=_end_points(RegisterBrokerRecord.BrokerEndpoint, broker.listeners, tags),
        features=_supported_features(RegisterBrokerRecord.BrokerFeature, broker.features, tags),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
        start_time_ms=broker.start_time_ms,
    )
    return _tagged(record, tags.get(""))


def controller_record(controller: ControllerRegistration) -> RegisterControllerRecord:
    """The registration as a record."""
    tags = dict(controller.unknown_tags)
    record = RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=_end_points(RegisterControllerRecord.ControllerEndpoint, controller.listeners, tags),
        features=_supported_features(RegisterControllerRecord.ControllerFeature, controller.features, tags),
    )
    return _tagged(record, tags.get(""))


def _end_points(make: Callable[..., T], listeners: Iterable[Endpoint], tags: Mapping[str, Any]) -> list[T]:
    return [
        _tagged(
            make(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol),
            tags.get(f"endpoint {e.name}"),
        )
        for e in listeners
    ]


def _supported_features(
    make: Callable[..., T], features: Mapping[str, tuple[int, int]], tags: Mapping[str, Any]
) -> list[T]:
    return [
        _tagged(
            make(name=name, min_supported_version=low, max_supported_version=high),
            tags.get(f"feature {name}"),
        )
        for name, (low, high) in features.items()
    ]


def partition_record(
    topic_id: bytes, partition_id: int, partition: PartitionImage, metadata_version: int
) -> PartitionRecord:
    """The partition as a record at this metadata.version."""
    record = PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
    if metadata_version >= FIRST_DIRECTORIES:
        record.directories = list(partition.directories)
    elif any(directory != MIGRATING_DIRECTORY for directory in partition.directories):
        raise _lost("directory assignments of replicas", metadata_version)
    if partition.elr or partition.last_known_elr:
        if metadata_version < FIRST_ELR_RECORDS:
            raise _lost("eligible leader replicas", metadata_version)
        record.eligible_leader_replicas = list(partition.elr) or None
        record.last_known_elr = list(partition.last_known_elr) or None
    return record


def _since(records: Iterable[Any], level: int, first: int, what: str) -> Iterator[Any]:
    """The records, if the metadata.version supports them. Raises MetadataError otherwise."""
    for record in records:
        if level < first:
            raise _lost(what, level)
        yield record


def _lost(what: str, level: int) -> MetadataError:
    """The error for a part of the image that would be lost at this metadata.version."""
    return MetadataError(f"metadata.version {level} has no record for {what}, which the image holds")


T = TypeVar("T", bound=Struct)


def _tagged(record: T, tags: UnknownTags | None) -> T:
    """Adds unknown tagged fields to a record."""
    if tags:
        record.unknown_tags = dict(tags)
    return record
