"""Produce, API key 0.

Versions
  3  record batch v2, transactions (KIP-98); the oldest version that is served. The broker listener
     advertises version 0, because librdkafka requires it
  4  may be answered with KAFKA_STORAGE_ERROR
  5  response gains responses.partition_responses.log_start_offset
  6  the answer is sent before the throttle time is served (KIP-219)
  7  zstd batches (KIP-110)
  8  says which records were refused (KIP-467); response gains responses.partition_responses.record_errors,
     responses.partition_responses.error_message
  9  flexible (KIP-482)
 10  the new leader and its endpoint (KIP-951); response gains responses.partition_responses.current_leader,
     node_endpoints
 11  may be answered with TRANSACTION_ABORTABLE (KIP-890)
 12  adds the partition to the transaction by itself (KIP-890)
 13  topic ids instead of names (KIP-516); request gains topic_data.topic_id; request loses topic_data.name;
     response gains responses.topic_id; response loses responses.name
"""

from __future__ import annotations

from quorate.protocol.schema import (
    ZERO_UUID,
    Records,
    Request,
    Response,
    Struct,
    field,
    int16,
    int32,
    int64,
    uuid,
)


class ProduceRequest(Request, key=0, versions="3-13", flexible="9+", listeners={"broker"}):
    """Appends record batches to partitions; the answer comes when as many replicas as `acks` says have
    them."""

    class PartitionProduceData(Struct):
        index: int32 = 0
        records: Records | None = None

    class TopicProduceData(Struct):
        name: str = field(default="", versions="0-12", ignorable=True)
        topic_id: uuid = field(default=ZERO_UUID, versions="13+", ignorable=True)
        partition_data: list[ProduceRequest.PartitionProduceData] = field(default_factory=list)

    transactional_id: str | None = None
    acks: int16 = 0
    timeout_ms: int32 = 0
    topic_data: list[TopicProduceData] = field(default_factory=list)


class ProduceResponse(Response, key=0, versions="3-13", flexible="9+"):
    class BatchIndexAndErrorMessage(Struct):
        batch_index: int32 = 0
        batch_index_error_message: str | None = None

    class LeaderIdAndEpoch(Struct):
        leader_id: int32 = -1
        leader_epoch: int32 = -1

    class PartitionProduceResponse(Struct):
        index: int32 = 0
        error_code: int16 = 0
        base_offset: int64 = 0
        log_append_time_ms: int64 = -1
        log_start_offset: int64 = field(default=-1, versions="5+", ignorable=True)
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = field(
            default_factory=list, versions="8+", ignorable=True
        )
        error_message: str | None = field(default=None, versions="8+", ignorable=True)
        current_leader: ProduceResponse.LeaderIdAndEpoch = field(
            default_factory=lambda: ProduceResponse.LeaderIdAndEpoch(), versions="10+", tag=0
        )

    class TopicProduceResponse(Struct):
        name: str = field(default="", versions="0-12", ignorable=True)
        topic_id: uuid = field(default=ZERO_UUID, versions="13+", ignorable=True)
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = field(default_factory=list)

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = None

    responses: list[TopicProduceResponse] = field(default_factory=list)
    throttle_time_ms: int32 = 0
    node_endpoints: list[NodeEndpoint] = field(default_factory=list, versions="10+", tag=0)
