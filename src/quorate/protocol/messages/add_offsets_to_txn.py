"""AddOffsetsToTxn, API key 25.

Versions
  0  the oldest
  1  the answer is sent before the throttle time is served (KIP-219)
  2  may be answered with PRODUCER_FENCED
  3  flexible (KIP-482)
  4  may be answered with TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, int16, int32, int64


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible="3+", listeners={"broker"}):
    """Puts a group's partition of the offsets topic into a transaction."""

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    group_id: str = ""


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
