"""AddPartitionsToTxn, API key 24.

Versions
  0  the oldest
  1  the answer is sent before the throttle time is served (KIP-219)
  2  may be answered with PRODUCER_FENCED
  3  flexible (KIP-482)
  4  several transactions at once, and verification (KIP-890); request gains transactions; request loses
     v3_and_below_transactional_id, v3_and_below_producer_id, v3_and_below_producer_epoch,
     v3_and_below_topics; response gains error_code, results_by_transaction; response loses
     results_by_topic_v3_and_below
  5  may be answered with TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class AddPartitionsToTxnRequest(Request, key=24, versions="0-5", flexible="3+", listeners={"broker"}):
    """Puts partitions into a transaction. Clients use versions up to 3, brokers from 4 on, also to verify."""

    class AddPartitionsToTxnTopic(Struct):
        name: str = ""
        partitions: list[int32] = field(default_factory=list)

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: str = ""
        producer_id: int64 = 0
        producer_epoch: int16 = 0
        verify_only: bool = False
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = field(default_factory=list)

    transactions: list[AddPartitionsToTxnTransaction] = field(default_factory=list, versions="4+")
    v3_and_below_transactional_id: str = field(default="", versions="0-3")
    v3_and_below_producer_id: int64 = field(default=0, versions="0-3")
    v3_and_below_producer_epoch: int16 = field(default=0, versions="0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(default_factory=list, versions="0-3")


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible="3+"):
    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: int32 = 0
        partition_error_code: int16 = 0

    class AddPartitionsToTxnTopicResult(Struct):
        name: str = ""
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = field(
            default_factory=list
        )

    class AddPartitionsToTxnResult(Struct):
        transactional_id: str = ""
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = field(
            default_factory=list
        )

    throttle_time_ms: int32 = 0
    error_code: int16 = field(default=0, versions="4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(default_factory=list, versions="4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        default_factory=list, versions="0-3"
    )
