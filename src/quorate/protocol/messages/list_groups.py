"""ListGroups, API key 16.

Versions
  0  the oldest
  1  response gains throttle_time_ms
  2  the answer is sent before the throttle time is served (KIP-219)
  3  flexible (KIP-482)
  4  filter by state (KIP-518); request gains states_filter; response gains groups.group_state
  5  filter by type (KIP-848); request gains types_filter; response gains groups.group_type
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+", listeners={"broker"}):
    """Names the groups that a broker coordinates."""

    states_filter: list[str] = field(default_factory=list, versions="4+")
    types_filter: list[str] = field(default_factory=list, versions="5+")


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    class ListedGroup(Struct):
        group_id: str = ""
        protocol_type: str = ""
        group_state: str = field(default="", versions="4+", ignorable=True)
        group_type: str = field(default="", versions="5+", ignorable=True)

    throttle_time_ms: int32 = field(default=0, versions="1+", ignorable=True)
    error_code: int16 = 0
    groups: list[ListedGroup] = field(default_factory=list)
