"""The bytes of replicas, as far as brokers tell."""

from __future__ import annotations


class ReplicaSizes:
    """The bytes of each replica on each broker."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, list[int]]] = {}
        """By topic and partition the brokers and their bytes, in turn."""

    def add(self, topic: str, partition: int, broker: int, size: int) -> None:
        self._topics.setdefault(topic, {}).setdefault(partition, []).extend((broker, size))

    def of(self, topic: str, partition: int, leader: int) -> int | None:
        """Returns the bytes of one replica: those on the leader, or else the most, because a
        follower may be behind. None if no broker tells."""
        found = self._topics.get(topic, {}).get(partition)
        if found is None:
            return None
        brokers, sizes = found[::2], found[1::2]
        return sizes[brokers.index(leader)] if leader in brokers else max(sizes)
