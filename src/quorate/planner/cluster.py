"""The partitions and brokers of a cluster, in arrays: the input of a plan.

A replica is a number in an array and not an object, because a cluster may have millions of them.
Partitions are in order of their bytes, then by topic and index. So a plan does not depend on the
order of its input, and the partition of a wanted size is found by bisection.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from quorate.dataclass import dataclass

NONE = -1
"""Stands for no broker."""


class PlanError(Exception):
    """No plan can do what was asked for. The message names the reason."""


@dataclass(frozen=True, slots=True, order=True)
class Unplaced:
    """A replica for which there is no broker."""

    topic: str
    partition: int
    replicas: int
    """How many the partition is to have."""
    size: int
    brokers: tuple[int, ...]
    """The brokers that could have it if they had room for its bytes. Without one, all have a
    replica already."""

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


class NoPlaceError(PlanError):
    """There is no broker for some replicas: all have one of the partition already, or none has room."""

    def __init__(self, unplaced: Sequence[Unplaced], brokers: Sequence[int]) -> None:
        """`brokers` are those that can have replicas at all."""
        self.unplaced = unplaced
        self.brokers = brokers
        first = unplaced[0]
        if first.brokers:
            text = (
                f"no broker that could have a replica of partition {first.name} has room for its "
                f"{first.size:,} bytes: {_joined(first.brokers)}"
            )
        else:
            text = (
                f"partition {first.name} is to have {first.replicas} replicas, but there are only "
                f"{len(brokers)} brokers that can have one: {_joined(brokers)}"
            )
        others = len({(each.topic, each.partition) for each in unplaced}) - 1
        super().__init__(f"{text}; and {others:,} more partitions" if others else text)


def _joined(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker. One that is not active keeps its replicas and gets none: it may come back."""

    id: int
    rack: str | None = None
    active: bool = True
    capacity: int | None = None
    """The most bytes that its replicas may have together. None is no limit."""
    largest: int | None = None
    """The most bytes that a replica may have that comes to it: the room of one of its disks. None
    is no limit."""


class Cluster:
    """Brokers, topics and partitions. Brokers and topics are referred to by their positions here."""

    def __init__(
        self,
        brokers: list[Broker],
        topics: list[str],
        topic_of: array[int],
        index_of: array[int],
        sizes: array[int],
        first: array[int],
        replicas: array[int],
        leaders: array[int],
    ) -> None:
        self.brokers = brokers
        """In order of id."""
        self.topics = topics
        """In order of name."""
        self.topic_of = topic_of
        self.index_of = index_of
        self.sizes = sizes
        """The bytes of one replica of each partition."""
        self.first = first
        """Where the replicas of each partition begin. The last entry is the number of replicas."""
        self.replicas = replicas
        """The brokers of all replicas. The first one of a partition is its preferred leader."""
        self.leaders = leaders
        """The leader of each partition, or NONE."""

    def __len__(self) -> int:
        """The number of partitions."""
        return len(self.sizes)

    def replicas_of(self, partition: int) -> array[int]:
        return self.replicas[self.first[partition] : self.first[partition + 1]]


class ClusterBuilder:
    """Collects brokers and partitions, in any order.

    builder = ClusterBuilder([Broker(1, "a"), Broker(2, "b")])
    builder.add("orders", 0, replicas=[1, 2], leader=1, size=1_000_000)
    cluster = builder.build()
    """

    def __init__(self, brokers: Iterable[Broker]) -> None:
        self._brokers = {broker.id: broker for broker in brokers}
        self._topics: dict[str, int] = {}
        self._topic_of = array("i")
        self._index_of = array("i")
        self._sizes = array("q")
        self._first = array("i", [0])
        self._replicas = array("i")
        self._leaders = array("i")

    def add(self, topic: str, partition: int, replicas: Sequence[int], leader: int, size: int) -> None:
        """Adds a partition. `leader` is -1 if it has none. A broker that is unknown counts as not active."""
        self._topic_of.append(self._topics.setdefault(topic, len(self._topics)))
        self._index_of.append(partition)
        self._sizes.append(size)
        self._replicas.extend(replicas)
        self._first.append(len(self._replicas))
        self._leaders.append(leader)

    def build(self) -> Cluster:
        """Raises PlanError if a partition occurs twice, has no replica, or has two on one broker."""
        for broker_id in set(self._replicas) - set(self._brokers):
            self._brokers[broker_id] = Broker(broker_id, active=False)
        brokers = [self._brokers[broker_id] for broker_id in sorted(self._brokers)]
        position = {broker.id: number for number, broker in enumerate(brokers)}
        topics = sorted(self._topics)
        rank = {self._topics[name]: number for number, name in enumerate(topics)}
        topic_of = array("i", [rank[topic] for topic in self._topic_of])
        order = list(range(len(self._sizes)))
        order.sort(key=self._index_of.__getitem__)  # stable sorts by one array each: no tuple per partition
        order.sort(key=topic_of.__getitem__)
        self._check(order, topics, topic_of)
        order.sort(key=self._sizes.__getitem__)
        replicas, first = array("i"), array("i", [0])
        for p in order:
            replicas.extend([position[b] for b in self._replicas[self._first[p] : self._first[p + 1]]])
            first.append(len(replicas))
        return Cluster(
            brokers,
            topics,
            array("i", [topic_of[p] for p in order]),
            array("i", [self._index_of[p] for p in order]),
            array("q", [self._sizes[p] for p in order]),
            first,
            replicas,
            array("i", [position.get(self._leaders[p], NONE) for p in order]),
        )

    def _check(self, order: Sequence[int], topics: Sequence[str], topic_of: Sequence[int]) -> None:
        before = (NONE, NONE)
        for p in order:
            key = (topic_of[p], self._index_of[p])
            replicas = self._replicas[self._first[p] : self._first[p + 1]]
            if key == before or not replicas or len(set(replicas)) < len(replicas):
                reason = "occurs twice" if key == before else "has no replica, or two on one broker"
                raise PlanError(f"partition {topics[key[0]]}-{key[1]} {reason}")
            before = key
