"""BeginQuorumEpoch, API key 53.

Versions
  0  the oldest
  1  directory ids, endpoints (KIP-853); request gains voter_id, topics.partitions.voter_directory_id,
     leader_endpoints; response gains node_endpoints; flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, uint16, uuid


class BeginQuorumEpochRequest(Request, key=53, versions="0-1", flexible="1+", listeners={"controller"}):
    """From a new leader to the voters: a new epoch has begun. KIP-595, KIP-853."""

    class PartitionData(Struct):
        partition_index: int32 = 0
        voter_directory_id: uuid = field(default=ZERO_UUID, versions="1+", ignorable=True)
        leader_id: int32 = 0
        leader_epoch: int32 = 0

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[BeginQuorumEpochRequest.PartitionData] = field(default_factory=list)

    class LeaderEndpoint(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0

    cluster_id: str | None = None
    voter_id: int32 = field(default=-1, versions="1+", ignorable=True)
    topics: list[TopicData] = field(default_factory=list)
    leader_endpoints: list[LeaderEndpoint] = field(default_factory=list, versions="1+", ignorable=True)


class BeginQuorumEpochResponse(Response, key=53, versions="0-1", flexible="1+"):
    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        leader_id: int32 = 0
        leader_epoch: int32 = 0

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[BeginQuorumEpochResponse.PartitionData] = field(default_factory=list)

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: uint16 = 0

    error_code: int16 = 0
    topics: list[TopicData] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list, versions="1+", tag=0)
