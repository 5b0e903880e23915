"""DescribeTransactions, API key 65.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class DescribeTransactionsRequest(Request, key=65, versions="0", flexible="0+", listeners={"broker"}):
    """Shows the state of transactions by transactional id."""

    transactional_ids: list[str] = field(default_factory=list)


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible="0+"):
    class TopicData(Struct):
        topic: str = ""
        partitions: list[int32] = field(default_factory=list)

    class TransactionState(Struct):
        error_code: int16 = 0
        transactional_id: str = ""
        transaction_state: str = ""
        transaction_timeout_ms: int32 = 0
        transaction_start_time_ms: int64 = 0
        producer_id: int64 = 0
        producer_epoch: int16 = 0
        topics: list[DescribeTransactionsResponse.TopicData] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    transaction_states: list[TransactionState] = field(default_factory=list)
