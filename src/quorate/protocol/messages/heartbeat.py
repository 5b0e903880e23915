"""Heartbeat, API key 12.

Versions
  0  the oldest
  1  response gains throttle_time_ms
  2  the answer is sent before the throttle time is served (KIP-219)
  3  static members (KIP-345); request gains group_instance_id
  4  flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, field, int16, int32


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+", listeners={"broker"}):
    """Keeps a member of a classic group alive and informs it of a rebalance."""

    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(default=None, versions="3+")


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int32 = field(default=0, versions="1+", ignorable=True)
    error_code: int16 = 0
