"""AlterConfigs, API key 33.

Versions
  0  the oldest
  1  the answer is sent before the throttle time is served (KIP-219)
  2  flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class AlterConfigsRequest(Request, key=33, versions="0-2", flexible="2+", listeners={"broker", "controller"}):
    """Replaces the whole dynamic configuration of resources; IncrementalAlterConfigs is what to use
    instead."""

    class AlterableConfig(Struct):
        name: str = ""
        value: str | None = ""

    class AlterConfigsResource(Struct):
        resource_type: int8 = 0
        resource_name: str = ""
        configs: list[AlterConfigsRequest.AlterableConfig] = field(default_factory=list)

    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: bool = False


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+"):
    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        resource_type: int8 = 0
        resource_name: str = ""

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)
