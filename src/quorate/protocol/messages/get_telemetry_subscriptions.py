"""GetTelemetrySubscriptions, API key 71.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, field, int8, int16, int32, uuid


class GetTelemetrySubscriptionsRequest(Request, key=71, versions="0", flexible="0+", listeners={"broker"}):
    """Asks which client metrics the broker wants. KIP-714."""

    client_instance_id: uuid = ZERO_UUID


class GetTelemetrySubscriptionsResponse(Response, key=71, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    client_instance_id: uuid = ZERO_UUID
    subscription_id: int32 = 0
    accepted_compression_types: list[int8] = field(default_factory=list)
    push_interval_ms: int32 = 0
    telemetry_max_bytes: int32 = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = field(default_factory=list)
