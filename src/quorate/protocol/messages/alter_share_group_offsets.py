"""AlterShareGroupOffsets, API key 91.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, int64, uuid


class AlterShareGroupOffsetsRequest(Request, key=91, versions="0", flexible="0+", listeners={"broker"}):
    """Sets the start offsets of a share group. KIP-932."""

    class AlterShareGroupOffsetsRequestPartition(Struct):
        partition_index: int32 = 0
        start_offset: int64 = 0

    class AlterShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = ""
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition] = field(
            default_factory=list
        )

    group_id: str = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(default_factory=list)


class AlterShareGroupOffsetsResponse(Response, key=91, versions="0", flexible="0+"):
    class AlterShareGroupOffsetsResponsePartition(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None

    class AlterShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = ""
        topic_id: uuid = ZERO_UUID
        partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition] = field(
            default_factory=list
        )

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(default_factory=list)
