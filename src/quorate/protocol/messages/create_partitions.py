"""CreatePartitions, API key 37.

Versions
  0  the oldest
  1  the answer is sent before the throttle time is served (KIP-219)
  2  flexible (KIP-482)
  3  may be answered with THROTTLING_QUOTA_EXCEEDED (KIP-599)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32


class CreatePartitionsRequest(
    Request, key=37, versions="0-3", flexible="2+", listeners={"broker", "controller"}
):
    """Adds partitions to topics."""

    class CreatePartitionsAssignment(Struct):
        broker_ids: list[int32] = field(default_factory=list)

    class CreatePartitionsTopic(Struct):
        name: str = ""
        count: int32 = 0
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = field(
            default_factory=list
        )

    topics: list[CreatePartitionsTopic] = field(default_factory=list)
    timeout_ms: int32 = 0
    validate_only: bool = False


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    class CreatePartitionsTopicResult(Struct):
        name: str = ""
        error_code: int16 = 0
        error_message: str | None = None

    throttle_time_ms: int32 = 0
    results: list[CreatePartitionsTopicResult] = field(default_factory=list)
