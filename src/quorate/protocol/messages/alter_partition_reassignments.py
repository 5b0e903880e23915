"""AlterPartitionReassignments, API key 45.

Versions
  0  flexible (KIP-482) from the first
  1  a change of the replication factor may be forbidden (KIP-860); request gains
     allow_replication_factor_change; response gains allow_replication_factor_change
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32


class AlterPartitionReassignmentsRequest(
    Request, key=45, versions="0-1", flexible="0+", listeners={"broker", "controller"}
):
    """Starts and cancels the moving of partitions to other replicas."""

    class ReassignablePartition(Struct):
        partition_index: int32 = 0
        replicas: list[int32] | None = None

    class ReassignableTopic(Struct):
        name: str = ""
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = field(
            default_factory=list
        )

    timeout_ms: int32 = 60000
    allow_replication_factor_change: bool = field(default=True, versions="1+")
    topics: list[ReassignableTopic] = field(default_factory=list)


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    class ReassignablePartitionResponse(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        error_message: str | None = ""

    class ReassignableTopicResponse(Struct):
        name: str = ""
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = field(
            default_factory=list
        )

    throttle_time_ms: int32 = 0
    allow_replication_factor_change: bool = field(default=True, versions="1+", ignorable=True)
    error_code: int16 = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = field(default_factory=list)
