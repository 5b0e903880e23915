"""AlterClientQuotas, API key 49.

Versions
  0  the oldest
  1  flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, float64, int16, int32


class AlterClientQuotasRequest(
    Request, key=49, versions="0-1", flexible="1+", listeners={"broker", "controller"}
):
    """Sets and removes client quotas."""

    class EntityData(Struct):
        entity_type: str = ""
        entity_name: str | None = ""

    class OpData(Struct):
        key: str = ""
        value: float64 = 0.0
        remove: bool = False

    class EntryData(Struct):
        entity: list[AlterClientQuotasRequest.EntityData] = field(default_factory=list)
        ops: list[AlterClientQuotasRequest.OpData] = field(default_factory=list)

    entries: list[EntryData] = field(default_factory=list)
    validate_only: bool = False


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    class EntityData(Struct):
        entity_type: str = ""
        entity_name: str | None = ""

    class EntryData(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        entity: list[AlterClientQuotasResponse.EntityData] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    entries: list[EntryData] = field(default_factory=list)
