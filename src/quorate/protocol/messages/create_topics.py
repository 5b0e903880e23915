"""CreateTopics, API key 19.

Versions
  2  the oldest
  3  the answer is sent before the throttle time is served (KIP-219)
  4  partition count and replication factor may be -1, the broker's defaults (KIP-464)
  5  the answer tells the configuration (KIP-525); response gains topics.topic_config_error_code,
     topics.num_partitions, topics.replication_factor, topics.configs; flexible (KIP-482)
  6  may be answered with THROTTLING_QUOTA_EXCEEDED (KIP-599)
  7  the answer tells the topic id (KIP-516); response gains topics.topic_id
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int8, int16, int32, uuid


class CreateTopicsRequest(Request, key=19, versions="2-7", flexible="5+", listeners={"broker", "controller"}):
    """Creates topics, or with validate_only checks whether it could."""

    class CreatableReplicaAssignment(Struct):
        partition_index: int32 = 0
        broker_ids: list[int32] = field(default_factory=list)

    class CreatableTopicConfig(Struct):
        name: str = ""
        value: str | None = ""

    class CreatableTopic(Struct):
        name: str = ""
        num_partitions: int32 = 0
        replication_factor: int16 = 0
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = field(default_factory=list)
        configs: list[CreateTopicsRequest.CreatableTopicConfig] = field(default_factory=list)

    topics: list[CreatableTopic] = field(default_factory=list)
    timeout_ms: int32 = 60000
    validate_only: bool = False


class CreateTopicsResponse(Response, key=19, versions="2-7", flexible="5+"):
    class CreatableTopicConfigs(Struct):
        name: str = ""
        value: str | None = ""
        read_only: bool = False
        config_source: int8 = -1
        is_sensitive: bool = False

    class CreatableTopicResult(Struct):
        name: str = ""
        topic_id: uuid = field(default=ZERO_UUID, versions="7+", ignorable=True)
        error_code: int16 = 0
        error_message: str | None = ""
        topic_config_error_code: int16 = field(default=0, versions="5+", tag=0, ignorable=True)
        num_partitions: int32 = field(default=-1, versions="5+", ignorable=True)
        replication_factor: int16 = field(default=-1, versions="5+", ignorable=True)
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = field(
            default_factory=list, versions="5+", ignorable=True
        )

    throttle_time_ms: int32 = 0
    topics: list[CreatableTopicResult] = field(default_factory=list)
