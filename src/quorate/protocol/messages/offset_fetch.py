"""OffsetFetch, API key 9.

Versions
  1  the oldest
  2  null topics mean all; request: null allowed in topics; response gains error_code
  3  response gains throttle_time_ms
  4  the answer is sent before the throttle time is served (KIP-219)
  5  response gains topics.partitions.committed_leader_epoch
  6  flexible (KIP-482)
  7  may insist on offsets that no open transaction can change (KIP-447); request gains require_stable
  8  several groups at once (KIP-709); request gains groups; request loses group_id, topics; response gains
     groups; response loses topics, error_code
  9  groups of KIP-848: STALE_MEMBER_EPOCH; request gains groups.member_id, groups.member_epoch
 10  topic ids (KIP-848), may be answered with UNKNOWN_TOPIC_ID; request gains groups.topics.topic_id;
     request loses groups.topics.name; response gains groups.topics.topic_id; response loses
     groups.topics.name
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, int64, uuid


class OffsetFetchRequest(Request, key=9, versions="1-10", flexible="6+", listeners={"broker"}):
    """Reads the positions of consumer groups."""

    class OffsetFetchRequestTopic(Struct):
        name: str = ""
        partition_indexes: list[int32] = field(default_factory=list)

    class OffsetFetchRequestTopics(Struct):
        name: str = field(default="", versions="8-9", ignorable=True)
        topic_id: uuid = field(default=ZERO_UUID, versions="10+", ignorable=True)
        partition_indexes: list[int32] = field(default_factory=list)

    class OffsetFetchRequestGroup(Struct):
        group_id: str = ""
        member_id: str | None = field(default=None, versions="9+", ignorable=True)
        member_epoch: int32 = field(default=-1, versions="9+", ignorable=True)
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = field(default_factory=list)

    group_id: str = field(default="", versions="0-7")
    topics: list[OffsetFetchRequestTopic] | None = field(default_factory=list, versions="0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field(default_factory=list, versions="8+")
    require_stable: bool = field(default=False, versions="7+")


class OffsetFetchResponse(Response, key=9, versions="1-10", flexible="6+"):
    class OffsetFetchResponsePartition(Struct):
        partition_index: int32 = 0
        committed_offset: int64 = 0
        committed_leader_epoch: int32 = field(default=-1, versions="5-7", ignorable=True)
        metadata: str | None = ""
        error_code: int16 = 0

    class OffsetFetchResponseTopic(Struct):
        name: str = ""
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = field(default_factory=list)

    class OffsetFetchResponsePartitions(Struct):
        partition_index: int32 = 0
        committed_offset: int64 = 0
        committed_leader_epoch: int32 = -1
        metadata: str | None = ""
        error_code: int16 = 0

    class OffsetFetchResponseTopics(Struct):
        name: str = field(default="", versions="8-9", ignorable=True)
        topic_id: uuid = field(default=ZERO_UUID, versions="10+", ignorable=True)
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = field(default_factory=list)

    class OffsetFetchResponseGroup(Struct):
        group_id: str = ""
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = field(default_factory=list)
        error_code: int16 = 0

    throttle_time_ms: int32 = field(default=0, versions="3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(default_factory=list, versions="0-7")
    error_code: int16 = field(default=0, versions="2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(default_factory=list, versions="8+")
