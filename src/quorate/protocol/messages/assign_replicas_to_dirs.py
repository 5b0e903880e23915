"""AssignReplicasToDirs, API key 73.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, int64, uuid


class AssignReplicasToDirsRequest(Request, key=73, versions="0", flexible="0+", listeners={"controller"}):
    """From a broker to the controller: which directory holds which replica. KIP-858."""

    class PartitionData(Struct):
        partition_index: int32 = 0

    class TopicData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[AssignReplicasToDirsRequest.PartitionData] = field(default_factory=list)

    class DirectoryData(Struct):
        id: uuid = ZERO_UUID
        topics: list[AssignReplicasToDirsRequest.TopicData] = field(default_factory=list)

    broker_id: int32 = 0
    broker_epoch: int64 = -1
    directories: list[DirectoryData] = field(default_factory=list)


class AssignReplicasToDirsResponse(Response, key=73, versions="0", flexible="0+"):
    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0

    class TopicData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[AssignReplicasToDirsResponse.PartitionData] = field(default_factory=list)

    class DirectoryData(Struct):
        id: uuid = ZERO_UUID
        topics: list[AssignReplicasToDirsResponse.TopicData] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    directories: list[DirectoryData] = field(default_factory=list)
