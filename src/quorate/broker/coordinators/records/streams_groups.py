"""Records of streams groups in `__consumer_offsets`. KIP-1071."""

from __future__ import annotations

from quorate.protocol.schema import Data, Struct, field, int8, int16, int32, int64, uint16


class StreamsGroupMetadataKey(Data, key=17, versions="0"):
    group_id: str = ""


class StreamsGroupMetadataValue(Data, key=17, versions="0", flexible="0+"):
    class LastAssignmentConfig(Struct):
        key: str = ""
        value: str = ""

    epoch: int32 = 0
    metadata_hash: int64 = 0
    validated_topology_epoch: int32 = field(default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(default_factory=list, tag=1)
    stored_description_topology_epoch: int32 = field(default=-1, tag=2)
    """-1 if none is stored, -2 after an interrupted operation of the plugin."""
    failed_description_topology_epoch: int32 = field(default=-1, tag=3)


class StreamsGroupMemberMetadataKey(Data, key=19, versions="0"):
    group_id: str = ""
    member_id: str = ""


class StreamsGroupMemberMetadataValue(Data, key=19, versions="0", flexible="0+"):
    class Endpoint(Struct):
        host: str = ""
        port: uint16 = 0

    class KeyValue(Struct):
        key: str = ""
        value: str = ""

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int32 = -1
    topology_epoch: int32 = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = field(default_factory=list)


class StreamsGroupTargetAssignmentMetadataKey(Data, key=20, versions="0"):
    group_id: str = ""


class StreamsGroupTargetAssignmentMetadataValue(Data, key=20, versions="0", flexible="0+"):
    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = field(default=0, tag=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(Data, key=21, versions="0"):
    group_id: str = ""
    member_id: str = ""


class StreamsGroupTargetAssignmentMemberValue(Data, key=21, versions="0", flexible="0+"):
    class TaskIds(Struct):
        subtopology_id: str = ""
        partitions: list[int32] = field(default_factory=list)

    active_tasks: list[TaskIds] = field(default_factory=list)
    standby_tasks: list[TaskIds] = field(default_factory=list)
    warmup_tasks: list[TaskIds] = field(default_factory=list)


class StreamsGroupCurrentMemberAssignmentKey(Data, key=22, versions="0"):
    group_id: str = ""
    member_id: str = ""


class StreamsGroupCurrentMemberAssignmentValue(Data, key=22, versions="0", flexible="0+"):
    class TaskIds(Struct):
        subtopology_id: str = ""
        partitions: list[int32] = field(default_factory=list)
        assignment_epochs: list[int32] | None = field(default_factory=list, tag=0)

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    active_tasks: list[TaskIds] = field(default_factory=list)
    standby_tasks: list[TaskIds] = field(default_factory=list)
    warmup_tasks: list[TaskIds] = field(default_factory=list)
    active_tasks_pending_revocation: list[TaskIds] = field(default_factory=list)
    standby_tasks_pending_revocation: list[TaskIds] = field(default_factory=list)
    warmup_tasks_pending_revocation: list[TaskIds] = field(default_factory=list)


class StreamsGroupTopologyKey(Data, key=23, versions="0"):
    group_id: str = ""


class StreamsGroupTopologyValue(Data, key=23, versions="0", flexible="0+"):
    class TopicConfig(Struct):
        key: str = ""
        value: str = ""

    class TopicInfo(Struct):
        name: str = ""
        partitions: int32 = 0
        replication_factor: int16 = 0
        topic_configs: list[StreamsGroupTopologyValue.TopicConfig] = field(default_factory=list)

    class CopartitionGroup(Struct):
        source_topics: list[int16] = field(default_factory=list)
        source_topic_regex: list[int16] = field(default_factory=list)
        repartition_source_topics: list[int16] = field(default_factory=list)

    class Subtopology(Struct):
        subtopology_id: str = ""
        source_topics: list[str] = field(default_factory=list)
        source_topic_regex: list[str] = field(default_factory=list)
        state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo] = field(default_factory=list)
        repartition_sink_topics: list[str] = field(default_factory=list)
        repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo] = field(default_factory=list)
        copartition_groups: list[StreamsGroupTopologyValue.CopartitionGroup] = field(default_factory=list)

    epoch: int32 = 0
    subtopologies: list[Subtopology] = field(default_factory=list)
