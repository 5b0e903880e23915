"""ConsumerGroupHeartbeat, API key 68.

Versions
  0  flexible (KIP-482) from the first
  1  regular expressions, member ids made by clients (KIP-1082); request gains subscribed_topic_regex
"""

from __future__ import annotations

from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, uuid


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible="0+", listeners={"broker"}):
    """The one request of members of the new consumer groups: joins, leaves, keeps alive, reconciles.
    KIP-848."""

    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = field(default_factory=list)

    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = field(default=None, versions="1+")
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = field(default_factory=list)

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = field(default_factory=list)

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: Assignment | None = None
