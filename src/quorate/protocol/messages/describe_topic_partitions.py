"""DescribeTopicPartitions, API key 75.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, uuid


class DescribeTopicPartitionsRequest(Request, key=75, versions="0", flexible="0+", listeners={"broker"}):
    """Describes partitions of topics page by page, with eligible leader replicas. KIP-966."""

    class TopicRequest(Struct):
        name: str = ""

    class Cursor(Struct):
        topic_name: str = ""
        partition_index: int32 = 0

    topics: list[TopicRequest] = field(default_factory=list)
    response_partition_limit: int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible="0+"):
    class DescribeTopicPartitionsResponsePartition(Struct):
        error_code: int16 = 0
        partition_index: int32 = 0
        leader_id: int32 = 0
        leader_epoch: int32 = -1
        replica_nodes: list[int32] = field(default_factory=list)
        isr_nodes: list[int32] = field(default_factory=list)
        eligible_leader_replicas: list[int32] | None = None
        last_known_elr: list[int32] | None = None
        offline_replicas: list[int32] = field(default_factory=list)

    class DescribeTopicPartitionsResponseTopic(Struct):
        error_code: int16 = 0
        name: str | None = ""
        topic_id: uuid = ZERO_UUID
        is_internal: bool = False
        partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition] = field(
            default_factory=list
        )
        topic_authorized_operations: int32 = -2147483648

    class Cursor(Struct):
        topic_name: str = ""
        partition_index: int32 = 0

    throttle_time_ms: int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = field(default_factory=list)
    next_cursor: Cursor | None = None
