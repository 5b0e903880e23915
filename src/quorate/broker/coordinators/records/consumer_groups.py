"""Records of the new consumer groups in `__consumer_offsets`. KIP-848."""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Data, Struct, field, int8, int32, int64, uuid


class ConsumerGroupMetadataKey(Data, key=3, versions="0"):
    group_id: str = ""


class ConsumerGroupMetadataValue(Data, key=3, versions="0", flexible="0+"):
    epoch: int32 = 0
    metadata_hash: int64 = field(default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Data, key=4, versions="0"):
    group_id: str = ""


class ConsumerGroupPartitionMetadataValue(Data, key=4, versions="0", flexible="0+"):
    class PartitionMetadata(Struct):
        partition: int32 = 0
        racks: list[str] = field(default_factory=list)

    class TopicMetadata(Struct):
        topic_id: uuid = ZERO_UUID
        topic_name: str = ""
        num_partitions: int32 = 0
        partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata] = field(
            default_factory=list
        )

    topics: list[TopicMetadata] = field(default_factory=list)


class ConsumerGroupMemberMetadataKey(Data, key=5, versions="0"):
    group_id: str = ""
    member_id: str = ""


class ConsumerGroupMemberMetadataValue(Data, key=5, versions="0", flexible="0+"):
    class ClassicProtocol(Struct):
        name: str = ""
        metadata: bytes = b""

    class ClassicMemberMetadata(Struct):
        session_timeout_ms: int32 = 0
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol] = field(
            default_factory=list
        )

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field(default_factory=list)
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: int32 = -1
    server_assignor: str | None = ""
    classic_member_metadata: ClassicMemberMetadata | None = field(
        default_factory=ClassicMemberMetadata, tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Data, key=6, versions="0"):
    group_id: str = ""


class ConsumerGroupTargetAssignmentMetadataValue(Data, key=6, versions="0", flexible="0+"):
    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = field(default=0, tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Data, key=7, versions="0"):
    group_id: str = ""
    member_id: str = ""


class ConsumerGroupTargetAssignmentMemberValue(Data, key=7, versions="0", flexible="0+"):
    class TopicPartition(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = field(default_factory=list)

    topic_partitions: list[TopicPartition] = field(default_factory=list)


class ConsumerGroupCurrentMemberAssignmentKey(Data, key=8, versions="0"):
    group_id: str = ""
    member_id: str = ""


class ConsumerGroupCurrentMemberAssignmentValue(Data, key=8, versions="0", flexible="0+"):
    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = field(default_factory=list)
        assignment_epochs: list[int32] | None = field(default_factory=list, tag=0)

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[TopicPartitions] = field(default_factory=list)
    partitions_pending_revocation: list[TopicPartitions] = field(default_factory=list)


class ConsumerGroupRegularExpressionKey(Data, key=16, versions="0"):
    group_id: str = ""
    regular_expression: str = ""


class ConsumerGroupRegularExpressionValue(Data, key=16, versions="0", flexible="0+"):
    topics: list[str] = field(default_factory=list)
    version: int64 = 0
    timestamp: int64 = 0
