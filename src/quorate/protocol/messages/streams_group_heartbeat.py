"""StreamsGroupHeartbeat, API key 88.

Versions
  0  flexible (KIP-482) from the first
  1  topology descriptions (KIP-1331); response gains acceptable_recovery_lag, topology_description_required;
     response loses acceptable_recovery_lag_legacy
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32, int64, uint16


class StreamsGroupHeartbeatRequest(Request, key=88, versions="0-1", flexible="0+", listeners={"broker"}):
    """The heartbeat of members of streams groups. KIP-1071."""

    class KeyValue(Struct):
        key: str = ""
        value: str = ""

    class TopicInfo(Struct):
        name: str = ""
        partitions: int32 = 0
        replication_factor: int16 = 0
        topic_configs: list[StreamsGroupHeartbeatRequest.KeyValue] = field(default_factory=list)

    class CopartitionGroup(Struct):
        source_topics: list[int16] = field(default_factory=list)
        source_topic_regex: list[int16] = field(default_factory=list)
        repartition_source_topics: list[int16] = field(default_factory=list)

    class Subtopology(Struct):
        subtopology_id: str = ""
        source_topics: list[str] = field(default_factory=list)
        source_topic_regex: list[str] = field(default_factory=list)
        state_changelog_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = field(default_factory=list)
        repartition_sink_topics: list[str] = field(default_factory=list)
        repartition_source_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = field(default_factory=list)
        copartition_groups: list[StreamsGroupHeartbeatRequest.CopartitionGroup] = field(default_factory=list)

    class Topology(Struct):
        epoch: int32 = 0
        subtopologies: list[StreamsGroupHeartbeatRequest.Subtopology] = field(default_factory=list)

    class TaskIds(Struct):
        subtopology_id: str = ""
        partitions: list[int32] = field(default_factory=list)

    class Endpoint(Struct):
        host: str = ""
        port: uint16 = 0

    class TaskOffset(Struct):
        subtopology_id: str = ""
        partition: int32 = 0
        offset: int64 = 0

    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    endpoint_information_epoch: int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    topology: Topology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: bool = False


class StreamsGroupHeartbeatResponse(Response, key=88, versions="0-1", flexible="0+"):
    class Status(Struct):
        status_code: int8 = 0
        status_detail: str = ""

    class TaskIds(Struct):
        subtopology_id: str = ""
        partitions: list[int32] = field(default_factory=list)

    class Endpoint(Struct):
        host: str = ""
        port: uint16 = 0

    class TopicPartition(Struct):
        topic: str = ""
        partitions: list[int32] = field(default_factory=list)

    class EndpointToPartitions(Struct):
        user_endpoint: StreamsGroupHeartbeatResponse.Endpoint = field(
            default_factory=lambda: StreamsGroupHeartbeatResponse.Endpoint()
        )
        active_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = field(default_factory=list)
        standby_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    acceptable_recovery_lag_legacy: int32 = field(default=0, versions="0")
    task_offset_interval_ms: int32 = 0
    acceptable_recovery_lag: int64 = field(default=-1, versions="1+", ignorable=True)
    status: list[Status] | None = field(default_factory=list)
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    topology_description_required: bool = field(default=False, versions="1+")
    endpoint_information_epoch: int32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None
