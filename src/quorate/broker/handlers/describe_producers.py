"""DescribeProducers (61), version 0: the producer states of partitions (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.broker.metadata.cache import unknown_topic_error
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import KafkaError
from quorate.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import Handler, RequestContext


def describe(
    services: Services, _context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Describes the producers of each partition."""
    response = DescribeProducersResponse()
    for topic in request.topics:
        partitions = []
        known = services.metadata.topic(topic.name) is not None
        for index in topic.partition_indexes:
            answer = DescribeProducersResponse.PartitionResponse(partition_index=index)
            partitions.append(answer)
            if not known:
                answer.error_code = unknown_topic_error(topic.name)
                continue
            try:
                log = services.replicas.partition(topic.name, index).log
            except KafkaError as error:
                answer.error_code = error.code
                answer.error_message = error.message
                continue
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
        response.topics.append(
            DescribeProducersResponse.TopicResponse(name=topic.name, partitions=partitions)
        )
    return response


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {int(ApiKey.DESCRIBE_PRODUCERS): lambda context, request: describe(services, context, request)}
