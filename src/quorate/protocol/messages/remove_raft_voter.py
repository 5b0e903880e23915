"""RemoveRaftVoter, API key 81.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, int16, int32, uuid


class RemoveRaftVoterRequest(
    Request, key=81, versions="0", flexible="0+", listeners={"controller", "broker"}
):
    """Removes a voter from the metadata quorum. KIP-853."""

    cluster_id: str | None = ""
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID


class RemoveRaftVoterResponse(Response, key=81, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
