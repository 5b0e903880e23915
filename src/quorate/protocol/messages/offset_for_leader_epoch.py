"""OffsetForLeaderEpoch, API key 23.

Versions
  2  the oldest
  3  the follower tells its id; consumers -1 (KIP-392); request gains replica_id
  4  flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class OffsetForLeaderEpochRequest(Request, key=23, versions="2-4", flexible="4+", listeners={"broker"}):
    """Tells where a leader epoch ends, so that a reader can find where its log diverges."""

    class OffsetForLeaderPartition(Struct):
        partition: int32 = 0
        current_leader_epoch: int32 = -1
        leader_epoch: int32 = 0

    class OffsetForLeaderTopic(Struct):
        topic: str = ""
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = field(default_factory=list)

    replica_id: int32 = field(default=-2, versions="3+", ignorable=True)
    topics: list[OffsetForLeaderTopic] = field(default_factory=list)


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    class EpochEndOffset(Struct):
        error_code: int16 = 0
        partition: int32 = 0
        leader_epoch: int32 = -1
        end_offset: int64 = -1

    class OffsetForLeaderTopicResult(Struct):
        topic: str = ""
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    topics: list[OffsetForLeaderTopicResult] = field(default_factory=list)
