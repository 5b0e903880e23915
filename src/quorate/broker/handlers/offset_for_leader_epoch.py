"""OffsetForLeaderEpoch (23), versions 2 to 4: the end offset of a leader epoch (KIP-101, KIP-279,
KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.protocol.api import ApiKey
from quorate.protocol.errors import KafkaError
from quorate.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import Handler, RequestContext


def lookup(
    services: Services, _context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Returns the end offset of each requested epoch."""
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        results = []
        for part in topic.partitions:
            result = OffsetForLeaderEpochResponse.EpochEndOffset(partition=part.partition)
            results.append(result)
            try:
                partition = services.replicas.partition(topic.topic, part.partition)
                partition.check_leader(part.current_leader_epoch)
                known = partition.log.end_offset_for_epoch(part.leader_epoch)
                if known is not None:
                    result.leader_epoch, result.end_offset = known
            except KafkaError as error:
                result.error_code = error.code
        response.topics.append(
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=results)
        )
    return response


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {int(ApiKey.OFFSET_FOR_LEADER_EPOCH): lambda context, request: lookup(services, context, request)}
