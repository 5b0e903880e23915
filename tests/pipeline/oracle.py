"""The controller's image as rows of the lake's tables, to compare the two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from quorate.admin.types import AclOperation, AclPermissionType, PatternType, ResourceType
from quorate.metadata.framing import decode_record
from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.image.builder import apply_records
from quorate.protocol.config_resource import ConfigResourceType
from quorate.protocol.schema import Data
from quorate.protocol.uuids import uuid_text
from quorate.records.batch import iter_batches, metadata_values

Rows = dict[str, dict[Any, dict[str, Any]]]
"""Table -> key -> the other columns."""


def log_records(folder: Path) -> Iterator[tuple[int, list[Data]]]:
    """Last offset and records of each batch of the segments; control batches have no records."""
    for path in sorted(folder.glob("*.log")):
        for header, batch in iter_batches(path.read_bytes()):
            values = [] if header.is_control else metadata_values(batch)
            yield header.last_offset, [decode_record(value)[0] for value in values]


def images(batches: Iterator[tuple[int, list[Data]]]) -> Iterator[tuple[int, MetadataImage]]:
    """The image after each offset."""
    image = EMPTY
    for last, records in batches:
        for at, record in enumerate(records):
            offset = last - len(records) + 1 + at
            image = apply_records(image, [record], offset=offset, epoch=1, timestamp_ms=0)
            yield offset, image
        if not records:
            yield last, image


def rows_of(image: MetadataImage) -> Rows:
    """The rows of an image, table by table."""
    topics = image.topics.by_id.values()
    return {
        "topics": {(uuid_text(topic.id),): {"topic": topic.name} for topic in topics},
        "partitions": {
            (uuid_text(topic.id), number): _partition(topic.name, topic.partitions.get(number))
            for topic in topics
            for number in topic.partitions.ids()
        },
        "brokers": {(broker.id,): _broker(broker) for broker in image.cluster.brokers.values()},
        "controllers": {
            (found.id,): {
                "incarnation_id": uuid_text(found.incarnation_id),
                "zk_migration_ready": found.zk_migration_ready,
                "end_points": _end_points(found.listeners),
                "features": _features(found.features),
            }
            for found in image.cluster.controllers.values()
        },
        "configs": {
            (ConfigResourceType.name_of(kind), name, key): {"value": value, "topic_id": _id(image, kind, name)}
            for (kind, name), entries in image.configs.resources.items()
            for key, value in entries.items()
        },
        "features": {(name,): {"level": level} for name, level in image.features.finalized.items()},
        "quotas": {
            (tuple(entity), key): {"value": value}
            for entity, entries in image.client_quotas.entities.items()
            for key, value in entries.items()
        },
        "producer_ids": {("newest",): {"next_producer_id": image.producer_ids.next_producer_id}}
        if image.producer_ids.next_producer_id >= 0
        else {},
        "acls": {(uuid_text(acl.id),): _acl(acl) for acl in image.acls.by_id.values()},
        "scram_users": {
            (name, {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}[mechanism]): {"iterations": found.iterations}
            for (mechanism, name), found in image.scram.credentials.items()
        },
        "tokens": {
            (token.token_id,): {
                "owner": token.owner, "requester": token.requester, "renewers": token.renewers,
                "issue_time": _time(token.issue_timestamp), "max_time": _time(token.max_timestamp),
                "expiration_time": _time(token.expiration_timestamp),
            }
            for token in image.delegation_tokens.tokens.values()
        },
    }  # fmt: skip


def _id(image: MetadataImage, kind: int, name: str) -> str | None:
    topic = image.topics.get(name) if kind == ConfigResourceType.TOPIC else None
    return None if topic is None else uuid_text(topic.id)


def _partition(topic: str, found: Any) -> dict[str, Any]:
    lists = ("replicas", "isr", "removing_replicas", "adding_replicas", "elr", "last_known_elr")
    numbers = ("leader", "leader_recovery_state", "leader_epoch", "partition_epoch")
    return {
        "topic": topic,
        "directories": [uuid_text(directory) for directory in found.directories],
        **{name: list(getattr(found, name)) for name in lists},
        **{name: getattr(found, name) for name in numbers},
    }


def _broker(found: Any) -> dict[str, Any]:
    cordoned = found.cordoned_log_dirs
    return {
        "rack": found.rack,
        "fenced": found.fenced,
        "in_controlled_shutdown": found.in_controlled_shutdown,
        "start_time": _time(found.start_time_ms) if found.start_time_ms else None,
        "broker_epoch": found.epoch,
        "incarnation_id": uuid_text(found.incarnation_id),
        "log_dirs": sorted(map(uuid_text, found.log_dirs)),
        "cordoned_log_dirs": None if cordoned is None else [uuid_text(directory) for directory in cordoned],
        "end_points": _end_points(found.listeners),
        "features": _features(found.features),
    }


def _acl(acl: Any) -> dict[str, Any]:
    return {
        "resource_type": ResourceType(acl.resource_type).name
        if acl.resource_type < 8
        else str(acl.resource_type),
        "resource_name": acl.resource_name,
        "pattern_type": PatternType(acl.pattern_type).name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": AclOperation(acl.operation).name,
        "permission_type": AclPermissionType(acl.permission_type).name,
    }


def _end_points(listeners: Sequence[Any]) -> list[dict[str, Any]]:
    names = ("name", "host", "port", "security_protocol")
    return [{name: getattr(listener, name) for name in names} for listener in listeners]


def _features(features: Any) -> list[dict[str, Any]]:
    return [
        {"name": name, "min_supported_version": low, "max_supported_version": high}
        for name, (low, high) in sorted(features.items())
    ]


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
