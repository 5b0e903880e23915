"""AddRaftVoter, API key 80.

Versions
  0  flexible (KIP-482) from the first
  1  may be answered before the new voter set is committed; request gains ack_when_committed
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, uint16, uuid


class AddRaftVoterRequest(Request, key=80, versions="0-1", flexible="0+", listeners={"controller", "broker"}):
    """Adds a voter to the metadata quorum. KIP-853."""

    class Listener(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0

    cluster_id: str | None = ""
    timeout_ms: int32 = 0
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID
    listeners: list[Listener] = field(default_factory=list)
    ack_when_committed: bool = field(default=True, versions="1+")


class AddRaftVoterResponse(Response, key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
