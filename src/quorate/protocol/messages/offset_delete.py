"""OffsetDelete, API key 47.

Versions
  0  the only one
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32


class OffsetDeleteRequest(Request, key=47, versions="0", listeners={"broker"}):
    """Deletes positions of a group in topics that it is not subscribed to."""

    class OffsetDeleteRequestPartition(Struct):
        partition_index: int32 = 0

    class OffsetDeleteRequestTopic(Struct):
        name: str = ""
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = field(default_factory=list)

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = field(default_factory=list)


class OffsetDeleteResponse(Response, key=47, versions="0"):
    class OffsetDeleteResponsePartition(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0

    class OffsetDeleteResponseTopic(Struct):
        name: str = ""
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = field(default_factory=list)

    error_code: int16 = 0
    throttle_time_ms: int32 = 0
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)
