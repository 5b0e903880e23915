"""IncrementalAlterConfigs, API key 44.

Versions
  0  the oldest
  1  flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class IncrementalAlterConfigsRequest(
    Request, key=44, versions="0-1", flexible="1+", listeners={"broker", "controller"}
):
    """Sets, deletes, appends to and subtracts from single configuration values."""

    class AlterableConfig(Struct):
        name: str = ""
        config_operation: int8 = 0
        value: str | None = ""

    class AlterConfigsResource(Struct):
        resource_type: int8 = 0
        resource_name: str = ""
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = field(default_factory=list)

    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: bool = False


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        resource_type: int8 = 0
        resource_name: str = ""

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)
