"""ListConfigResources, API key 74.

Versions
  0  flexible (KIP-482) from the first
  1  all types of resources (KIP-1142); request gains resource_types; response gains
     config_resources.resource_type
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class ListConfigResourcesRequest(Request, key=74, versions="0-1", flexible="0+", listeners={"broker"}):
    """Names the resources that have configuration, by type; version 0 knew client metrics only."""

    resource_types: list[int8] = field(default_factory=list, versions="1+")


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible="0+"):
    class ConfigResource(Struct):
        resource_name: str = ""
        resource_type: int8 = field(default=16, versions="1+", ignorable=True)

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    config_resources: list[ConfigResource] = field(default_factory=list)
