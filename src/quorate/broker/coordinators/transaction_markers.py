"""WriteTxnMarkers (27), versions 1 and 2: ends transactions in the partitions that this broker leads.

This broker coordinates no transactions, and takes no records of them from clients. But it may become the leader
of a partition while a transaction of an Apache Kafka broker is open there. Until its marker is written, readers
of committed transactions wait, and so does the producer's next transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from quorate.broker.coordinators.high_watermark import Replicas
from quorate.broker.coordinators.runtime import CoordinatorRuntime
from quorate.broker.topic_names import GROUP_METADATA_TOPIC
from quorate.clock import Clock
from quorate.net.turns import Rounds
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from quorate.records.batch import build_batch
from quorate.records.control import (
    ControlRecordType,
    EndTxnMarker,
    encode_control_key,
    encode_end_txn_marker,
)

if TYPE_CHECKING:
    from quorate.net.dispatch import RequestContext

logger = logging.getLogger("quorate.broker.transactions")

AT_ONCE = 100
"""Partitions of a request whose markers are written in one turn of the event loop."""

_RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of the group coordinator. The transaction coordinator gets NOT_LEADER_OR_FOLLOWER for them, and tries
again."""

_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_Result = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


class TransactionMarkers:
    """Writes the markers that a transaction coordinator sends."""

    __slots__ = ("_clock", "_groups", "_replicas", "_rounds", "_timeout_s")

    def __init__(
        self, replicas: Replicas, groups: CoordinatorRuntime[Any], clock: Clock, timeout_s: float
    ) -> None:
        """`groups` has the pending offsets of transactions. `timeout_s` limits the wait for the replicas."""
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self._timeout_s = timeout_s
        self._rounds = Rounds(AT_ONCE)

    async def write(
        self, _context: RequestContext, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        """Writes each marker to its partitions, and answers when all are replicated or have failed."""
        response = WriteTxnMarkersResponse()
        for result, appended in await self._rounds.collect(self._append_all(request, response)):
            if appended is not None:
                try:
                    await appended
                except Exception as error:
                    result.error_code = self._code_of(error)
        return response

    def _append_all(
        self, request: WriteTxnMarkersRequest, response: WriteTxnMarkersResponse
    ) -> Iterator[tuple[_Result, asyncio.Future[int] | None]]:
        """Yields the result of each partition, and the future of its append unless that has failed."""
        for marker in request.markers:
            answer = WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=marker.producer_id)
            response.markers.append(answer)
            for topic in marker.topics:
                part = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=topic.name)
                answer.topics.append(part)
                for index in topic.partition_indexes:
                    result = _Result(partition_index=index)
                    part.partitions.append(result)
                    try:
                        yield result, self._append(topic.name, index, marker)
                    except Exception as error:
                        result.error_code = self._code_of(error)
                        yield result, None

    def _append(self, topic: str, partition: int, marker: _Marker) -> asyncio.Future[int]:
        """Appends a marker. The future completes when the high watermark has passed it. Raises KafkaError."""
        committed = marker.transaction_result
        batch = build_batch(
            [
                (
                    encode_control_key(ControlRecordType.COMMIT if committed else ControlRecordType.ABORT),
                    encode_end_txn_marker(EndTxnMarker(coordinator_epoch=marker.coordinator_epoch)),
                    (),
                    self._clock.now_ms(),
                )
            ],
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            is_control=True,
            is_transactional=True,
        )
        if topic == GROUP_METADATA_TOPIC:
            return self._groups.write_marker(
                partition, marker.producer_id, batch, committed=committed, timeout_s=self._timeout_s
            )
        return self._replicas.append_internal(topic, partition, batch, timeout_s=self._timeout_s)

    @staticmethod
    def _code_of(error: Exception) -> ErrorCode:
        """The error code for the transaction coordinator. One that it does not know would end its process, so
        that an unexpected error is one after which it tries again."""
        if isinstance(error, KafkaError):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in _RETRIED else error.code
        logger.error("[WriteTxnMarkers] A marker could not be written", exc_info=error)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
