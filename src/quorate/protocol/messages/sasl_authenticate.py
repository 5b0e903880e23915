"""SaslAuthenticate, API key 36.

Versions
  0  the oldest
  1  the session has a lifetime (KIP-368); response gains session_lifetime_ms
  2  flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, field, int16, int64


class SaslAuthenticateRequest(
    Request, key=36, versions="0-2", flexible="2+", listeners={"broker", "controller"}
):
    """Carries the tokens of a SASL exchange."""

    auth_bytes: bytes = b""


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    error_code: int16 = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int64 = field(default=0, versions="1+", ignorable=True)
