"""CreateAcls, API key 30.

Versions
  1  the oldest
  2  flexible (KIP-482)
  3  user resources
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class CreateAclsRequest(Request, key=30, versions="1-3", flexible="2+", listeners={"broker", "controller"}):
    """Creates access control entries. Those that exist already count as created."""

    class AclCreation(Struct):
        resource_type: int8 = 0
        resource_name: str = ""
        resource_pattern_type: int8 = 3
        principal: str = ""
        host: str = ""
        operation: int8 = 0
        permission_type: int8 = 0

    creations: list[AclCreation] = field(default_factory=list)


class CreateAclsResponse(Response, key=30, versions="1-3", flexible="2+"):
    class AclCreationResult(Struct):
        error_code: int16 = 0
        error_message: str | None = ""

    throttle_time_ms: int32 = 0
    results: list[AclCreationResult] = field(default_factory=list)
