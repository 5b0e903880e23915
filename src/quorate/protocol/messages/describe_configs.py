"""DescribeConfigs, API key 32.

Versions
  1  the oldest
  2  the answer is sent before the throttle time is served (KIP-219)
  3  type and documentation on request (KIP-569); request gains include_documentation; response gains
     results.configs.config_type, results.configs.documentation
  4  flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class DescribeConfigsRequest(
    Request, key=32, versions="1-4", flexible="4+", listeners={"broker", "controller"}
):
    """Reads the configuration of topics, brokers, groups and other resources."""

    class DescribeConfigsResource(Struct):
        resource_type: int8 = 0
        resource_name: str = ""
        configuration_keys: list[str] | None = field(default_factory=list)

    resources: list[DescribeConfigsResource] = field(default_factory=list)
    include_synonyms: bool = False
    include_documentation: bool = field(default=False, versions="3+")


class DescribeConfigsResponse(Response, key=32, versions="1-4", flexible="4+"):
    class DescribeConfigsSynonym(Struct):
        name: str = ""
        value: str | None = ""
        source: int8 = 0

    class DescribeConfigsResourceResult(Struct):
        name: str = ""
        value: str | None = ""
        read_only: bool = False
        config_source: int8 = -1
        is_sensitive: bool = False
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = field(default_factory=list)
        config_type: int8 = field(default=0, versions="3+", ignorable=True)
        documentation: str | None = field(default="", versions="3+", ignorable=True)

    class DescribeConfigsResult(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        resource_type: int8 = 0
        resource_name: str = ""
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    results: list[DescribeConfigsResult] = field(default_factory=list)
