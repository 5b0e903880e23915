"""AllocateProducerIds (67): assigns blocks of 1,000 producer ids to brokers (KIP-730)."""

from __future__ import annotations

from quorate.controller.context import Context, Result, View
from quorate.metadata.records import ProducerIdsRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

BLOCK_SIZE = 1_000
_LAST_ID = 2**63 - 1


def allocate_producer_ids(
    view: View, request: AllocateProducerIdsRequest, ctx: Context
) -> Result[AllocateProducerIdsResponse]:
    """Assigns the next block. Raises STALE_BROKER_EPOCH, or UNKNOWN_SERVER_ERROR if all 2^63 ids are
    assigned."""
    view.check_broker_epoch(request.broker_id, request.broker_epoch)
    first = max(0, view.image.producer_ids.next_producer_id)
    if first > _LAST_ID - BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids are used up.")
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Result(AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE), [record])
