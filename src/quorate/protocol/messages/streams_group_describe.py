"""StreamsGroupDescribe, API key 89.

Versions
  0  flexible (KIP-482) from the first
  1  topology descriptions (KIP-1331) and the assignor (KIP-1357); request gains
     include_topology_description; response gains groups.topology_description,
     groups.topology_description_status, groups.assignor_name
"""

from __future__ import annotations

from quorate.protocol.schema import (
    Request,
    Response,
    Struct,
    field,
    int8,
    int16,
    int32,
    int64,
    uint16,
)


class StreamsGroupDescribeRequest(Request, key=89, versions="0-1", flexible="0+", listeners={"broker"}):
    """Shows state, topology and members of streams groups. KIP-1071."""

    group_ids: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False
    include_topology_description: bool = field(default=False, versions="1+")


class StreamsGroupDescribeResponse(Response, key=89, versions="0-1", flexible="0+"):
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

    class TopologyDescriptionNode(Struct):
        name: str = ""
        node_type: int8 = 0
        """1 for a source, 2 for a processor, 3 for a sink."""
        source_topics: list[str] = field(default_factory=list)
        sink_topic: str | None = None
        stores: list[str] = field(default_factory=list)
        successors: list[str] = field(default_factory=list)

    class TopologyDescriptionSubtopology(Struct):
        subtopology_id: str = ""
        nodes: list[StreamsGroupDescribeResponse.TopologyDescriptionNode] = field(default_factory=list)

    class TopologyDescriptionGlobalStore(Struct):
        source: StreamsGroupDescribeResponse.TopologyDescriptionNode = field(
            default_factory=lambda: StreamsGroupDescribeResponse.TopologyDescriptionNode()
        )
        processor: StreamsGroupDescribeResponse.TopologyDescriptionNode = field(
            default_factory=lambda: StreamsGroupDescribeResponse.TopologyDescriptionNode()
        )

    class TopologyDescription(Struct):
        subtopologies: list[StreamsGroupDescribeResponse.TopologyDescriptionSubtopology] = field(
            default_factory=list
        )
        global_stores: list[StreamsGroupDescribeResponse.TopologyDescriptionGlobalStore] = field(
            default_factory=list
        )

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
        topology_description: StreamsGroupDescribeResponse.TopologyDescription | None = field(
            default=None, versions="1+"
        )
        topology_description_status: int8 = field(default=0, versions="1+")
        """0 if it was not requested, 1 if none is stored, 2 for an error, 3 if it is available."""
        assignor_name: str | None = field(default=None, versions="1+", ignorable=True)

    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = field(default_factory=list)
