"""JoinGroup, API key 11.

Versions
  0  the oldest
  1  request gains rebalance_timeout_ms
  2  response gains throttle_time_ms
  3  the answer is sent before the throttle time is served (KIP-219)
  4  a new member is given an id first and joins again with it (KIP-394)
  5  static members (KIP-345); request gains group_instance_id; response gains members.group_instance_id
  6  flexible (KIP-482)
  7  response gains protocol_type; response: null allowed in protocol_name
  8  reason of joining (KIP-800); request gains reason
  9  the leader may be told to skip the assignment (KIP-814); response gains skip_assignment
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+", listeners={"broker"}):
    """Enters a classic consumer group; answered when the rebalance that it causes has gathered the
    members."""

    class JoinGroupRequestProtocol(Struct):
        name: str = ""
        metadata: bytes = b""

    group_id: str = ""
    session_timeout_ms: int32 = 0
    rebalance_timeout_ms: int32 = field(default=-1, versions="1+", ignorable=True)
    member_id: str = ""
    group_instance_id: str | None = field(default=None, versions="5+")
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = field(default_factory=list)
    reason: str | None = field(default=None, versions="8+", ignorable=True)


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    class JoinGroupResponseMember(Struct):
        member_id: str = ""
        group_instance_id: str | None = field(default=None, versions="5+", ignorable=True)
        metadata: bytes = b""

    throttle_time_ms: int32 = field(default=0, versions="2+", ignorable=True)
    error_code: int16 = 0
    generation_id: int32 = -1
    protocol_type: str | None = field(default=None, versions="7+", ignorable=True)
    protocol_name: str | None = field(default="", nullable="7+")
    leader: str = ""
    skip_assignment: bool = field(default=False, versions="9+")
    member_id: str = ""
    members: list[JoinGroupResponseMember] = field(default_factory=list)
