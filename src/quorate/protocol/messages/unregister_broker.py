"""UnregisterBroker, API key 64.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, int16, int32


class UnregisterBrokerRequest(
    Request, key=64, versions="0", flexible="0+", listeners={"broker", "controller"}
):
    """Removes the registration of a broker."""

    broker_id: int32 = 0


class UnregisterBrokerResponse(Response, key=64, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
