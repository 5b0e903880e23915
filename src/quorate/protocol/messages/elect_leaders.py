"""ElectLeaders, API key 43.

Versions
  0  the oldest
  1  unclean elections (KIP-460); request gains election_type; response gains error_code
  2  flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible="2+", listeners={"broker", "controller"}):
    """Elects preferred leaders, or unclean ones where no eligible replica is left."""

    class TopicPartitions(Struct):
        topic: str = ""
        partitions: list[int32] = field(default_factory=list)

    election_type: int8 = field(default=0, versions="1+")
    topic_partitions: list[TopicPartitions] | None = field(default_factory=list)
    timeout_ms: int32 = 60000


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    class PartitionResult(Struct):
        partition_id: int32 = 0
        error_code: int16 = 0
        error_message: str | None = ""

    class ReplicaElectionResult(Struct):
        topic: str = ""
        partition_result: list[ElectLeadersResponse.PartitionResult] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    error_code: int16 = field(default=0, versions="1+")
    replica_election_results: list[ReplicaElectionResult] = field(default_factory=list)
