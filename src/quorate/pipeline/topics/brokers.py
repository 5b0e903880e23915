"""A blocking client of a cluster's brokers: which topics there are, and from where to where they reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from quorate.admin.errors import KafkaError, error_text
from quorate.admin.operations.topics import EARLIEST, LATEST
from quorate.admin.sync import AdminClient
from quorate.admin.types import TopicPartition
from quorate.dataclass import dataclass
from quorate.protocol.uuids import uuid_text


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. A topic that was deleted and created anew has another id."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]


class Extent(NamedTuple):
    """The offsets of a partition: of its first record, and after its last committed one."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Extents:
    """The offsets of partitions."""

    found: Mapping[TopicPartition, Extent]
    unreadable: Mapping[TopicPartition, str]
    """The partitions that cannot be read now, for example because they have no leader, and the reason."""


class Brokers:
    """Connections to the brokers of one cluster, which `close` ends."""

    def __init__(self, servers: str, properties: Mapping[str, str]) -> None:
        """`servers` are addresses with commas, `properties` Kafka's properties of clients.

        Raises ValueError, KafkaError and NetError.
        """
        self.servers = servers
        self.properties = dict(properties)
        self._admin = AdminClient.from_properties(properties, bootstrap_servers=servers)
        try:
            self.cluster_id = self._admin.describe_cluster().cluster_id
        except BaseException:
            self._admin.close()
            raise

    def topics(self, matches: Callable[[str], bool]) -> dict[str, Topic]:
        """The topics with such a name, by their id. Internal topics are not among them."""
        described = self._admin.describe_all_topics()
        found = [
            Topic(name, uuid_text(topic.topic_id), tuple(sorted([p.partition for p in topic.partitions])))
            for name, topic in described.items()
            if matches(name) and not topic.internal
        ]
        return {topic.topic_id: topic for topic in sorted(found, key=lambda topic: topic.name)}

    def extents(self, topics: Iterable[Topic]) -> Extents:
        """The offsets of all partitions of topics. Records of open transactions are not within them."""
        partitions = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
        starts = self._admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = self._admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
        found, unreadable = {}, {}
        for partition in partitions:
            start, end = starts[partition], ends[partition]
            for answer in (start, end):
                if isinstance(answer, KafkaError):
                    unreadable[partition] = error_text(answer)
            if not isinstance(start, KafkaError) and not isinstance(end, KafkaError):
                found[partition] = Extent(start.offset, end.offset)
        return Extents(found, unreadable)

    def close(self) -> None:
        """Closes the connections."""
        self._admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
