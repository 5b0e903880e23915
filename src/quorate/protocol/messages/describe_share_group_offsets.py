"""DescribeShareGroupOffsets, API key 90.

Versions
  0  flexible (KIP-482) from the first
  1  the lag (KIP-1226); response gains groups.topics.partitions.lag
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, int64, uuid


class DescribeShareGroupOffsetsRequest(Request, key=90, versions="0-1", flexible="0+", listeners={"broker"}):
    """Shows the start offsets of share groups. KIP-932."""

    class DescribeShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = ""
        partitions: list[int32] = field(default_factory=list)

    class DescribeShareGroupOffsetsRequestGroup(Struct):
        group_id: str = ""
        topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None = field(
            default_factory=list
        )

    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(default_factory=list)


class DescribeShareGroupOffsetsResponse(Response, key=90, versions="0-1", flexible="0+"):
    class DescribeShareGroupOffsetsResponsePartition(Struct):
        partition_index: int32 = 0
        start_offset: int64 = 0
        leader_epoch: int32 = 0
        lag: int64 = field(default=-1, versions="1+", ignorable=True)
        error_code: int16 = 0
        error_message: str | None = None

    class DescribeShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = ""
        topic_id: uuid = ZERO_UUID
        partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition] = (
            field(default_factory=list)
        )

    class DescribeShareGroupOffsetsResponseGroup(Struct):
        group_id: str = ""
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = field(
            default_factory=list
        )
        error_code: int16 = 0
        error_message: str | None = None

    throttle_time_ms: int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(default_factory=list)
