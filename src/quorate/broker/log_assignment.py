"""Whether the metadata assigns a log on disk to this broker, and in which directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quorate.metadata.image import MetadataImage, PartitionImage


def is_stray(image: MetadataImage, node_id: int, topic: str, partition: int, topic_id: bytes | None) -> bool:
    """Whether the metadata does not assign this log to this broker."""
    found = image.topics.by_name.get(topic) if topic_id is None else image.topics.by_id.get(topic_id)
    return found is None or node_id not in replicas_of(found.partitions.get(partition))


def assigned_directory(image: MetadataImage, node_id: int, topic_id: bytes, partition: int) -> bytes:
    """The id of the directory that the metadata assigns to a replica of this broker, which is no stray."""
    return image.topics.by_id[topic_id].partitions[partition].directory(node_id)


def replicas_of(partition: PartitionImage | None) -> tuple[int, ...]:
    """The brokers with a replica of a partition, which may not exist."""
    return () if partition is None else partition.replicas
