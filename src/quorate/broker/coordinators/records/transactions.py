"""Records of `__transaction_state`. Value versions: 1 tagged fields for the epochs of KIP-890."""

from __future__ import annotations

from quorate.protocol.schema import Data, Struct, field, int8, int16, int32, int64


class TransactionLogKey(Data, key=0, versions="0"):
    transactional_id: str = ""


class TransactionLogValue(Data, key=0, versions="0-1", flexible="1+"):
    class PartitionsSchema(Struct):
        topic: str = ""
        partition_ids: list[int32] = field(default_factory=list)

    producer_id: int64 = 0
    previous_producer_id: int64 = field(default=-1, versions="1+", tag=0)
    next_producer_id: int64 = field(default=-1, versions="1+", tag=1)
    producer_epoch: int16 = 0
    next_producer_epoch: int16 = field(default=-1, versions="1+", tag=3)
    transaction_timeout_ms: int32 = 0
    transaction_status: int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = field(default_factory=list)
    transaction_last_update_timestamp_ms: int64 = 0
    transaction_start_timestamp_ms: int64 = 0
    client_transaction_version: int16 = field(default=0, versions="1+", tag=2)
