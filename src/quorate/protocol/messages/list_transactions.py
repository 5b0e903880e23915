"""ListTransactions, API key 66.

Versions
  0  flexible (KIP-482) from the first
  1  filter by duration (KIP-994); request gains duration_filter
  2  filter by a pattern of the id (KIP-1152); request gains transactional_id_pattern
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class ListTransactionsRequest(Request, key=66, versions="0-2", flexible="0+", listeners={"broker"}):
    """Lists the transactions that a broker coordinates."""

    state_filters: list[str] = field(default_factory=list)
    producer_id_filters: list[int64] = field(default_factory=list)
    duration_filter: int64 = field(default=-1, versions="1+")
    transactional_id_pattern: str | None = field(default=None, versions="2+")


class ListTransactionsResponse(Response, key=66, versions="0-2", flexible="0+"):
    class TransactionState(Struct):
        transactional_id: str = ""
        producer_id: int64 = 0
        transaction_state: str = ""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    unknown_state_filters: list[str] = field(default_factory=list)
    transaction_states: list[TransactionState] = field(default_factory=list)
