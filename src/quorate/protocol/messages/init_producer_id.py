"""InitProducerId, API key 22.

Versions
  0  the oldest
  1  the answer is sent before the throttle time is served (KIP-219)
  2  flexible (KIP-482)
  3  a producer may recover its id (KIP-360); request gains producer_id, producer_epoch
  4  may be answered with PRODUCER_FENCED
  5  may be answered with TRANSACTION_ABORTABLE (KIP-890)
  6  two-phase commit (KIP-939), unstable; request gains enable2_pc, keep_prepared_txn; response gains
     ongoing_txn_producer_id, ongoing_txn_producer_epoch
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, field, int16, int32, int64


class InitProducerIdRequest(
    Request, key=22, versions="0-6", flexible="2+", listeners={"broker"}, unstable_last=True
):
    """Gives a producer its id and epoch; for a transactional id it also ends what its predecessor left
    open."""

    transactional_id: str | None = ""
    transaction_timeout_ms: int32 = 0
    producer_id: int64 = field(default=-1, versions="3+")
    producer_epoch: int16 = field(default=-1, versions="3+")
    enable2_pc: bool = field(default=False, versions="6+")
    keep_prepared_txn: bool = field(default=False, versions="6+")


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible="2+", unstable_last=True):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = -1
    producer_epoch: int16 = 0
    ongoing_txn_producer_id: int64 = field(default=-1, versions="6+")
    ongoing_txn_producer_epoch: int16 = field(default=-1, versions="6+")
