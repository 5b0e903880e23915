"""LeaveGroup, API key 13.

Versions
  0  the oldest
  1  response gains throttle_time_ms
  2  the answer is sent before the throttle time is served (KIP-219)
  3  several members at once (KIP-345); request gains members; request loses member_id; response gains members
  4  flexible (KIP-482)
  5  reason of leaving (KIP-800); request gains members.reason
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+", listeners={"broker"}):
    """Takes members out of a classic group."""

    class MemberIdentity(Struct):
        member_id: str = ""
        group_instance_id: str | None = None
        reason: str | None = field(default=None, versions="5+", ignorable=True)

    group_id: str = ""
    member_id: str = field(default="", versions="0-2")
    members: list[MemberIdentity] = field(default_factory=list, versions="3+")


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    class MemberResponse(Struct):
        member_id: str = ""
        group_instance_id: str | None = ""
        error_code: int16 = 0

    throttle_time_ms: int32 = field(default=0, versions="1+", ignorable=True)
    error_code: int16 = 0
    members: list[MemberResponse] = field(default_factory=list, versions="3+")
