"""Fetch, API key 1.

Versions
  4  the oldest
  5  request gains topics.partitions.log_start_offset; response gains responses.partitions.log_start_offset
  6  may be answered with KAFKA_STORAGE_ERROR
  7  fetch sessions (KIP-227); request gains session_id, session_epoch, forgotten_topics_data; response gains
     error_code, session_id
  8  the answer is sent before the throttle time is served (KIP-219)
  9  fencing by leader epoch (KIP-320); request gains topics.partitions.current_leader_epoch
 10  zstd batches may be returned (KIP-110)
 11  reading from the closest replica (KIP-392); request gains rack_id; response gains
     responses.partitions.preferred_read_replica
 12  the metadata log: divergence, leader, snapshot (KIP-595, KIP-630); request gains cluster_id,
     topics.partitions.last_fetched_epoch; response gains responses.partitions.diverging_epoch,
     responses.partitions.current_leader, responses.partitions.snapshot_id; flexible (KIP-482)
 13  topic ids instead of names (KIP-516); request gains topics.topic_id, forgotten_topics_data.topic_id;
     request loses topics.topic, forgotten_topics_data.topic; response gains responses.topic_id;
     response loses responses.topic
 14  may be answered with OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405)
 15  broker epoch of the follower (KIP-903); request gains replica_state; request loses replica_id
 16  the new leader's endpoint (KIP-951); response gains node_endpoints
 17  directory id of the replica (KIP-853); request gains topics.partitions.replica_directory_id
 18  the follower's high watermark, so that the leader answers when its own is ahead (KIP-1166); request gains
     topics.partitions.high_watermark
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
    uuid,
)


class FetchRequest(Request, key=1, versions="4-18", flexible="12+", listeners={"broker", "controller"}):
    """Reads record batches: consumers, followers, and the replicas and observers of the metadata log,
    which also learn the high watermark, a diverging epoch or a snapshot to load. Waits for data as long
    as the reader allows."""

    class ReplicaState(Struct):
        replica_id: int32 = -1
        replica_epoch: int64 = -1

    class FetchPartition(Struct):
        partition: int32 = 0
        current_leader_epoch: int32 = field(default=-1, versions="9+", ignorable=True)
        fetch_offset: int64 = 0
        last_fetched_epoch: int32 = field(default=-1, versions="12+")
        log_start_offset: int64 = field(default=-1, versions="5+", ignorable=True)
        partition_max_bytes: int32 = 0
        replica_directory_id: uuid = field(default=ZERO_UUID, versions="17+", tag=0, ignorable=True)
        high_watermark: int64 = field(default=9223372036854775807, versions="18+", tag=1, ignorable=True)

    class FetchTopic(Struct):
        topic: str = field(default="", versions="0-12", ignorable=True)
        topic_id: uuid = field(default=ZERO_UUID, versions="13+", ignorable=True)
        partitions: list[FetchRequest.FetchPartition] = field(default_factory=list)

    class ForgottenTopic(Struct):
        topic: str = field(default="", versions="7-12", ignorable=True)
        topic_id: uuid = field(default=ZERO_UUID, versions="13+", ignorable=True)
        partitions: list[int32] = field(default_factory=list)

    cluster_id: str | None = field(default=None, versions="12+", tag=0, ignorable=True)
    replica_id: int32 = field(default=-1, versions="0-14")
    replica_state: ReplicaState = field(default_factory=ReplicaState, versions="15+", tag=1)
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = 2147483647
    isolation_level: int8 = 0
    session_id: int32 = field(default=0, versions="7+", ignorable=True)
    session_epoch: int32 = field(default=-1, versions="7+", ignorable=True)
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list, versions="7+")
    rack_id: str = field(default="", versions="11+", ignorable=True)
    snapshot_end_offset: int64 = field(
        default=-1, versions="12+", tag=our_tags.SNAPSHOT_END_OFFSET, ignorable=True
    )
    start_time_ms: int64 = field(default=0, versions="12+", tag=our_tags.START_TIME_MS, ignorable=True)


class FetchResponse(Response, key=1, versions="4-18", flexible="12+"):
    class EpochEndOffset(Struct):
        epoch: int32 = -1
        end_offset: int64 = -1

    class LeaderIdAndEpoch(Struct):
        leader_id: int32 = -1
        leader_epoch: int32 = -1

    class SnapshotId(Struct):
        end_offset: int64 = -1
        epoch: int32 = -1

    class AbortedTransaction(Struct):
        producer_id: int64 = 0
        first_offset: int64 = 0

    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        high_watermark: int64 = 0
        last_stable_offset: int64 = -1
        log_start_offset: int64 = field(default=-1, versions="5+", ignorable=True)
        diverging_epoch: FetchResponse.EpochEndOffset = field(
            default_factory=lambda: FetchResponse.EpochEndOffset(), versions="12+", tag=0
        )
        current_leader: FetchResponse.LeaderIdAndEpoch = field(
            default_factory=lambda: FetchResponse.LeaderIdAndEpoch(), versions="12+", tag=1
        )
        snapshot_id: FetchResponse.SnapshotId = field(
            default_factory=lambda: FetchResponse.SnapshotId(), versions="12+", tag=2
        )
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = field(default_factory=list)
        preferred_read_replica: int32 = field(default=-1, versions="11+")
        records: Records | None = None

    class FetchableTopicResponse(Struct):
        topic: str = field(default="", versions="0-12", ignorable=True)
        topic_id: uuid = field(default=ZERO_UUID, versions="13+", ignorable=True)
        partitions: list[FetchResponse.PartitionData] = field(default_factory=list)

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = None

    throttle_time_ms: int32 = 0
    error_code: int16 = field(default=0, versions="7+", ignorable=True)
    session_id: int32 = field(default=0, versions="7+")
    responses: list[FetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list, versions="16+", tag=0)
