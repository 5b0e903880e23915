"""Creates topics that a client or a coordinator needs (`AutoTopicCreationManager` in Kafka).

There is one creation of a name at a time, and concurrent callers share its future. The future is done when
this broker's metadata has the topics of the creation, or when the controller has rejected them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quorate.broker.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from quorate.lazy import lazy_module
from quorate.protocol.api import REGISTRY, ApiKey, encode_request
from quorate.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from quorate.broker.controller_channel import ControllerChannel
    from quorate.broker.metadata.publisher import BrokerMetadataListener
    from quorate.config.kafka_config import KafkaConfig
    from quorate.net.dispatch import RequestContext
    from quorate.protocol.messages import create_topics
    from quorate.protocol.messages.create_topics import CreateTopicsRequest
else:
    create_topics = lazy_module("quorate.protocol.messages.create_topics")

logger = logging.getLogger("quorate.broker.topic_creation")

_VISIBLE_WAIT_S = 5.0

_PARTITIONS_AT_ONCE = 500
"""Partitions that one request creates: the controller takes some hundredths of a second for it."""

_MOST_SHOWN = 5
"""Topics of one request that the log names."""


class TopicCreator:
    """Creates topics through the active controller."""

    def __init__(
        self,
        config: KafkaConfig,
        channel: ControllerChannel,
        publisher: BrokerMetadataListener,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._config = config
        self._channel = channel
        self._publisher = publisher
        self._loop = loop
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def create(self, name: str, context: RequestContext | None = None) -> asyncio.Future[None]:
        """Creates a topic with this broker's defaults, or an internal topic with its settings. With `context`
        the request is forwarded in the name of that client. The future never fails: errors are logged,
        and the caller checks the metadata."""
        return self.create_all([name], context)[0]

    def create_all(
        self, names: Sequence[str], context: RequestContext | None = None
    ) -> list[asyncio.Future[None]]:
        """Creates topics as `create` does, many with one request. Returns the futures of the creations under
        way that have these names: several names may share one."""
        new = [name for name in dict.fromkeys(names) if name not in self._under_way]
        if new:
            task = self._loop.create_task(self._create(new, context))
            self._under_way |= dict.fromkeys(new, task)
            task.add_done_callback(lambda _task: self._forget(new, task))
        return [asyncio.shield(task) for task in {self._under_way[name] for name in names}]

    def _forget(self, names: Iterable[str], task: asyncio.Task[None]) -> None:
        """Lets a later caller create these topics again."""
        for name in names:
            if self._under_way.get(name) is task:
                del self._under_way[name]

    async def _create(self, names: list[str], context: RequestContext | None) -> None:
        """Creates topics in parts, one after the other: the requests of other clients get their turns in
        between. Nothing more is sent after a part that the controller does not answer."""
        task = self._under_way[names[0]]
        for part in self._parts([name for name in names if name not in self._publisher.image.topics.by_name]):
            if not await self._create_part(part, context):
                return
            self._forget([topic.name for topic in part], task)

    def _parts(self, names: list[str]) -> Iterator[list[CreateTopicsRequest.CreatableTopic]]:
        """The topics of each request."""
        part: list[CreateTopicsRequest.CreatableTopic] = []
        partitions = 0
        for topic in map(self._topic, names):
            if part and partitions + topic.num_partitions > _PARTITIONS_AT_ONCE:
                yield part
                part, partitions = [], 0
            part.append(topic)
            partitions += topic.num_partitions
        if part:
            yield part

    async def _create_part(
        self, topics: list[CreateTopicsRequest.CreatableTopic], context: RequestContext | None
    ) -> bool:
        """Creates topics with one request. Returns whether the controller has answered it."""
        node_id, timeout_s = self._config.node_id, self._config.request_timeout_ms / 1000
        request = create_topics.CreateTopicsRequest(topics=topics, timeout_ms=self._config.request_timeout_ms)
        shown = ", ".join([topic.name for topic in topics[:_MOST_SHOWN]])
        if len(topics) > _MOST_SHOWN:
            shown += f" and {len(topics) - _MOST_SHOWN} more"
        logger.info("[TopicCreator broker=%d] Asking the controller to create topic %s", node_id, shown)
        try:
            if context is None:
                response: Any = await self._channel.send(request, timeout_s)
            else:
                response = await self._forward(request, context, timeout_s)
        except (KafkaError, OSError, TimeoutError) as error:
            logger.warning("[TopicCreator broker=%d] Creating topic %s failed: %s", node_id, shown, error)
            return False
        created = {topic.name for topic in topics}
        refused = 0
        for topic in response.topics if response is not None else ():
            if topic.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                continue
            created.discard(topic.name)
            refused += 1
            if refused <= _MOST_SHOWN:
                logger.warning(
                    "[TopicCreator broker=%d] Topic %s was not created: %s %s",
                    node_id,
                    topic.name,
                    ErrorCode.of(topic.error_code).name,
                    topic.error_message or "",
                )
        if created:
            await self._publisher.wait_until(
                lambda image: all(name in image.topics.by_name for name in created), _VISIBLE_WAIT_S
            )
        return True

    async def _forward(self, request: CreateTopicsRequest, context: RequestContext, timeout_s: float) -> Any:
        version = REGISTRY[ApiKey.CREATE_TOPICS].max_version
        known = self._channel.api_versions
        if known is not None and ApiKey.CREATE_TOPICS in known:
            version = min(version, known[ApiKey.CREATE_TOPICS][1])
        frame = encode_request(context.correlation_id, context.client_id, request, version)
        inner = replace(
            context, api_key=int(ApiKey.CREATE_TOPICS), api_version=version, frame=None, connection=None
        )
        return await self._channel.forward_frame(inner, request, frame, timeout_s)

    def _topic(self, name: str) -> CreateTopicsRequest.CreatableTopic:
        config = self._config
        configs: dict[str, str] = {}
        if name == GROUP_METADATA_TOPIC:
            partitions = config.offsets_topic_num_partitions
            replicas = config.offsets_topic_replication_factor
            configs = {
                "compression.type": "producer",
                "cleanup.policy": "compact",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            }
        elif name == TRANSACTION_STATE_TOPIC:
            partitions = config.transaction_state_log_num_partitions
            replicas = config.transaction_state_log_replication_factor
            configs = {
                "unclean.leader.election.enable": "false",
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            }
        else:
            partitions = config.num_partitions
            replicas = config.default_replication_factor
        return create_topics.CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[
                create_topics.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                for key, value in configs.items()
            ],
        )
