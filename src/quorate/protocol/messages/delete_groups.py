"""DeleteGroups, API key 42.

Versions
  0  the oldest
  1  the answer is sent before the throttle time is served (KIP-219)
  2  flexible (KIP-482)
  3  the cause of an error; response gains results.error_message
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32


class DeleteGroupsRequest(Request, key=42, versions="0-3", flexible="2+", listeners={"broker"}):
    """Deletes groups that have no members, with their committed offsets."""

    groups_names: list[str] = field(default_factory=list)


class DeleteGroupsResponse(Response, key=42, versions="0-3", flexible="2+"):
    class DeletableGroupResult(Struct):
        group_id: str = ""
        error_code: int16 = 0
        error_message: str | None = field(default=None, versions="3+", ignorable=True)

    throttle_time_ms: int32 = 0
    results: list[DeletableGroupResult] = field(default_factory=list)
