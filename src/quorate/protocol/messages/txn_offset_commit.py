"""TxnOffsetCommit, API key 28.

Versions
  0  the oldest
  1  the answer is sent before the throttle time is served (KIP-219)
  2  request gains topics.partitions.committed_leader_epoch
  3  request gains generation_id_or_member_epoch, member_id, group_instance_id; flexible (KIP-482)
  4  may be answered with TRANSACTION_ABORTABLE (KIP-890)
  5  adds the group to the transaction by itself (KIP-890)
  6  topic ids (KIP-1319); request and response gain topics.topic_id and lose topics.name; may be answered
     with GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH or UNKNOWN_TOPIC_ID
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, int64, uuid


class TxnOffsetCommitRequest(Request, key=28, versions="0-6", flexible="3+", listeners={"broker"}):
    """Stores the positions of a group within a transaction."""

    class TxnOffsetCommitRequestPartition(Struct):
        partition_index: int32 = 0
        committed_offset: int64 = 0
        committed_leader_epoch: int32 = field(default=-1, versions="2+", ignorable=True)
        committed_metadata: str | None = ""

    class TxnOffsetCommitRequestTopic(Struct):
        name: str = field(default="", versions="0-5", ignorable=True)
        topic_id: uuid = field(default=ZERO_UUID, versions="6+", ignorable=True)
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = field(default_factory=list)

    transactional_id: str = ""
    group_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    generation_id_or_member_epoch: int32 = field(default=-1, versions="3+")
    member_id: str = field(default="", versions="3+")
    group_instance_id: str | None = field(default=None, versions="3+")
    topics: list[TxnOffsetCommitRequestTopic] = field(default_factory=list)


class TxnOffsetCommitResponse(Response, key=28, versions="0-6", flexible="3+"):
    class TxnOffsetCommitResponsePartition(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0

    class TxnOffsetCommitResponseTopic(Struct):
        name: str = field(default="", versions="0-5", ignorable=True)
        topic_id: uuid = field(default=ZERO_UUID, versions="6+", ignorable=True)
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = field(
            default_factory=list
        )

    throttle_time_ms: int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = field(default_factory=list)
