"""OffsetForLeaderEpoch (23), versions 2 to 4: the end offset of a leader epoch (KIP-101, KIP-279,
KIP-320)."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from quorate.net.turns import Rounds
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import KafkaError
from quorate.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import Handler, RequestContext


AT_ONCE = 100
"""Partitions of a request that are looked up in one turn of the event loop, in a millisecond or two."""

Answer = OffsetForLeaderEpochResponse.EpochEndOffset


def lookup(
    services: Services, rounds: Rounds, _context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Any:
    """Returns the end offset of each requested epoch."""
    results = (
        _end_offset(services, topic.topic, part) for topic in request.topics for part in topic.partitions
    )
    count = sum([len(topic.partitions) for topic in request.topics])
    return rounds.answer(count, results, partial(_response, request))


def _response(request: OffsetForLeaderEpochRequest, results: list[Answer]) -> OffsetForLeaderEpochResponse:
    rest = iter(results)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=list(islice(rest, len(topic.partitions)))
            )
            for topic in request.topics
        ]
    )


def _end_offset(
    services: Services, topic: str, part: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> Answer:
    result = Answer(partition=part.partition)
    try:
        partition = services.replicas.partition(topic, part.partition)
        partition.check_leader(part.current_leader_epoch)
        known = partition.log.end_offset_for_epoch(part.leader_epoch)
        if known is not None:
            result.leader_epoch, result.end_offset = known
    except KafkaError as error:
        result.error_code = error.code
    return result


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {int(ApiKey.OFFSET_FOR_LEADER_EPOCH): partial(lookup, services, Rounds(AT_ONCE))}
