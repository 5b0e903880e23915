"""Where partitions are led, as producer and consumer need it: asked when missing, dropped when an answer says that it has
changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from quorate.admin.errors import ErrorCode, KafkaError
from quorate.admin.transport import Transport
from quorate.admin.types import ClusterDescription, Node

RETRY_LEADER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors after which the metadata is asked again."""


@dataclass(frozen=True, slots=True)
class TopicLeaders:
    """One topic: id, and leader of each partition (-1: none now), by partition."""

    name: str
    topic_id: bytes
    leaders: tuple[int, ...]


class TopicMetadata:
    """A cache over the transport; creating topics on first use where the cluster allows it."""

    def __init__(self, transport: Transport, *, auto_create: bool = True) -> None:
        self.transport = transport
        self._auto_create = auto_create
        self._topics: dict[str, TopicLeaders] = {}

    def forget(self, name: str) -> None:
        self._topics.pop(name, None)

    async def topic(self, name: str) -> TopicLeaders:
        """The topic, waiting for it to be created and led. Raises what it cannot be had for."""
        known = self._topics.get(name)
        if known is not None:
            return known

        async def attempt() -> TopicLeaders:
            found = (await self._ask([name]))[0]
            code = ErrorCode.of(found.error_code)
            if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE) and self._auto_create:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"Topic {name} not present in metadata")
            if found.error_code:
                raise KafkaError(code, f"Topic {name}: {code.name.lower().replace('_', ' ')}")
            return self._keep(found)

        return await self.transport.until_answered(attempt, f"topic {name} in the metadata")

    async def all_topics(self) -> list[TopicLeaders]:
        """Every topic of the cluster that has no error."""
        return [self._keep(topic) for topic in await self._ask(None) if not topic.error_code]

    def _keep(self, found: Any) -> TopicLeaders:
        partitions = sorted(found.partitions, key=lambda p: int(p.partition_index))
        topic = TopicLeaders(found.name or "", found.topic_id, tuple(p.leader_id for p in partitions))
        if all(leader >= 0 for leader in topic.leaders):
            self._topics[topic.name] = topic
        return topic

    async def _ask(self, names: Iterable[str] | None) -> list[Any]:
        from quorate.protocol.messages.metadata import MetadataRequest

        topics = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        address = await self.transport.any_address()
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=self._auto_create and names is not None)
        answer = await self.transport.ask(address, request)
        nodes = tuple(Node(b.node_id, b.host, b.port, b.rack, b.start_time_ms) for b in answer.brokers)
        self.transport.cluster = ClusterDescription(answer.cluster_id or "", answer.controller_id, nodes)
        return list(answer.topics)
