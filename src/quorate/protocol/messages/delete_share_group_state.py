"""DeleteShareGroupState, API key 86.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, uuid


class DeleteShareGroupStateRequest(Request, key=86, versions="0", flexible="0+", listeners={"broker"}):
    """Deletes the stored state of share partitions. KIP-932."""

    class PartitionData(Struct):
        partition: int32 = 0

    class DeleteStateData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[DeleteShareGroupStateRequest.PartitionData] = field(default_factory=list)

    group_id: str = ""
    topics: list[DeleteStateData] = field(default_factory=list)


class DeleteShareGroupStateResponse(Response, key=86, versions="0", flexible="0+"):
    class PartitionResult(Struct):
        partition: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None

    class DeleteStateResult(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[DeleteShareGroupStateResponse.PartitionResult] = field(default_factory=list)

    results: list[DeleteStateResult] = field(default_factory=list)
