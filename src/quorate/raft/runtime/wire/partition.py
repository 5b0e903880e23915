"""What the translation of all messages shares: the metadata partition, endpoints and leader ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from quorate.protocol.metadata_partition import METADATA_TOPIC
from quorate.raft.types import METADATA_PARTITION, Endpoints

if TYPE_CHECKING:
    pass


class WireError(Exception):
    """A response without the metadata partition."""


def metadata_partition(topics: Any, name: str = "topic_name") -> Any | None:
    """The metadata partition of a message, or None if the message is about anything else."""
    if len(topics) != 1 or getattr(topics[0], name) != METADATA_TOPIC or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    index = partition.partition_index if hasattr(partition, "partition_index") else partition.partition
    return partition if index == METADATA_PARTITION else None


def endpoints_of(listeners: Iterable[Any]) -> Endpoints:
    return {e.name: (e.host, e.port) for e in listeners}


def leader_from_wire(leader_id: int) -> int | None:
    return None if leader_id < 0 else leader_id


def leader_to_wire(leader_id: int | None) -> int:
    return -1 if leader_id is None else leader_id
