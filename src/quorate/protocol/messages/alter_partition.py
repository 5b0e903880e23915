"""AlterPartition, API key 56.

Versions
  2  topic ids (KIP-841)
  3  broker epochs of the ISR (KIP-903); request gains topics.partitions.new_isr_with_epochs; request loses
     topics.partitions.new_isr
"""

from __future__ import annotations

from quorate.protocol import our_tags
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


class AlterPartitionRequest(Request, key=56, versions="2-3", flexible="0+", listeners={"controller"}):
    """From a partition leader to the controller: a new ISR. KIP-497, KIP-841, KIP-903."""

    class BrokerState(Struct):
        broker_id: int32 = 0
        broker_epoch: int64 = -1

    class PartitionData(Struct):
        partition_index: int32 = 0
        leader_epoch: int32 = 0
        new_isr: list[int32] = field(default_factory=list, versions="0-2")
        new_isr_with_epochs: list[AlterPartitionRequest.BrokerState] = field(
            default_factory=list, versions="3+"
        )
        leader_recovery_state: int8 = 0
        partition_epoch: int32 = 0
        metadata_offset: int64 = field(default=-1, tag=our_tags.ISR_METADATA_OFFSET, ignorable=True)

    class TopicData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[AlterPartitionRequest.PartitionData] = field(default_factory=list)

    broker_id: int32 = 0
    broker_epoch: int64 = -1
    topics: list[TopicData] = field(default_factory=list)


class AlterPartitionResponse(Response, key=56, versions="2-3", flexible="0+"):
    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        leader_id: int32 = 0
        leader_epoch: int32 = 0
        isr: list[int32] = field(default_factory=list)
        leader_recovery_state: int8 = 0
        partition_epoch: int32 = 0

    class TopicData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[AlterPartitionResponse.PartitionData] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    topics: list[TopicData] = field(default_factory=list)
