"""AlterReplicaLogDirs, API key 34.

Versions
  1  the oldest
  2  flexible (KIP-482)
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32


class AlterReplicaLogDirsRequest(Request, key=34, versions="1-2", flexible="2+", listeners={"broker"}):
    """Moves replicas between the log directories of a broker."""

    class AlterReplicaLogDirTopic(Struct):
        name: str = ""
        partitions: list[int32] = field(default_factory=list)

    class AlterReplicaLogDir(Struct):
        path: str = ""
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = field(default_factory=list)

    dirs: list[AlterReplicaLogDir] = field(default_factory=list)


class AlterReplicaLogDirsResponse(Response, key=34, versions="1-2", flexible="2+"):
    class AlterReplicaLogDirPartitionResult(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: str = ""
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = field(
            default_factory=list
        )

    throttle_time_ms: int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = field(default_factory=list)
