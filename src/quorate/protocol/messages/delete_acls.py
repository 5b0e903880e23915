"""DeleteAcls, API key 31.

Versions
  1  the oldest
  2  flexible (KIP-482)
  3  user resources
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class DeleteAclsRequest(Request, key=31, versions="1-3", flexible="2+", listeners={"broker", "controller"}):
    """Deletes the ACLs that match filters."""

    class DeleteAclsFilter(Struct):
        resource_type_filter: int8 = 0
        resource_name_filter: str | None = ""
        pattern_type_filter: int8 = 3
        principal_filter: str | None = ""
        host_filter: str | None = ""
        operation: int8 = 0
        permission_type: int8 = 0

    filters: list[DeleteAclsFilter] = field(default_factory=list)


class DeleteAclsResponse(Response, key=31, versions="1-3", flexible="2+"):
    class DeleteAclsMatchingAcl(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        resource_type: int8 = 0
        resource_name: str = ""
        pattern_type: int8 = 3
        principal: str = ""
        host: str = ""
        operation: int8 = 0
        permission_type: int8 = 0

    class DeleteAclsFilterResult(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    filter_results: list[DeleteAclsFilterResult] = field(default_factory=list)
