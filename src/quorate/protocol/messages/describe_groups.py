"""DescribeGroups, API key 15.

Versions
  0  the oldest
  1  response gains throttle_time_ms
  2  the answer is sent before the throttle time is served (KIP-219)
  3  request gains include_authorized_operations; response gains groups.authorized_operations
  4  response gains groups.members.group_instance_id
  5  flexible (KIP-482)
  6  a missing group is an error with a message, no longer a dead group (KIP-1043); response gains
     groups.error_message
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+", listeners={"broker"}):
    """Shows state and members of classic groups."""

    groups: list[str] = field(default_factory=list)
    include_authorized_operations: bool = field(default=False, versions="3+")


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    class DescribedGroupMember(Struct):
        member_id: str = ""
        group_instance_id: str | None = field(default=None, versions="4+", ignorable=True)
        client_id: str = ""
        client_host: str = ""
        member_metadata: bytes = b""
        member_assignment: bytes = b""

    class DescribedGroup(Struct):
        error_code: int16 = 0
        error_message: str | None = field(default=None, versions="6+")
        group_id: str = ""
        group_state: str = ""
        protocol_type: str = ""
        protocol_data: str = ""
        members: list[DescribeGroupsResponse.DescribedGroupMember] = field(default_factory=list)
        authorized_operations: int32 = field(default=-2147483648, versions="3+")

    throttle_time_ms: int32 = field(default=0, versions="1+", ignorable=True)
    groups: list[DescribedGroup] = field(default_factory=list)
