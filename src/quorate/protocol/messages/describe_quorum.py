"""DescribeQuorum, API key 55.

Versions
  0  flexible (KIP-482) from the first
  1  fetch times (KIP-836); response gains topics.partitions.current_voters.last_fetch_timestamp,
     topics.partitions.current_voters.last_caught_up_timestamp,
     topics.partitions.observers.last_fetch_timestamp, topics.partitions.observers.last_caught_up_timestamp
  2  directory ids, endpoints (KIP-853); response gains error_message, topics.partitions.error_message,
     topics.partitions.current_voters.replica_directory_id, topics.partitions.observers.replica_directory_id,
     nodes
"""

from __future__ import annotations

from quorate.protocol import our_tags
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


class DescribeQuorumRequest(
    Request, key=55, versions="0-2", flexible="0+", listeners={"broker", "controller"}
):
    """Shows leader, voters and observers of the metadata log and how far each has read. KIP-595, KIP-853."""

    class PartitionData(Struct):
        partition_index: int32 = 0

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[DescribeQuorumRequest.PartitionData] = field(default_factory=list)

    topics: list[TopicData] = field(default_factory=list)


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    class ReplicaState(Struct):
        replica_id: int32 = 0
        replica_directory_id: uuid = field(default=ZERO_UUID, versions="2+")
        log_end_offset: int64 = 0
        last_fetch_timestamp: int64 = field(default=-1, versions="1+", ignorable=True)
        last_caught_up_timestamp: int64 = field(default=-1, versions="1+", ignorable=True)
        snapshot_end_offset: int64 = field(
            default=-1, versions="2+", tag=our_tags.SNAPSHOT_END_OFFSET, ignorable=True
        )
        start_time_ms: int64 = field(default=0, versions="2+", tag=our_tags.START_TIME_MS, ignorable=True)

    class UncommittedVoter(Struct):
        """Of ours: a voter of a change that is not committed yet. Not in versions that know no
        directory ids: some clients of those refuse a tagged field that they do not know."""

        replica_id: int32 = 0
        replica_directory_id: uuid = ZERO_UUID

    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        error_message: str | None = field(default="", versions="2+", ignorable=True)
        leader_id: int32 = 0
        leader_epoch: int32 = 0
        high_watermark: int64 = 0
        current_voters: list[DescribeQuorumResponse.ReplicaState] = field(default_factory=list)
        observers: list[DescribeQuorumResponse.ReplicaState] = field(default_factory=list)
        uncommitted_added_voters: list[DescribeQuorumResponse.UncommittedVoter] | None = field(
            default=None, versions="2+", tag=our_tags.UNCOMMITTED_ADDED_VOTERS, ignorable=True
        )
        uncommitted_removed_voters: list[DescribeQuorumResponse.UncommittedVoter] | None = field(
            default=None, versions="2+", tag=our_tags.UNCOMMITTED_REMOVED_VOTERS, ignorable=True
        )

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[DescribeQuorumResponse.PartitionData] = field(default_factory=list)

    class Listener(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0

    class Node(Struct):
        node_id: int32 = 0
        listeners: list[DescribeQuorumResponse.Listener] = field(default_factory=list)

    error_code: int16 = 0
    error_message: str | None = field(default="", versions="2+", ignorable=True)
    topics: list[TopicData] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list, versions="2+")
