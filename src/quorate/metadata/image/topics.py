"""Topics by id and by name, and the indexes from a broker to its replicas and leaderships."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
"""broker id -> topic id -> bit set of partition ids. Bit n stands for partition n."""


def bits_of(bits: int) -> Iterator[int]:
    """The positions of the set bits, in ascending order. The time is linear in the size of the set."""
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
    """All topics. `partition_count` is the number of their partitions.

    The indexes are part of the value, and the builder maintains them. Fencing a broker therefore takes
    time in proportion to the broker's partitions, not to all partitions of the cluster.
    """

    by_id: Map[bytes, TopicImage] = _NONE
    by_name: Map[str, TopicImage] = _NONE
    partition_count: int = 0
    replica_index: BrokerIndex = _NONE
    leader_index: BrokerIndex = _NONE

    def get(self, name: str) -> TopicImage | None:
        """The topic with this name, or None."""
        return self.by_name.get(name)

    def partition(self, topic_id: bytes, partition_id: int) -> PartitionImage | None:
        """A partition by topic id, or None."""
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(partition_id)

    def partition_of(self, name: str, partition_id: int) -> PartitionImage | None:
        """A partition by topic name, or None."""
        topic = self.by_name.get(name)
        return None if topic is None else topic.partitions.get(partition_id)

    def partitions_of(self, broker_id: int) -> Iterator[tuple[bytes, int]]:
        """(topic id, partition id) of every replica on the broker. The members of ISR and ELR are among
        the replicas."""
        return _walk(self.replica_index, broker_id)

    def partitions_of_all(self, broker_ids: Sequence[int]) -> Iterator[tuple[bytes, int]]:
        """(topic id, partition id) of every partition with a replica on one of the brokers, each once. Those
        that one of them leads come first, and the partitions of a topic follow one another.

        Partition id -1 stands for topics that have no further partition. Without it, the caller could not pause
        between very many of them.
        """
        leaders = [self.leader_index[b] for b in broker_ids if b in self.leader_index]
        replicas = [self.replica_index[b] for b in broker_ids if b in self.replica_index]
        for topic_id, bits in _merged(leaders):
            if not bits:
                yield topic_id, -1
            for partition_id in bits_of(bits):
                yield topic_id, partition_id
        for topic_id, bits in _merged(replicas):
            for led in leaders:
                bits &= ~led.get(topic_id, 0)
            if not bits:
                yield topic_id, -1
            for partition_id in bits_of(bits):
                yield topic_id, partition_id

    def leaders_of(self, broker_id: int) -> Iterator[tuple[bytes, int]]:
        """(topic id, partition id) of every partition that the broker leads. Broker id -1 stands for the
        partitions without a leader."""
        return _walk(self.leader_index, broker_id)

    def leaderless(self) -> Iterator[tuple[bytes, int]]:
        """(topic id, partition id) of every partition without a leader."""
        return _walk(self.leader_index, NO_LEADER)

    def replica_count(self, broker_id: int) -> int:
        """The number of replicas on the broker."""
        return sum(bits.bit_count() for bits in self.replica_index.get(broker_id, _NOTHING).values())

    def leader_count(self, broker_id: int) -> int:
        """The number of partitions that the broker leads."""
        return sum(bits.bit_count() for bits in self.leader_index.get(broker_id, _NOTHING).values())

    def leads_any(self, broker_id: int) -> bool:
        """Whether the broker leads a partition."""
        return broker_id in self.leader_index

    def __repr__(self) -> str:
        return f"TopicsImage(topics={len(self.by_id)}, partitions={self.partition_count})"


def _merged(indexes: Sequence[Map[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    """(topic id, bit set of the partitions on several brokers), each topic once. For every two topics that are
    skipped, because an earlier broker had them, it yields an empty set, so that a caller can pause."""
    seen = 0
    for position, index in enumerate(indexes):
        earlier, later = indexes[:position], indexes[position + 1 :]
        for topic_id, bits in index.items():
            for other in earlier:
                if topic_id in other:
                    seen += 1
                    if seen & 1 == 0:
                        yield topic_id, 0
                    break
            else:
                for other in later:
                    bits |= other.get(topic_id, 0)
                yield topic_id, bits


def _walk(index: BrokerIndex, broker_id: int) -> Iterator[tuple[bytes, int]]:
    for topic_id, bits in index.get(broker_id, _NOTHING).items():
        for partition_id in bits_of(bits):
            yield topic_id, partition_id
