"""ListOffsets (2), versions 1 to 10.

2 isolation level · 4 leader epochs · 5 OFFSET_NOT_AVAILABLE · 7 -3 max timestamp · 8 -4 earliest local
· 9 -5 latest tiered · 10 timeout for remote storage (there is none here, nothing waits).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from quorate.broker.replication.partition import Partition
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.log.partition.partition_log import PartitionLog
    from quorate.net.dispatch import Handler, RequestContext

log_ = logging.getLogger("quorate.broker.list_offsets")

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
_SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_CONSUMER, _DEBUGGING = -1, -2

Answer = ListOffsetsResponse.ListOffsetsPartitionResponse


class ListOffsetsHandler:
    """Offsets by timestamp, and the special ones."""

    __slots__ = ("_services",)

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
        version = context.api_version
        seen: set[tuple[str, int]] = set()
        twice: set[tuple[str, int]] = set()
        for topic in request.topics:
            for part in topic.partitions:
                key = (topic.name, part.partition_index)
                (twice if key in seen else seen).add(key)
        response = ListOffsetsResponse()
        for topic in request.topics:
            answers = []
            for part in topic.partitions:
                answer = Answer(partition_index=part.partition_index)
                answers.append(answer)
                try:
                    if (topic.name, part.partition_index) in twice:
                        raise KafkaError(ErrorCode.INVALID_REQUEST)
                    if part.timestamp < 0 and _SINCE.get(part.timestamp, version + 1) > version:
                        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
                    self._lookup(request, version, topic.name, part, answer)
                except KafkaError as error:
                    code = error.code
                    if code == ErrorCode.OFFSET_NOT_AVAILABLE and version < 5:
                        code = ErrorCode.LEADER_NOT_AVAILABLE
                    answer.error_code = code
                except Exception:
                    log_.exception("[ListOffsets] Lookup in %s-%d failed", topic.name, part.partition_index)
                    answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            response.topics.append(
                ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers)
            )
        return response

    def _lookup(
        self,
        request: ListOffsetsRequest,
        version: int,
        topic: str,
        part: ListOffsetsRequest.ListOffsetsPartition,
        answer: Answer,
    ) -> None:
        partition = self._services.replicas.partition(topic, part.partition_index)
        partition.check_leader(part.current_leader_epoch, only_leader=request.replica_id != _DEBUGGING)
        log = partition.log
        from_client = request.replica_id == _CONSUMER
        if not from_client:
            last_fetchable = log.log_end_offset
        elif request.isolation_level == 1:
            last_fetchable = log.last_stable_offset
        else:
            last_fetchable = log.high_watermark
        if part.timestamp == LATEST:
            self._check_available(partition, log, from_client)
            found: tuple[int, int, int] | None = (-1, last_fetchable, partition.leader_epoch)
        else:
            found = _search(log, part.timestamp)
            if part.timestamp not in (EARLIEST, EARLIEST_LOCAL) and (
                found is None or found[1] >= last_fetchable
            ):
                # Right after an election the watermark may lag: "not there" would be a guess then.
                self._check_available(partition, log, from_client)
                found = None
        if found is not None:
            answer.timestamp, answer.offset = found[0], found[1]
            if version >= 4:
                answer.leader_epoch = found[2]

    @staticmethod
    def _check_available(partition: Partition, log: PartitionLog, from_client: bool) -> None:
        start = partition.leader_epoch_start
        if from_client and start is not None and start > log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"The high watermark {log.high_watermark} of {partition.topic}-{partition.partition} lags "
                "behind the "
                f"start of this leader epoch, {start}.",
            )


def _search(log: PartitionLog, timestamp: int) -> tuple[int, int, int] | None:
    """(timestamp, offset, leader epoch) for everything but LATEST."""
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return -1, start, log.epoch_for_offset(start)
    if timestamp == LATEST_TIERED:
        return -1, -1, -1
    if timestamp == MAX_TIMESTAMP:
        return log.offset_of_max_timestamp()
    return log.offset_for_timestamp(timestamp)


def routes(services: Services) -> dict[int, Handler]:
    return {int(ApiKey.LIST_OFFSETS): ListOffsetsHandler(services)}
