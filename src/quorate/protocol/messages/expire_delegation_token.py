"""ExpireDelegationToken, API key 40.

Versions
  1  the oldest
  2  flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, int16, int32, int64


class ExpireDelegationTokenRequest(
    Request, key=40, versions="1-2", flexible="2+", listeners={"broker", "controller"}
):
    """Sets when a delegation token expires."""

    hmac: bytes = b""
    expiry_time_period_ms: int64 = 0


class ExpireDelegationTokenResponse(Response, key=40, versions="1-2", flexible="2+"):
    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0
