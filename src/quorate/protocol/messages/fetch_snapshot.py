"""FetchSnapshot, API key 59.

Versions
  0  flexible (KIP-482) from the first
  1  directory id, endpoints (KIP-853); request gains topics.partitions.replica_directory_id; response gains
     node_endpoints
"""

from __future__ import annotations

from quorate.protocol import our_tags
from quorate.protocol.schema import (
    ZERO_UUID,
    Records,
    Request,
    Response,
    Struct,
    field,
    int8,
    int16,
    int32,
    int64,
    uint16,
    uuid,
)


class FetchSnapshotRequest(Request, key=59, versions="0-1", flexible="0+", listeners={"controller"}):
    """Reads a part of a snapshot of the metadata log. KIP-630."""

    class SnapshotId(Struct):
        end_offset: int64 = 0
        epoch: int32 = 0

    class PartitionSnapshot(Struct):
        partition: int32 = 0
        current_leader_epoch: int32 = 0
        snapshot_id: FetchSnapshotRequest.SnapshotId = field(
            default_factory=lambda: FetchSnapshotRequest.SnapshotId()
        )
        position: int64 = 0
        replica_directory_id: uuid = field(default=ZERO_UUID, versions="1+", tag=0, ignorable=True)
        prefix_digest: bytes | None = field(default=None, tag=our_tags.SNAPSHOT_PREFIX_DIGEST, ignorable=True)

    class TopicSnapshot(Struct):
        name: str = ""
        partitions: list[FetchSnapshotRequest.PartitionSnapshot] = field(default_factory=list)

    cluster_id: str | None = field(default=None, tag=0)
    replica_id: int32 = -1
    max_bytes: int32 = 2147483647
    topics: list[TopicSnapshot] = field(default_factory=list)


class FetchSnapshotResponse(Response, key=59, versions="0-1", flexible="0+"):
    class SnapshotId(Struct):
        end_offset: int64 = 0
        epoch: int32 = 0

    class LeaderIdAndEpoch(Struct):
        leader_id: int32 = 0
        leader_epoch: int32 = 0

    class PartitionSnapshot(Struct):
        index: int32 = 0
        error_code: int16 = 0
        snapshot_id: FetchSnapshotResponse.SnapshotId = field(
            default_factory=lambda: FetchSnapshotResponse.SnapshotId()
        )
        current_leader: FetchSnapshotResponse.LeaderIdAndEpoch = field(
            default_factory=lambda: FetchSnapshotResponse.LeaderIdAndEpoch(), tag=0
        )
        size: int64 = 0
        position: int64 = 0
        unaligned_records: Records = b""
        same_prefix: int8 = field(default=-1, tag=our_tags.SNAPSHOT_SAME_PREFIX, ignorable=True)

    class TopicSnapshot(Struct):
        name: str = ""
        partitions: list[FetchSnapshotResponse.PartitionSnapshot] = field(default_factory=list)

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: uint16 = 0

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    topics: list[TopicSnapshot] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list, versions="1+", tag=0)
