"""RenewDelegationToken, API key 39.

Versions
  1  the oldest
  2  flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, int16, int32, int64


class RenewDelegationTokenRequest(
    Request, key=39, versions="1-2", flexible="2+", listeners={"broker", "controller"}
):
    """Puts off the expiry of a delegation token."""

    hmac: bytes = b""
    renew_period_ms: int64 = 0


class RenewDelegationTokenResponse(Response, key=39, versions="1-2", flexible="2+"):
    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0
