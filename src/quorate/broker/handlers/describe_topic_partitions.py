"""DescribeTopicPartitions (75), version 0 (KIP-966): pages of partitions with their eligible leader
replicas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from quorate.broker.authorized_operations import TOPIC_OPERATIONS
from quorate.net.turns import Rounds
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import Handler, RequestContext


AT_ONCE = 200
"""Topics of a request that are looked up in one turn of the event loop. Unknown ones do not count for the
limit of a page."""


def describe(
    services: Services, rounds: Rounds, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Any:
    """Describes a page of partitions."""
    answer = DescribeTopicPartitionsResponse()

    def finish(_: list[None]) -> DescribeTopicPartitionsResponse:
        for topic in answer.topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
        return answer

    count = len(request.topics) or len(services.metadata.image.topics.by_name)
    return rounds.answer(count, _describe(services, context, request, answer), finish)


def _describe(
    services: Services,
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
    answer: DescribeTopicPartitionsResponse,
) -> Iterator[None]:
    cursor = request.cursor
    first = cursor.topic_name if cursor is not None else ""
    everything = not request.topics
    asked: Iterable[str] = (
        services.metadata.image.topics.by_name.keys()
        if everything
        else (topic.name for topic in request.topics)
    )
    names: list[str] = []  # a heap: to sort very many names at once would take long
    has_first = False
    for name in asked:
        if name >= first:
            heappush(names, name)
            has_first = has_first or name == first
        yield
    if cursor is not None:
        if not everything and not has_first:
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
    yield from services.metadata.describe_topics(
        answer, _once(names), context.listener, start_of, limit, ignore_unknown=everything
    )


def _once(names: list[str]) -> Iterator[str]:
    """Takes the names from a heap, in order and each once."""
    last = None
    while names:
        name = heappop(names)
        if name != last:
            yield name
            last = name


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {int(ApiKey.DESCRIBE_TOPIC_PARTITIONS): partial(describe, services, Rounds(AT_ONCE))}
