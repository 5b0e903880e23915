"""ShareGroupHeartbeat, API key 76.

Versions
  1  the first stable one; 0 was early access
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, uuid


class ShareGroupHeartbeatRequest(Request, key=76, versions="1", flexible="0+", listeners={"broker"}):
    """The heartbeat of members of share groups. KIP-932."""

    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


class ShareGroupHeartbeatResponse(Response, key=76, versions="1", flexible="0+"):
    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = field(default_factory=list)

    class Assignment(Struct):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: Assignment | None = None
