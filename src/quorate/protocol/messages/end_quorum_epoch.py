"""EndQuorumEpoch, API key 54.

Versions
  0  the oldest
  1  directory ids, endpoints (KIP-853); request gains topics.partitions.preferred_candidates,
     leader_endpoints; request loses topics.partitions.preferred_successors; response gains node_endpoints;
     flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, uint16, uuid


class EndQuorumEpochRequest(Request, key=54, versions="0-1", flexible="1+", listeners={"controller"}):
    """From a resigning leader to the voters: elect another, these first. KIP-595, KIP-853."""

    class ReplicaInfo(Struct):
        candidate_id: int32 = 0
        candidate_directory_id: uuid = ZERO_UUID

    class PartitionData(Struct):
        partition_index: int32 = 0
        leader_id: int32 = 0
        leader_epoch: int32 = 0
        preferred_successors: list[int32] = field(default_factory=list, versions="0", ignorable=True)
        preferred_candidates: list[EndQuorumEpochRequest.ReplicaInfo] = field(
            default_factory=list, versions="1+", ignorable=True
        )

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[EndQuorumEpochRequest.PartitionData] = field(default_factory=list)

    class LeaderEndpoint(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0

    cluster_id: str | None = None
    topics: list[TopicData] = field(default_factory=list)
    leader_endpoints: list[LeaderEndpoint] = field(default_factory=list, versions="1+", ignorable=True)


class EndQuorumEpochResponse(Response, key=54, versions="0-1", flexible="1+"):
    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        leader_id: int32 = 0
        leader_epoch: int32 = 0

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[EndQuorumEpochResponse.PartitionData] = field(default_factory=list)

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: uint16 = 0

    error_code: int16 = 0
    topics: list[TopicData] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list, versions="1+", tag=0)
