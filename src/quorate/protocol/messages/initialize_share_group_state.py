"""InitializeShareGroupState, API key 83.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, int64, uuid


class InitializeShareGroupStateRequest(Request, key=83, versions="0", flexible="0+", listeners={"broker"}):
    """Creates the stored state of share partitions. KIP-932."""

    class PartitionData(Struct):
        partition: int32 = 0
        state_epoch: int32 = 0
        start_offset: int64 = 0

    class InitializeStateData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[InitializeShareGroupStateRequest.PartitionData] = field(default_factory=list)

    group_id: str = ""
    topics: list[InitializeStateData] = field(default_factory=list)


class InitializeShareGroupStateResponse(Response, key=83, versions="0", flexible="0+"):
    class PartitionResult(Struct):
        partition: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None

    class InitializeStateResult(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[InitializeShareGroupStateResponse.PartitionResult] = field(default_factory=list)

    results: list[InitializeStateResult] = field(default_factory=list)
