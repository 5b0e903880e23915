"""UnregisterController, API key 94.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, int16, int32


class UnregisterControllerRequest(
    Request, key=94, versions="0", flexible="0+", listeners={"broker", "controller"}
):
    """Removes the registration of a controller. KIP-1312."""

    controller_id: int32 = 0


class UnregisterControllerResponse(Response, key=94, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
