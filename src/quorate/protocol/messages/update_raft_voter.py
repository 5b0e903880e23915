"""UpdateRaftVoter, API key 82.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, uint16, uuid


class UpdateRaftVoterRequest(Request, key=82, versions="0", flexible="0+", listeners={"controller"}):
    """Replaces a voter's endpoints and supported kraft versions. KIP-853."""

    class Listener(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0

    class KRaftVersionFeature(Struct):
        min_supported_version: int16 = 0
        max_supported_version: int16 = 0

    cluster_id: str | None = ""
    current_leader_epoch: int32 = 0
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID
    listeners: list[Listener] = field(default_factory=list)
    kraft_version_feature: KRaftVersionFeature = field(
        default_factory=KRaftVersionFeature, json_name="kRaftVersionFeature"
    )


class UpdateRaftVoterResponse(Response, key=82, versions="0", flexible="0+"):
    class CurrentLeader(Struct):
        leader_id: int32 = -1
        leader_epoch: int32 = -1
        host: str = ""
        port: int32 = 0

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    current_leader: CurrentLeader = field(default_factory=CurrentLeader, tag=0)
