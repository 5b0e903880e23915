"""Vote, API key 52.

Versions
  0  flexible (KIP-482) from the first
  1  directory ids, endpoints (KIP-853); request gains voter_id, topics.partitions.replica_directory_id,
     topics.partitions.voter_directory_id; response gains node_endpoints
  2  pre-vote (KIP-996); request gains topics.partitions.pre_vote
"""

from __future__ import annotations

from quorate.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    field,
    int16,
    int32,
    int64,
    uint16,
    uuid,
)


class VoteRequest(Request, key=52, versions="0-2", flexible="0+", listeners={"controller"}):
    """Asks a replica of the metadata quorum for its vote, or with pre_vote, whether it would give one.
    KIP-595, KIP-853, KIP-996."""

    class PartitionData(Struct):
        partition_index: int32 = 0
        replica_epoch: int32 = 0
        replica_id: int32 = 0
        replica_directory_id: uuid = field(default=ZERO_UUID, versions="1+", ignorable=True)
        voter_directory_id: uuid = field(default=ZERO_UUID, versions="1+", ignorable=True)
        last_offset_epoch: int32 = 0
        last_offset: int64 = 0
        pre_vote: bool = field(default=False, versions="2+")

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[VoteRequest.PartitionData] = field(default_factory=list)

    cluster_id: str | None = None
    voter_id: int32 = field(default=-1, versions="1+", ignorable=True)
    topics: list[TopicData] = field(default_factory=list)


class VoteResponse(Response, key=52, versions="0-2", flexible="0+"):
    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        leader_id: int32 = 0
        leader_epoch: int32 = 0
        vote_granted: bool = False

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[VoteResponse.PartitionData] = field(default_factory=list)

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: uint16 = 0

    error_code: int16 = 0
    topics: list[TopicData] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list, versions="1+", tag=0)
