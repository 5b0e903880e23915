"""DescribeAcls, API key 29.

Versions
  1  the oldest
  2  flexible (KIP-482)
  3  user resources
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class DescribeAclsRequest(Request, key=29, versions="1-3", flexible="2+", listeners={"broker", "controller"}):
    """Lists the ACLs that match a filter."""

    resource_type_filter: int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int8 = 0
    permission_type: int8 = 0


class DescribeAclsResponse(Response, key=29, versions="1-3", flexible="2+"):
    class AclDescription(Struct):
        principal: str = ""
        host: str = ""
        operation: int8 = 0
        permission_type: int8 = 0

    class DescribeAclsResource(Struct):
        resource_type: int8 = 0
        resource_name: str = ""
        pattern_type: int8 = 3
        acls: list[DescribeAclsResponse.AclDescription] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = field(default_factory=list)
