"""DescribeTopicPartitions (75), version 0 (KIP-966): pages of partitions with their eligible leader
replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.broker.authorized_operations import TOPIC_OPERATIONS
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import Handler, RequestContext


def describe(
    services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Describes a page of partitions."""
    cursor = request.cursor
    first = cursor.topic_name if cursor is not None else ""
    everything = not request.topics
    asked = (
        services.metadata.image.topics.by_name.keys()
        if everything
        else [topic.name for topic in request.topics]
    )
    names = sorted({name for name in asked if name >= first})
    if cursor is not None:
        if not everything and cursor.topic_name not in names:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "DescribeTopicPartitionsRequest topic list should contain the cursor topic: "
                + cursor.topic_name,
            )
        if cursor.partition_index < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor.partition_index}",
            )
    limit = max(1, min(services.config.max_request_partition_size_limit, request.response_partition_limit))
    start_of = {first: cursor.partition_index} if cursor is not None else {}
    answer = services.metadata.describe_topics(
        names, context.listener, start_of, limit, ignore_unknown=everything
    )
    for topic in answer.topics:
        topic.topic_authorized_operations = TOPIC_OPERATIONS
    return answer


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {
        int(ApiKey.DESCRIBE_TOPIC_PARTITIONS): lambda context, request: describe(services, context, request)
    }
