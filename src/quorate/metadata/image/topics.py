"""Topics by id and by name, the index from a broker to its replicas, and the number of leaders of
each broker; and the builders of the two, with which `topics_builder` applies changes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple

from immutables import Map

from quorate.dataclass import dataclass
from quorate.metadata.image.encoded import count_leaders
from quorate.metadata.image.partition_table import PartitionTable
from quorate.metadata.image.partitions import NO_LEADER, PartitionImage

_LEADERS: Final = Struct(">ii")
NO_LEADER_BYTES: Final = NO_LEADER.to_bytes(4, "big", signed=True)


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


@lru_cache(4_096)
def few_bits_of(bits: int) -> tuple[int, ...]:
    """The same for a set of small numbers.

    Most topics have few partitions, and the same sets occur in very many of them.
    """
    return tuple(bits_of(bits))


_POSITIONS = tuple([tuple([bit for bit in range(8) if byte >> bit & 1]) for byte in range(256)])

_NOTHING: Map[bytes, int] = Map()


_NONE: Map[Any, Any] = Map()


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """All topics. `partition_count` is the number of their partitions.

    The indexes are part of the value, and the builder maintains them. Fencing a broker therefore takes
    time in proportion to the broker's partitions, not to all partitions of the cluster. Leaderships are
    only counted: an index of them would have to change with each election, on every node.

    An image that is not `indexed` loads much faster. It is for readers that ask for topics only: the methods
    about brokers find nothing in it.
    """

    by_id: Map[bytes, TopicImage] = _NONE
    by_name: Map[str, TopicImage] = _NONE
    partition_count: int = 0
    replica_index: BrokerIndex = _NONE
    leader_counts: Map[int, int] = _NONE
    """broker id -> number of partitions that it leads. A broker that leads none is missing."""
    leaderless_index: Map[bytes, int] = _NONE
    """topic id -> bit set of the partitions without a leader."""
    indexed: bool = True

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
        for topic_id, bits in self.replica_index.get(broker_id, _NOTHING).items():
            for partition_id in bits_of(bits):
                yield topic_id, partition_id

    def topics_of(self, broker_ids: Sequence[int]) -> Iterator[tuple[bytes, int]]:
        """(topic id, bit set of the partitions with a replica on one of the brokers), each topic once.

        An empty bit set stands for topics that were skipped. Without it, the caller could not pause between
        very many of them.
        """
        return _merged([self.replica_index[b] for b in broker_ids if b in self.replica_index])

    def leaderless(self) -> Iterator[tuple[bytes, int]]:
        """(topic id, partition id) of every partition without a leader."""
        for topic_id, bits in self.leaderless_index.items():
            for partition_id in bits_of(bits):
                yield topic_id, partition_id

    def replica_count(self, broker_id: int) -> int:
        """The number of replicas on the broker."""
        return sum(bits.bit_count() for bits in self.replica_index.get(broker_id, _NOTHING).values())

    def leader_count(self, broker_id: int) -> int:
        """The number of partitions that the broker leads. Broker id -1 stands for the partitions without a
        leader."""
        return self.leader_counts.get(broker_id, 0)

    def leads_any(self, broker_id: int) -> bool:
        """Whether the broker leads a partition."""
        return broker_id in self.leader_counts

    def __repr__(self) -> str:
        return f"TopicsImage(topics={len(self.by_id)}, partitions={self.partition_count})"


PAUSE_TOPICS = 8


def _merged(indexes: Sequence[Map[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    """(topic id, bit set of the partitions on several brokers), each topic once.

    For every PAUSE_TOPICS that are skipped, because an earlier broker had them, it yields an empty
    set, so that a caller can pause.
    """
    skipped = 0
    for position, index in enumerate(indexes):
        earlier, later = indexes[:position], indexes[position + 1 :]
        for topic_id, bits in index.items():
            for other in earlier:
                if topic_id in other:
                    skipped += 1
                    if skipped % PAUSE_TOPICS == 0:
                        yield topic_id, 0
                    break
            else:
                for other in later:
                    bits |= other.get(topic_id, 0)
                yield topic_id, bits


BITMASK_LIMIT = 2048
"""Changes of partitions are collected as bits of an int if they are in a range of this length. Setting a bit
copies the int, which is at most 256 bytes long here. Other ids are collected in a set."""


class _BitsBuilder:
    """Collects the changes of a map from topic id to bit set of partitions, and applies the changes
    of each topic at once as two bit masks."""

    __slots__ = ("_added", "_base", "_dropped", "_large_added", "_large_removed", "_removed")

    def __init__(self, base: Map[bytes, int]) -> None:
        self._base = base
        self._dropped: set[bytes] = set()
        # Ints in dicts rather than sets: the garbage collector does not track them.
        self._added: dict[bytes, int] = {}
        self._removed: dict[bytes, int] = {}
        self._large_added: dict[bytes, set[int]] = {}
        self._large_removed: dict[bytes, set[int]] = {}

    def add(self, topic_id: bytes, partition_id: int) -> None:
        """Notes that the changes have created this partition."""
        if partition_id < BITMASK_LIMIT:
            self._added[topic_id] = self._added.get(topic_id, 0) | 1 << partition_id
        else:
            self._added.setdefault(topic_id, 0)
            self._large_added.setdefault(topic_id, set()).add(partition_id)

    def add_mask(self, topic_id: bytes, mask: int) -> None:
        """Adds the partitions of a bit mask."""
        self._added[topic_id] = self._added.get(topic_id, 0) | mask

    def discard(self, topic_id: bytes, partition_id: int) -> None:
        """Notes that the changes have removed this partition."""
        if partition_id < BITMASK_LIMIT:
            self._removed[topic_id] = self._removed.get(topic_id, 0) | 1 << partition_id
        else:
            self._removed.setdefault(topic_id, 0)
            self._large_removed.setdefault(topic_id, set()).add(partition_id)

    def drop_topic(self, topic_id: bytes) -> None:
        """Removes all partitions of a topic that were there before the changes."""
        self._dropped.add(topic_id)
        self._removed.setdefault(topic_id, 0)

    def finish(self) -> Map[bytes, int]:
        """The map after all changes."""
        if not self._added and not self._removed:
            return self._base
        mutation = self._base.mutate()
        for topic_id, mask in self._removed.items():
            if topic_id in self._large_removed:
                mask |= _mask(self._large_removed[topic_id])
            bits = 0 if topic_id in self._dropped else mutation.get(topic_id, 0) & ~mask
            if bits:
                mutation[topic_id] = bits
            elif topic_id in mutation:
                del mutation[topic_id]
        for topic_id, mask in self._added.items():
            if topic_id in self._large_added:
                mask |= _mask(self._large_added[topic_id])
            mutation[topic_id] = mutation.get(topic_id, 0) | mask
        return mutation.finish()


class ReplicaIndexBuilder:
    """Changes of the index from a broker to its replicas."""

    __slots__ = ("_base", "_brokers")

    def __init__(self, base: BrokerIndex) -> None:
        self._base = base
        self._brokers: dict[int, _BitsBuilder] = {}

    def of(self, broker_id: int) -> _BitsBuilder:
        """The replicas of a broker."""
        replicas = self._brokers.get(broker_id)
        if replicas is None:
            replicas = self._brokers[broker_id] = _BitsBuilder(self._base.get(broker_id, _NOTHING))
        return replicas

    def drop_topic(self, topic: TopicImage) -> None:
        """Removes all partitions of a topic that were there before the changes."""
        if len(topic.partitions) > len(self._base):
            brokers = {broker_id for broker_id, topics in self._base.items() if topic.id in topics}
        else:
            brokers = {broker_id for partition in topic.partitions for broker_id in partition.replicas}
        for broker_id in brokers:
            self.of(broker_id).drop_topic(topic.id)

    def finish(self) -> BrokerIndex:
        """The index after all changes."""
        if not self._brokers:
            return self._base
        index = self._base.mutate()
        for broker_id, replicas in self._brokers.items():
            after = replicas.finish()
            if len(after):
                index[broker_id] = after
            elif broker_id in index:
                del index[broker_id]
        return index.finish()


class LeadersBuilder:
    """Changes of the number of partitions that each broker leads, and of the partitions without a leader."""

    __slots__ = ("_base", "_counts", "_leaderless", "_moves")

    def __init__(self, base: TopicsImage) -> None:
        self._base = base
        self._counts: defaultdict[int, int] = defaultdict(int)
        self._moves: list[bytes] = []
        self._leaderless = _BitsBuilder(base.leaderless_index)

    def add(self, leader: int, topic_id: bytes, partition_id: int) -> None:
        """Adds a partition with this leader."""
        self._counts[leader] += 1
        if leader == NO_LEADER:
            self._leaderless.add(topic_id, partition_id)

    def add_all(self, leaders: Sequence[int], topic_id: bytes, partition_ids: Iterable[int]) -> None:
        """Adds partitions with these leaders."""
        for leader, count in Counter(leaders).items():
            self._counts[leader] += count
        if NO_LEADER in leaders:
            for leader, partition_id in zip(leaders, partition_ids, strict=True):
                if leader == NO_LEADER:
                    self._leaderless.add(topic_id, partition_id)

    def discard(self, leader: int, topic_id: bytes, partition_id: int) -> None:
        """Removes a partition with this leader."""
        self._counts[leader] -= 1
        if leader == NO_LEADER:
            self._leaderless.discard(topic_id, partition_id)

    def move(self, leaders: bytes, topic_id: bytes, partition_id: int) -> None:
        """Moves a partition from the first to the second of two leaders, each of four bytes."""
        old, new = _LEADERS.unpack(leaders)
        self.discard(old, topic_id, partition_id)
        self.add(new, topic_id, partition_id)

    def move_all(self, moves: list[bytes]) -> None:
        """Does the same for partitions that had a leader and still have one."""
        self._moves += moves

    def drop_topic(self, topic: TopicImage) -> None:
        """Removes all partitions of a topic that were there before the changes."""
        leaders = count_leaders([entry for _, entry in topic.partitions.entries()])
        for leader, count in leaders.items():
            self._counts[leader] -= count
        if topic.id in self._base.leaderless_index:
            self._leaderless.drop_topic(topic.id)

    def finish(self) -> tuple[Map[int, int], Map[bytes, int]]:
        """The counts and the partitions without a leader after all changes."""
        if self._moves:
            for leaders, moved in Counter(self._moves).items():
                old, new = _LEADERS.unpack(leaders)
                self._counts[old] -= moved
                self._counts[new] += moved
        counts = self._base.leader_counts
        if any(self._counts.values()):
            mutation = counts.mutate()
            for leader, change in self._counts.items():
                after = mutation.get(leader, 0) + change
                if after:
                    mutation[leader] = after
                elif leader in mutation:
                    del mutation[leader]
            counts = mutation.finish()
        return counts, self._leaderless.finish()


def _mask(positions: set[int]) -> int:
    """The bit mask of a set of partition ids."""
    room = bytearray(max(positions) // 8 + 1)
    for position in positions:
        room[position >> 3] |= 1 << (position & 7)
    return int.from_bytes(room, "little")
