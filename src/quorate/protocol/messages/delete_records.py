"""DeleteRecords, API key 21.

Versions
  0  the oldest
  1  the answer is sent before the throttle time is served (KIP-219)
  2  flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class DeleteRecordsRequest(Request, key=21, versions="0-2", flexible="2+", listeners={"broker"}):
    """Moves the start of partitions forward."""

    class DeleteRecordsPartition(Struct):
        partition_index: int32 = 0
        offset: int64 = 0

    class DeleteRecordsTopic(Struct):
        name: str = ""
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = field(default_factory=list)

    topics: list[DeleteRecordsTopic] = field(default_factory=list)
    timeout_ms: int32 = 0


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible="2+"):
    class DeleteRecordsPartitionResult(Struct):
        partition_index: int32 = 0
        low_watermark: int64 = 0
        error_code: int16 = 0

    class DeleteRecordsTopicResult(Struct):
        name: str = ""
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    topics: list[DeleteRecordsTopicResult] = field(default_factory=list)
