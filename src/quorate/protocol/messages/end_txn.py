"""EndTxn, API key 26.

Versions
  0  the oldest
  1  the answer is sent before the throttle time is served (KIP-219)
  2  may be answered with PRODUCER_FENCED
  3  flexible (KIP-482)
  4  may be answered with TRANSACTION_ABORTABLE (KIP-890)
  5  each transaction gets a new producer epoch (KIP-890); response gains producer_id, producer_epoch
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, field, int16, int32, int64


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+", listeners={"broker"}):
    """Commits or aborts a transaction."""

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    committed: bool = False


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = field(default=-1, versions="5+", ignorable=True)
    producer_epoch: int16 = field(default=-1, versions="5+", ignorable=True)
