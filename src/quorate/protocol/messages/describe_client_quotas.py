"""DescribeClientQuotas, API key 48.

Versions
  0  the oldest
  1  flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, float64, int8, int16, int32


class DescribeClientQuotasRequest(Request, key=48, versions="0-1", flexible="1+", listeners={"broker"}):
    """Lists client quotas that match a filter."""

    class ComponentData(Struct):
        entity_type: str = ""
        match_type: int8 = 0
        match: str | None = ""

    components: list[ComponentData] = field(default_factory=list)
    strict: bool = False


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible="1+"):
    class EntityData(Struct):
        entity_type: str = ""
        entity_name: str | None = ""

    class ValueData(Struct):
        key: str = ""
        value: float64 = 0.0

    class EntryData(Struct):
        entity: list[DescribeClientQuotasResponse.EntityData] = field(default_factory=list)
        values: list[DescribeClientQuotasResponse.ValueData] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = field(default_factory=list)
