"""DescribeProducers (61), version 0: the producer states of partitions (KIP-664)."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from quorate.broker.metadata.cache import unknown_topic_error
from quorate.broker.topic_names import topic_name_problem
from quorate.net.turns import Rounds
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import KafkaError
from quorate.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import Handler, RequestContext


AT_ONCE = 100
"""Partitions of a request that are described in one turn of the event loop."""

Answer = DescribeProducersResponse.PartitionResponse


def describe(
    services: Services, rounds: Rounds, _context: RequestContext, request: DescribeProducersRequest
) -> Any:
    """Describes the producers of each partition."""
    answers = (
        _describe(services, topic.name, index)
        for topic in request.topics
        for index in topic.partition_indexes
    )
    count = sum([len(topic.partition_indexes) for topic in request.topics])
    return rounds.answer(count, answers, partial(_response, request))


def _response(request: DescribeProducersRequest, answers: list[Answer]) -> DescribeProducersResponse:
    rest = iter(answers)
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name, partitions=list(islice(rest, len(topic.partition_indexes)))
            )
            for topic in request.topics
        ]
    )


def _describe(services: Services, topic: str, index: int) -> Answer:
    answer = Answer(partition_index=index)
    if services.metadata.topic(topic) is None:
        answer.error_code = unknown_topic_error(topic)
        problem = topic_name_problem(topic)
        answer.error_message = (
            "This server does not host this topic-partition."
            if problem is None
            else f"Topic name is invalid: {problem}"
        )
        return answer
    try:
        log = services.replicas.partition(topic, index).log
    except KafkaError as error:
        answer.error_code = error.code
        answer.error_message = error.message
        return answer
    answer.active_producers = [
        DescribeProducersResponse.ProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.current_txn_first_offset,
        )
        for producer in log.active_producers()
    ]
    return answer


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {int(ApiKey.DESCRIBE_PRODUCERS): partial(describe, services, Rounds(AT_ONCE))}
