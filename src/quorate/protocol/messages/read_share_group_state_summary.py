"""ReadShareGroupStateSummary, API key 87.

Versions
  0  flexible (KIP-482) from the first
  1  the number of finished deliveries (KIP-1226); response gains results.partitions.delivery_complete_count
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, int64, uuid


class ReadShareGroupStateSummaryRequest(Request, key=87, versions="0-1", flexible="0+", listeners={"broker"}):
    """Reads the start offsets of share partitions. KIP-932."""

    class PartitionData(Struct):
        partition: int32 = 0
        leader_epoch: int32 = 0

    class ReadStateSummaryData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[ReadShareGroupStateSummaryRequest.PartitionData] = field(default_factory=list)

    group_id: str = ""
    topics: list[ReadStateSummaryData] = field(default_factory=list)


class ReadShareGroupStateSummaryResponse(Response, key=87, versions="0-1", flexible="0+"):
    class PartitionResult(Struct):
        partition: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None
        state_epoch: int32 = 0
        leader_epoch: int32 = 0
        start_offset: int64 = 0
        delivery_complete_count: int32 = field(default=-1, versions="1+", ignorable=True)

    class ReadStateSummaryResult(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[ReadShareGroupStateSummaryResponse.PartitionResult] = field(default_factory=list)

    results: list[ReadStateSummaryResult] = field(default_factory=list)
