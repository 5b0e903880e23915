"""StreamsGroupDescribe, API key 89.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    field,
    int16,
    int32,
    int64,
    uint16,
    uuid,
)


class StreamsGroupDescribeRequest(
    Request, key=89, versions="0", flexible="0+", listeners={"broker"}, unstable_last=True
):
    """Shows state, topology and members of streams groups. KIP-1071."""

    group_ids: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False


class StreamsGroupDescribeResponse(Response, key=89, versions="0", flexible="0+", unstable_last=True):
    class KeyValue(Struct):
        key: str = ""
        value: str = ""

    class TopicInfo(Struct):
        name: str = ""
        partitions: int32 = 0
        replication_factor: int16 = 0
        topic_configs: list[StreamsGroupDescribeResponse.KeyValue] = field(default_factory=list)

    class Subtopology(Struct):
        subtopology_id: str = ""
        source_topics: list[str] = field(default_factory=list)
        repartition_sink_topics: list[str] = field(default_factory=list)
        state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo] = field(default_factory=list)
        repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo] = field(default_factory=list)

    class Topology(Struct):
        epoch: int32 = 0
        subtopologies: list[StreamsGroupDescribeResponse.Subtopology] | None = None

    class Endpoint(Struct):
        host: str = ""
        port: uint16 = 0

    class TaskOffset(Struct):
        subtopology_id: str = ""
        partition: int32 = 0
        offset: int64 = 0

    class TaskIds(Struct):
        subtopology_id: str = ""
        partitions: list[int32] = field(default_factory=list)

    class Assignment(Struct):
        active_tasks: list[StreamsGroupDescribeResponse.TaskIds] = field(default_factory=list)
        standby_tasks: list[StreamsGroupDescribeResponse.TaskIds] = field(default_factory=list)
        warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds] = field(default_factory=list)

    class Member(Struct):
        member_id: str = ""
        member_epoch: int32 = 0
        instance_id: str | None = None
        rack_id: str | None = None
        client_id: str = ""
        client_host: str = ""
        topology_epoch: int32 = 0
        process_id: str = ""
        user_endpoint: StreamsGroupDescribeResponse.Endpoint | None = None
        client_tags: list[StreamsGroupDescribeResponse.KeyValue] = field(default_factory=list)
        task_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = field(default_factory=list)
        task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = field(default_factory=list)
        assignment: StreamsGroupDescribeResponse.Assignment = field(
            default_factory=lambda: StreamsGroupDescribeResponse.Assignment()
        )
        target_assignment: StreamsGroupDescribeResponse.Assignment = field(
            default_factory=lambda: StreamsGroupDescribeResponse.Assignment()
        )
        is_classic: bool = False

    class DescribedGroup(Struct):
        error_code: int16 = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        group_epoch: int32 = 0
        assignment_epoch: int32 = 0
        topology: StreamsGroupDescribeResponse.Topology | None = None
        members: list[StreamsGroupDescribeResponse.Member] = field(default_factory=list)
        authorized_operations: int32 = -2147483648

    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        topic_name: str = ""
        partitions: list[int32] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = field(default_factory=list)
