"""WriteShareGroupState, API key 85.

Versions
  0  flexible (KIP-482) from the first
  1  the number of finished deliveries (KIP-1226); request gains topics.partitions.delivery_complete_count
"""

from __future__ import annotations

from quorate.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    field,
    int8,
    int16,
    int32,
    int64,
    uuid,
)


class WriteShareGroupStateRequest(Request, key=85, versions="0-1", flexible="0+", listeners={"broker"}):
    """Stores the state of share partitions. KIP-932."""

    class StateBatch(Struct):
        first_offset: int64 = 0
        last_offset: int64 = 0
        delivery_state: int8 = 0
        delivery_count: int16 = 0

    class PartitionData(Struct):
        partition: int32 = 0
        state_epoch: int32 = 0
        leader_epoch: int32 = 0
        start_offset: int64 = 0
        delivery_complete_count: int32 = field(default=-1, versions="1+", ignorable=True)
        state_batches: list[WriteShareGroupStateRequest.StateBatch] = field(default_factory=list)

    class WriteStateData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[WriteShareGroupStateRequest.PartitionData] = field(default_factory=list)

    group_id: str = ""
    topics: list[WriteStateData] = field(default_factory=list)


class WriteShareGroupStateResponse(Response, key=85, versions="0-1", flexible="0+"):
    class PartitionResult(Struct):
        partition: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None

    class WriteStateResult(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[WriteShareGroupStateResponse.PartitionResult] = field(default_factory=list)

    results: list[WriteStateResult] = field(default_factory=list)
