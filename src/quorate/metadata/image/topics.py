"""Topics in the image: by id, by name, and the index from a broker to what it holds and leads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from immutables import Map

from quorate.metadata.image.partition_table import PartitionTable
from quorate.metadata.image.partitions import NO_LEADER, PartitionImage


class TopicImage(NamedTuple):
    """A topic: its name, id (16 bytes) and partitions."""

    name: str
    id: bytes
    partitions: PartitionTable


BrokerIndex = Map[int, Map[bytes, int]]
"""broker id -> topic id -> bit set of partition ids (bit n set: partition n)."""


def bits_of(bits: int) -> Iterator[int]:
    """Positions of the set bits, ascending; linear in the size of the set."""
    if bits < 1 << 64:
        while bits:
            low = bits & -bits
            yield low.bit_length() - 1
            bits ^= low
        return
    for number, byte in enumerate(bits.to_bytes((bits.bit_length() + 7) // 8, "little")):
        if byte:
            base = number * 8
            for position in _POSITIONS[byte]:
                yield base + position


_POSITIONS = tuple([tuple([bit for bit in range(8) if byte >> bit & 1]) for byte in range(256)])

_NOTHING: Map[bytes, int] = Map()


_NONE: Map[Any, Any] = Map()


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """All topics. `partition_count` counts their partitions.

    The two indexes are part of the value and kept by the builder, so that fencing a broker costs as
    much as it has, not as much as there is.
    """

    by_id: Map[bytes, TopicImage] = _NONE
    by_name: Map[str, TopicImage] = _NONE
    partition_count: int = 0
    replica_index: BrokerIndex = _NONE
    leader_index: BrokerIndex = _NONE

    def get(self, name: str) -> TopicImage | None:
        """The topic of that name, None when there is none."""
        return self.by_name.get(name)

    def partition(self, topic_id: bytes, partition_id: int) -> PartitionImage | None:
        """One partition by topic id, None when there is none."""
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(partition_id)

    def partition_of(self, name: str, partition_id: int) -> PartitionImage | None:
        """One partition by topic name, None when there is none."""
        topic = self.by_name.get(name)
        return None if topic is None else topic.partitions.get(partition_id)

    def partitions_of(self, broker_id: int) -> Iterator[tuple[bytes, int]]:
        """(topic id, partition id) of every replica that the broker holds (ISR and ELR members are
        among them)."""
        return _walk(self.replica_index, broker_id)

    def leaders_of(self, broker_id: int) -> Iterator[tuple[bytes, int]]:
        """(topic id, partition id) of every partition that the broker leads; -1 gives the leaderless ones."""
        return _walk(self.leader_index, broker_id)

    def leaderless(self) -> Iterator[tuple[bytes, int]]:
        """(topic id, partition id) of every partition without a leader."""
        return _walk(self.leader_index, NO_LEADER)

    def replica_count(self, broker_id: int) -> int:
        """How many replicas the broker holds."""
        return sum(bits.bit_count() for bits in self.replica_index.get(broker_id, _NOTHING).values())

    def leader_count(self, broker_id: int) -> int:
        """How many partitions the broker leads."""
        return sum(bits.bit_count() for bits in self.leader_index.get(broker_id, _NOTHING).values())

    def leads_any(self, broker_id: int) -> bool:
        """Whether the broker leads a partition."""
        return broker_id in self.leader_index

    def __repr__(self) -> str:
        return f"TopicsImage(topics={len(self.by_id)}, partitions={self.partition_count})"


def _walk(index: BrokerIndex, broker_id: int) -> Iterator[tuple[bytes, int]]:
    for topic_id, bits in index.get(broker_id, _NOTHING).items():
        for partition_id in bits_of(bits):
            yield topic_id, partition_id
