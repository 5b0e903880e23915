"""PushTelemetry, API key 72.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, int8, int16, int32, uuid


class PushTelemetryRequest(Request, key=72, versions="0", flexible="0+", listeners={"broker"}):
    """Pushes client metrics to the broker. KIP-714."""

    client_instance_id: uuid = ZERO_UUID
    subscription_id: int32 = 0
    terminating: bool = False
    compression_type: int8 = 0
    metrics: bytes = b""


class PushTelemetryResponse(Response, key=72, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
