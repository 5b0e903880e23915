"""BrokerHeartbeat, API key 63.

Versions
  0  flexible (KIP-482) from the first
  1  failed log directories (KIP-858); request gains offline_log_dirs
  2  cordoned log directories (KIP-1066); request gains cordoned_log_dirs
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, field, int16, int32, int64, uuid


class BrokerHeartbeatRequest(Request, key=63, versions="0-2", flexible="0+", listeners={"controller"}):
    """Keeps a broker registered; asks to be unfenced, fenced or allowed to shut down. KIP-631."""

    broker_id: int32 = 0
    broker_epoch: int64 = -1
    current_metadata_offset: int64 = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: list[uuid] = field(default_factory=list, versions="1+", tag=0)
    cordoned_log_dirs: list[uuid] | None = field(default=None, versions="2+", tag=1)


class BrokerHeartbeatResponse(Response, key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
