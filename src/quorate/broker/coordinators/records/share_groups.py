"""Records of share groups in `__consumer_offsets`. KIP-932."""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Data, Struct, field, int8, int32, int64, uuid


class ShareGroupMemberMetadataKey(Data, key=10, versions="0"):
    group_id: str = ""
    member_id: str = ""


class ShareGroupMemberMetadataValue(Data, key=10, versions="0", flexible="0+"):
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field(default_factory=list)


class ShareGroupMetadataKey(Data, key=11, versions="0"):
    group_id: str = ""


class ShareGroupMetadataValue(Data, key=11, versions="0", flexible="0+"):
    epoch: int32 = 0
    metadata_hash: int64 = 0


class ShareGroupTargetAssignmentMetadataKey(Data, key=12, versions="0"):
    group_id: str = ""


class ShareGroupTargetAssignmentMetadataValue(Data, key=12, versions="0", flexible="0+"):
    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = field(default=0, tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(Data, key=13, versions="0"):
    group_id: str = ""
    member_id: str = ""


class ShareGroupTargetAssignmentMemberValue(Data, key=13, versions="0", flexible="0+"):
    class TopicPartition(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = field(default_factory=list)

    topic_partitions: list[TopicPartition] = field(default_factory=list)


class ShareGroupCurrentMemberAssignmentKey(Data, key=14, versions="0"):
    group_id: str = ""
    member_id: str = ""


class ShareGroupCurrentMemberAssignmentValue(Data, key=14, versions="0", flexible="0+"):
    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = field(default_factory=list)

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[TopicPartitions] = field(default_factory=list)


class ShareGroupStatePartitionMetadataKey(Data, key=15, versions="0"):
    group_id: str = ""


class ShareGroupStatePartitionMetadataValue(Data, key=15, versions="0", flexible="0+"):
    class TopicPartitionsInfo(Struct):
        topic_id: uuid = ZERO_UUID
        topic_name: str = ""
        partitions: list[int32] = field(default_factory=list)

    class TopicInfo(Struct):
        topic_id: uuid = ZERO_UUID
        topic_name: str = ""

    initializing_topics: list[TopicPartitionsInfo] = field(default_factory=list)
    initialized_topics: list[TopicPartitionsInfo] = field(default_factory=list)
    deleting_topics: list[TopicInfo] = field(default_factory=list)
