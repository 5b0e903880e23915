"""ListPartitionReassignments, API key 46.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32


class ListPartitionReassignmentsRequest(
    Request, key=46, versions="0", flexible="0+", listeners={"broker", "controller"}
):
    """Shows the reassignments in progress."""

    class ListPartitionReassignmentsTopics(Struct):
        name: str = ""
        partition_indexes: list[int32] = field(default_factory=list)

    timeout_ms: int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class ListPartitionReassignmentsResponse(Response, key=46, versions="0", flexible="0+"):
    class OngoingPartitionReassignment(Struct):
        partition_index: int32 = 0
        replicas: list[int32] = field(default_factory=list)
        adding_replicas: list[int32] = field(default_factory=list)
        removing_replicas: list[int32] = field(default_factory=list)

    class OngoingTopicReassignment(Struct):
        name: str = ""
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = field(
            default_factory=list
        )

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = field(default_factory=list)
