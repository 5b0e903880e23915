"""DeleteShareGroupOffsets, API key 92.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, uuid


class DeleteShareGroupOffsetsRequest(Request, key=92, versions="0", flexible="0+", listeners={"broker"}):
    """Deletes the start offsets of a share group. KIP-932."""

    class DeleteShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = ""

    group_id: str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(default_factory=list)


class DeleteShareGroupOffsetsResponse(Response, key=92, versions="0", flexible="0+"):
    class DeleteShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = ""
        topic_id: uuid = ZERO_UUID
        error_code: int16 = 0
        error_message: str | None = None

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(default_factory=list)
