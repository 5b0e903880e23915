"""SaslHandshake, API key 17.

Versions
  0  the oldest
  1  the tokens that follow are wrapped in SaslAuthenticate; flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, field, int16


class SaslHandshakeRequest(Request, key=17, versions="0-1", listeners={"broker", "controller"}):
    """Chooses the SASL mechanism."""

    mechanism: str = ""


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    error_code: int16 = 0
    mechanisms: list[str] = field(default_factory=list)
