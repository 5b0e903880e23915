"""ShareFetch, API key 78.

Versions
  1  the first stable one; 0 was early access
  2  limits by records and renewed acknowledgements (KIP-1206, KIP-1222); request gains share_acquire_mode,
     is_renew_ack
"""

from __future__ import annotations

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


class ShareFetchRequest(Request, key=78, versions="1-2", flexible="0+", listeners={"broker"}):
    """Acquires records for a member of a share group, and acknowledges others. KIP-932."""

    class AcknowledgementBatch(Struct):
        first_offset: int64 = 0
        last_offset: int64 = 0
        acknowledge_types: list[int8] = field(default_factory=list)

    class FetchPartition(Struct):
        partition_index: int32 = 0
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch] = field(default_factory=list)

    class FetchTopic(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[ShareFetchRequest.FetchPartition] = field(default_factory=list)

    class ForgottenTopic(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = field(default_factory=list)

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int32 = 0
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = 2147483647
    max_records: int32 = 0
    batch_size: int32 = 0
    share_acquire_mode: int8 = field(default=0, versions="2+", ignorable=True)
    is_renew_ack: bool = field(default=False, versions="2+")
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list)


class ShareFetchResponse(Response, key=78, versions="1-2", flexible="0+"):
    class LeaderIdAndEpoch(Struct):
        leader_id: int32 = 0
        leader_epoch: int32 = 0

    class AcquiredRecords(Struct):
        first_offset: int64 = 0
        last_offset: int64 = 0
        delivery_count: int16 = 0

    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None
        acknowledge_error_code: int16 = 0
        acknowledge_error_message: str | None = None
        current_leader: ShareFetchResponse.LeaderIdAndEpoch = field(
            default_factory=lambda: ShareFetchResponse.LeaderIdAndEpoch()
        )
        records: Records = b""
        acquired_records: list[ShareFetchResponse.AcquiredRecords] = field(default_factory=list)

    class ShareFetchableTopicResponse(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[ShareFetchResponse.PartitionData] = field(default_factory=list)

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = None

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = 0
    responses: list[ShareFetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)
