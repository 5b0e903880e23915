"""SyncGroup, API key 14.

Versions
  0  the oldest
  1  response gains throttle_time_ms
  2  the answer is sent before the throttle time is served (KIP-219)
  3  static members (KIP-345); request gains group_instance_id
  4  flexible (KIP-482)
  5  request gains protocol_type, protocol_name; response gains protocol_type, protocol_name
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+", listeners={"broker"}):
    """Hands the classic group leader's assignment to the coordinator, which hands each member its part."""

    class SyncGroupRequestAssignment(Struct):
        member_id: str = ""
        assignment: bytes = b""

    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(default=None, versions="3+")
    protocol_type: str | None = field(default=None, versions="5+", ignorable=True)
    protocol_name: str | None = field(default=None, versions="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(default_factory=list)


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int32 = field(default=0, versions="1+", ignorable=True)
    error_code: int16 = 0
    protocol_type: str | None = field(default=None, versions="5+", ignorable=True)
    protocol_name: str | None = field(default=None, versions="5+", ignorable=True)
    assignment: bytes = b""
