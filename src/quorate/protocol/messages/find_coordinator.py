"""FindCoordinator, API key 10.

Versions
  0  the oldest
  1  request gains key_type; response gains throttle_time_ms, error_message
  2  the answer is sent before the throttle time is served (KIP-219)
  3  flexible (KIP-482)
  4  several keys at once (KIP-699); request gains coordinator_keys; request loses key; response gains
     coordinators; response loses error_code, error_message, node_id, host, port
  5  may be answered with TRANSACTION_ABORTABLE (KIP-890)
  6  share partitions (KIP-932)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+", listeners={"broker"}):
    """Finds the broker that coordinates a group, a transactional id or a share partition."""

    key: str = field(default="", versions="0-3")
    key_type: int8 = field(default=0, versions="1+")
    coordinator_keys: list[str] = field(default_factory=list, versions="4+")


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    class Coordinator(Struct):
        key: str = ""
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        error_code: int16 = 0
        error_message: str | None = ""

    throttle_time_ms: int32 = field(default=0, versions="1+", ignorable=True)
    error_code: int16 = field(default=0, versions="0-3")
    error_message: str | None = field(default="", versions="1-3", ignorable=True)
    node_id: int32 = field(default=0, versions="0-3")
    host: str = field(default="", versions="0-3")
    port: int32 = field(default=0, versions="0-3")
    coordinators: list[Coordinator] = field(default_factory=list, versions="4+")
