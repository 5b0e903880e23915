"""Creates topics that a client or a coordinator needs (`AutoTopicCreationManager` in Kafka).

There is one creation of a name at a time, and concurrent callers share its future. The future is done when
this broker's metadata has the topic, or when the controller has rejected the creation.
"""

from __future__ import annotations

import asyncio
import logging
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
        task = self._under_way.get(name)
        if task is None:
            task = self._under_way[name] = self._loop.create_task(self._create(name, context))
            task.add_done_callback(lambda _task: self._under_way.pop(name, None))
        return asyncio.shield(task)

    async def _create(self, name: str, context: RequestContext | None) -> None:
        if name in self._publisher.image.topics.by_name:
            return
        timeout_s = self._config.request_timeout_ms / 1000
        request = create_topics.CreateTopicsRequest(
            topics=[self._topic(name)], timeout_ms=self._config.request_timeout_ms
        )
        logger.info(
            "[TopicCreator broker=%d] Asking the controller to create topic %s", self._config.node_id, name
        )
        try:
            if context is None:
                response: Any = await self._channel.send(request, timeout_s)
            else:
                response = await self._forward(request, context, timeout_s)
        except (KafkaError, OSError, TimeoutError) as error:
            logger.warning(
                "[TopicCreator broker=%d] Creating topic %s failed: %s", self._config.node_id, name, error
            )
            return
        for topic in response.topics if response is not None else ():
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                logger.warning(
                    "[TopicCreator broker=%d] Topic %s was not created: %s %s",
                    self._config.node_id,
                    name,
                    ErrorCode.of(topic.error_code).name,
                    topic.error_message or "",
                )
                return
        await self._publisher.wait_until(lambda image: name in image.topics.by_name, _VISIBLE_WAIT_S)

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
