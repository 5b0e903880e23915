"""The fields of the file `quorum-state`, which is JSON (`quorate.protocol.json`), not binary.

Versions
  0  kraft.version 0: with the cluster id (always written empty) and the static voters
  1  kraft.version 1: with the directory id of the replica voted for (KIP-853)
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Data, Struct, field, int32, int64, uuid


class QuorumStateData(Data, versions="0-1", flexible="0+"):
    """Epoch, leader and vote of a replica, as the file holds them."""

    class Voter(Struct):
        voter_id: int32 = 0

    cluster_id: str = field(default="", versions="0")
    leader_id: int32 = -1
    leader_epoch: int32 = -1
    voted_id: int32 = -1
    voted_directory_id: uuid = field(default=ZERO_UUID, versions="1+")
    applied_offset: int64 = field(default=0, versions="0")
    current_voters: list[Voter] | None = field(default_factory=list, versions="0")
