"""ShareAcknowledge, API key 79.

Versions
  1  the first stable one; 0 was early access
  2  renewed acknowledgements (KIP-1222); request gains is_renew_ack; response gains
     acquisition_lock_timeout_ms
"""

from __future__ import annotations

from quorate.protocol.schema import (
    ZERO_UUID,
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


class ShareAcknowledgeRequest(Request, key=79, versions="1-2", flexible="0+", listeners={"broker"}):
    """Acknowledges acquired records. KIP-932."""

    class AcknowledgementBatch(Struct):
        first_offset: int64 = 0
        last_offset: int64 = 0
        acknowledge_types: list[int8] = field(default_factory=list)

    class AcknowledgePartition(Struct):
        partition_index: int32 = 0
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch] = field(
            default_factory=list
        )

    class AcknowledgeTopic(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition] = field(default_factory=list)

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int32 = 0
    is_renew_ack: bool = field(default=False, versions="2+")
    topics: list[AcknowledgeTopic] = field(default_factory=list)


class ShareAcknowledgeResponse(Response, key=79, versions="1-2", flexible="0+"):
    class LeaderIdAndEpoch(Struct):
        leader_id: int32 = 0
        leader_epoch: int32 = 0

    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch = field(
            default_factory=lambda: ShareAcknowledgeResponse.LeaderIdAndEpoch()
        )

    class ShareAcknowledgeTopicResponse(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[ShareAcknowledgeResponse.PartitionData] = field(default_factory=list)

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = None

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = field(default=0, versions="2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)
