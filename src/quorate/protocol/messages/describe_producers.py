"""DescribeProducers, API key 61.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class DescribeProducersRequest(Request, key=61, versions="0", flexible="0+", listeners={"broker"}):
    """Shows the active producers of partitions."""

    class TopicRequest(Struct):
        name: str = ""
        partition_indexes: list[int32] = field(default_factory=list)

    topics: list[TopicRequest] = field(default_factory=list)


class DescribeProducersResponse(Response, key=61, versions="0", flexible="0+"):
    class ProducerState(Struct):
        producer_id: int64 = 0
        producer_epoch: int32 = 0
        last_sequence: int32 = -1
        last_timestamp: int64 = -1
        coordinator_epoch: int32 = 0
        current_txn_start_offset: int64 = -1

    class PartitionResponse(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None
        active_producers: list[DescribeProducersResponse.ProducerState] = field(default_factory=list)

    class TopicResponse(Struct):
        name: str = ""
        partitions: list[DescribeProducersResponse.PartitionResponse] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    topics: list[TopicResponse] = field(default_factory=list)
