"""ListOffsets, API key 2.

Versions
  1  the oldest
  2  isolation levels (KIP-98); request gains isolation_level; response gains throttle_time_ms
  3  the answer is sent before the throttle time is served (KIP-219)
  4  fencing by leader epoch (KIP-320); request gains topics.partitions.current_leader_epoch; response gains
     topics.partitions.leader_epoch
  5  may be answered with OFFSET_NOT_AVAILABLE
  6  flexible (KIP-482)
  7  timestamp -3: the record with the greatest timestamp (KIP-734)
  8  timestamp -4: the first local offset (KIP-405)
  9  timestamp -5: the last offset in tiered storage (KIP-1005)
 10  a time limit for asking tiered storage (KIP-1075); request gains timeout_ms
 11  timestamp -6: the first offset that is not yet in tiered storage (KIP-1023)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32, int64


class ListOffsetsRequest(Request, key=2, versions="1-11", flexible="6+", listeners={"broker"}):
    """Finds offsets by timestamp, or the first, last and other special ones (negative timestamps)."""

    class ListOffsetsPartition(Struct):
        partition_index: int32 = 0
        current_leader_epoch: int32 = field(default=-1, versions="4+", ignorable=True)
        timestamp: int64 = 0

    class ListOffsetsTopic(Struct):
        name: str = ""
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = field(default_factory=list)

    replica_id: int32 = 0
    isolation_level: int8 = field(default=0, versions="2+")
    topics: list[ListOffsetsTopic] = field(default_factory=list)
    timeout_ms: int32 = field(default=0, versions="10+", ignorable=True)


class ListOffsetsResponse(Response, key=2, versions="1-11", flexible="6+"):
    class ListOffsetsPartitionResponse(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        timestamp: int64 = -1
        offset: int64 = -1
        leader_epoch: int32 = field(default=-1, versions="4+")

    class ListOffsetsTopicResponse(Struct):
        name: str = ""
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = field(default_factory=list)

    throttle_time_ms: int32 = field(default=0, versions="2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)
