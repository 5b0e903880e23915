"""The broker's published metadata: the latest image, and the responses that are read from it
(`KRaftMetadataCache` in Kafka).

The image is an immutable value. A caller that keeps `cache.image` sees one consistent state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from quorate.broker.topic_names import is_internal, topic_name_problem
from quorate.lazy import lazy_module
from quorate.metadata.image import EMPTY
from quorate.protocol.errors import ErrorCode
from quorate.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from quorate.metadata.image import (
        BrokerRegistration,
        ClusterImage,
        Endpoint,
        MetadataImage,
        PartitionImage,
        TopicImage,
    )
    from quorate.protocol.messages import describe_topic_partitions
    from quorate.protocol.messages import metadata as messages
    from quorate.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsResponse
    from quorate.protocol.messages.metadata import MetadataResponse
else:
    messages = lazy_module("quorate.protocol.messages.metadata")
    describe_topic_partitions = lazy_module("quorate.protocol.messages.describe_topic_partitions")

_LOST_DIRECTORY = bytes(15) + b"\x02"
_RESERVED_DIRECTORIES = frozenset({bytes(16), bytes(15) + b"\x01"})  # migrating, unassigned: count as online
NO_LEADER = -1


class MetadataCache:
    """The latest published image of this broker."""

    __slots__ = ("image",)

    def __init__(self, image: MetadataImage = EMPTY) -> None:
        self.image = image

    @property
    def offset(self) -> int:
        """The offset of the last record in the image, -1 before the first."""
        return self.image.provenance.offset

    # --- topics -----------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicImage | None:
        """The topic of this name, or None."""
        return self.image.topics.by_name.get(name)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic, or None."""
        topic = self.image.topics.by_id.get(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, name: str) -> bytes:
        """The id of a topic, or the zero UUID."""
        topic = self.image.topics.by_name.get(name)
        return ZERO_UUID if topic is None else topic.id

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        """The partition, or None."""
        found = self.image.topics.by_name.get(topic)
        return None if found is None else found.partitions.get(partition)

    def contains(self, topic: str, partition: int) -> bool:
        """Whether the partition exists."""
        return self.partition(topic, partition) is not None

    # --- brokers ----------------------------------------------------------------------------------

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """The registration of a broker, or None."""
        return self.image.cluster.brokers.get(broker_id)

    def alive_broker_epoch(self, broker_id: int) -> int | None:
        """The broker epoch of a registered broker that is not fenced, else None."""
        broker = self.image.cluster.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.epoch

    def is_fenced(self, broker_id: int) -> bool:
        """Whether the broker is registered and fenced."""
        broker = self.image.cluster.brokers.get(broker_id)
        return broker is not None and broker.fenced

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether the broker is in controlled shutdown."""
        broker = self.image.cluster.brokers.get(broker_id)
        return broker is not None and broker.in_controlled_shutdown

    def has_failed_directory(self, topic: str, partition: int, replica: int) -> bool:
        """Whether the log directory of a replica has failed, although its broker is registered. Such a
        replica cannot join the ISR, so no high watermark waits for it. (Kafka's does.)"""
        image, broker = self.partition(topic, partition), self.broker(replica)
        if image is None or broker is None or replica not in image.replicas:
            return False
        return _has_failed(image.directory(replica), broker)

    def alive_nodes(self, listener: str) -> list[tuple[BrokerRegistration, Endpoint]]:
        """The unfenced brokers that have the listener, with their endpoints, ordered by id."""
        return [
            (broker, endpoint)
            for _, broker in sorted(self.image.cluster.brokers.items())
            if not broker.fenced and (endpoint := broker.endpoint(listener)) is not None
        ]

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """The endpoint of a broker on a listener, or None."""
        broker = self.image.cluster.brokers.get(broker_id)
        return None if broker is None else broker.endpoint(listener)

    def some_alive_broker(self, preferred: int) -> int:
        """The id of the "controller" in responses, which is any live broker (KIP-631): this broker if it is
        unfenced, else another one, else -1."""
        brokers = self.image.cluster.brokers
        me = brokers.get(preferred)
        if me is not None and not me.fenced:
            return preferred
        return min((broker.id for broker in brokers.values() if not broker.fenced), default=-1)

    def current_leader(self, topic: str, partition: int) -> tuple[int, int]:
        """Returns (leader id, leader epoch) for the hints of KIP-951, or (-1, -1)."""
        image = self.partition(topic, partition)
        return (-1, -1) if image is None else (image.leader, image.leader_epoch)

    # --- responses --------------------------------------------------------------------------------

    def metadata_topic(self, topic: TopicImage) -> MetadataResponse.MetadataResponseTopic:
        """A topic of a Metadata response, without its partitions."""
        return messages.MetadataResponse.MetadataResponseTopic(
            name=topic.name, topic_id=topic.id, is_internal=is_internal(topic.name)
        )

    def metadata_partition(
        self,
        partition_id: int,
        image: PartitionImage,
        listener: str,
        *,
        filter_unavailable: bool = False,
        listener_errors: bool = True,
    ) -> MetadataResponse.MetadataResponsePartition:
        """A partition of a Metadata response. `filter_unavailable` (v0) drops dead replicas from the lists.
        `listener_errors` (v6+) gives LISTENER_NOT_FOUND for a leader without the listener."""
        cluster = self.image.cluster
        replicas = _alive(cluster, image.replicas, listener) if filter_unavailable else list(image.replicas)
        isr = _alive(cluster, image.isr, listener) if filter_unavailable else list(image.isr)
        error = ErrorCode.NONE
        leader = image.leader
        broker = cluster.brokers.get(leader)
        if broker is None or broker.endpoint(listener) is None:
            missing = broker is not None and listener_errors
            error = ErrorCode.LISTENER_NOT_FOUND if missing else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_LEADER
        elif len(replicas) < len(image.replicas) or len(isr) < len(image.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        return messages.MetadataResponse.MetadataResponsePartition(
            error_code=error,
            partition_index=partition_id,
            leader_id=leader,
            leader_epoch=image.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=_offline(cluster, image, listener),
        )

    def metadata_brokers(self, listener: str) -> list[MetadataResponse.MetadataResponseBroker]:
        """The live brokers of a Metadata response."""
        return [
            messages.MetadataResponse.MetadataResponseBroker(
                node_id=broker.id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                start_time_ms=broker.start_time_ms,
            )
            for broker, endpoint in self.alive_nodes(listener)
        ]

    def describe_topics(
        self,
        answer: DescribeTopicPartitionsResponse,
        names: Iterable[str],
        listener: str,
        start_of: dict[str, int],
        limit: int,
        *,
        ignore_unknown: bool,
    ) -> Iterator[None]:
        """Adds up to `limit` partitions of the topics to a response, one topic in each step. The names are
        sorted. The cursor of the response is where the next request continues."""
        make = describe_topic_partitions.DescribeTopicPartitionsResponse
        left = limit
        for name in names:
            if left <= 0:
                answer.next_cursor = make.Cursor(topic_name=name, partition_index=0)
                break
            topic = self.topic(name)
            if topic is None:
                if not ignore_unknown:
                    answer.topics.append(
                        make.DescribeTopicPartitionsResponseTopic(
                            error_code=unknown_topic_error(name), name=name, is_internal=is_internal(name)
                        )
                    )
                yield
                continue
            start = start_of.get(name, 0)
            end = min(len(topic.partitions), start + left)
            partitions = list(self._described_partitions(topic, listener, start, end))
            answer.topics.append(
                make.DescribeTopicPartitionsResponseTopic(
                    name=name, topic_id=topic.id, is_internal=is_internal(name), partitions=partitions
                )
            )
            if end < len(topic.partitions):
                answer.next_cursor = make.Cursor(topic_name=name, partition_index=end)
                break
            left -= len(partitions)
            yield

    def _described_partitions(
        self, topic: TopicImage, listener: str, start: int, end: int
    ) -> Iterator[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition]:
        make = (
            describe_topic_partitions.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
        )
        cluster = self.image.cluster
        for partition_id in range(start, end):
            image = topic.partitions.get(partition_id)
            if image is None:
                continue
            broker = cluster.brokers.get(image.leader)
            reachable = broker is not None and broker.endpoint(listener) is not None
            yield make(
                partition_index=partition_id,
                leader_id=image.leader if reachable else NO_LEADER,
                leader_epoch=image.leader_epoch,
                replica_nodes=list(image.replicas),
                isr_nodes=list(image.isr),
                offline_replicas=_offline(cluster, image, listener),
                eligible_leader_replicas=list(image.elr),
                last_known_elr=list(image.last_known_elr),
            )


def unknown_topic_error(name: str) -> ErrorCode:
    """The error for a topic that does not exist."""
    if topic_name_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _alive(cluster: ClusterImage, ids: Iterable[int], listener: str) -> list[int]:
    brokers = cluster.brokers
    return [
        broker_id
        for broker_id in ids
        if (broker := brokers.get(broker_id)) is not None
        and not broker.fenced
        and broker.endpoint(listener) is not None
    ]


def _offline(cluster: ClusterImage, image: PartitionImage, listener: str) -> list[int]:
    """Replicas that cannot be read: their broker is not registered, is fenced, or lacks the listener, or
    their directory failed."""
    offline = []
    brokers = cluster.brokers
    for broker_id, directory in zip(image.replicas, image.directories, strict=False):
        broker = brokers.get(broker_id)
        if (
            broker is None
            or broker.fenced
            or broker.endpoint(listener) is None
            or _has_failed(directory, broker)
        ):
            offline.append(broker_id)
    return offline


def _has_failed(directory: bytes, broker: BrokerRegistration) -> bool:
    """Whether a replica's directory is none of the online directories of its broker."""
    return directory == _LOST_DIRECTORY or (
        directory not in _RESERVED_DIRECTORIES and bool(broker.log_dirs) and directory not in broker.log_dirs
    )
