"""OffsetCommit, API key 8.

Versions
  2  the oldest
  3  response gains throttle_time_ms
  4  the answer is sent before the throttle time is served (KIP-219)
  5  request loses retention_time_ms
  6  request gains topics.partitions.committed_leader_epoch
  7  static members (KIP-345); request gains group_instance_id
  8  flexible (KIP-482)
  9  groups of KIP-848: STALE_MEMBER_EPOCH
 10  topic ids (KIP-848); request gains topics.topic_id; request loses topics.name; response gains
     topics.topic_id; response loses topics.name
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, int64, uuid


class OffsetCommitRequest(Request, key=8, versions="2-10", flexible="8+", listeners={"broker"}):
    """Stores the positions of a consumer group."""

    class OffsetCommitRequestPartition(Struct):
        partition_index: int32 = 0
        committed_offset: int64 = 0
        committed_leader_epoch: int32 = field(default=-1, versions="6+", ignorable=True)
        committed_metadata: str | None = ""

    class OffsetCommitRequestTopic(Struct):
        name: str = field(default="", versions="0-9", ignorable=True)
        topic_id: uuid = field(default=ZERO_UUID, versions="10+", ignorable=True)
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = field(default_factory=list)

    group_id: str = ""
    generation_id_or_member_epoch: int32 = -1
    member_id: str = ""
    group_instance_id: str | None = field(default=None, versions="7+")
    retention_time_ms: int64 = field(default=-1, versions="2-4", ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field(default_factory=list)


class OffsetCommitResponse(Response, key=8, versions="2-10", flexible="8+"):
    class OffsetCommitResponsePartition(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0

    class OffsetCommitResponseTopic(Struct):
        name: str = field(default="", versions="0-9", ignorable=True)
        topic_id: uuid = field(default=ZERO_UUID, versions="10+", ignorable=True)
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = field(default_factory=list)

    throttle_time_ms: int32 = field(default=0, versions="3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)
