"""Metadata, API key 3.

Versions
  0  the oldest
  1  null topics mean all; an empty list no longer does; request: null allowed in topics; response gains
     brokers.rack, controller_id, topics.is_internal
  2  response gains cluster_id
  3  response gains throttle_time_ms
  4  creation of missing topics may be declined; request gains allow_auto_topic_creation
  5  response gains topics.partitions.offline_replicas
  6  the answer is sent before the throttle time is served (KIP-219)
  7  response gains topics.partitions.leader_epoch
  8  request gains include_cluster_authorized_operations, include_topic_authorized_operations; response gains
     topics.topic_authorized_operations, cluster_authorized_operations
  9  flexible (KIP-482)
 10  topic ids (KIP-516); request gains topics.topic_id; request: null allowed in topics.name; response gains
     topics.topic_id
 11  request loses include_cluster_authorized_operations; response loses cluster_authorized_operations
 12  topics by id (KIP-516); response: null allowed in topics.name
 13  a top-level error, to make clients bootstrap again (KIP-1102); response gains error_code
"""

from __future__ import annotations

from quorate.protocol import our_tags
from quorate.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, int64, uuid


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+", listeners={"broker"}):
    """Tells brokers, topics, partitions, leaders and ISRs to clients; may create missing topics."""

    class MetadataRequestTopic(Struct):
        topic_id: uuid = field(default=ZERO_UUID, versions="10+", ignorable=True)
        name: str | None = field(default="", nullable="10+")

    topics: list[MetadataRequestTopic] | None = field(default_factory=list, nullable="1+")
    allow_auto_topic_creation: bool = field(default=True, versions="4+")
    include_cluster_authorized_operations: bool = field(default=False, versions="8-10")
    include_topic_authorized_operations: bool = field(default=False, versions="8+")


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    class MetadataResponseBroker(Struct):
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = field(default=None, versions="1+", ignorable=True)
        start_time_ms: int64 = field(default=0, versions="9+", tag=our_tags.START_TIME_MS, ignorable=True)

    class MetadataResponsePartition(Struct):
        error_code: int16 = 0
        partition_index: int32 = 0
        leader_id: int32 = 0
        leader_epoch: int32 = field(default=-1, versions="7+", ignorable=True)
        replica_nodes: list[int32] = field(default_factory=list)
        isr_nodes: list[int32] = field(default_factory=list)
        offline_replicas: list[int32] = field(default_factory=list, versions="5+", ignorable=True)

    class MetadataResponseTopic(Struct):
        error_code: int16 = 0
        name: str | None = field(default="", nullable="12+")
        topic_id: uuid = field(default=ZERO_UUID, versions="10+", ignorable=True)
        is_internal: bool = field(default=False, versions="1+", ignorable=True)
        partitions: list[MetadataResponse.MetadataResponsePartition] = field(default_factory=list)
        topic_authorized_operations: int32 = field(default=-2147483648, versions="8+")

    throttle_time_ms: int32 = field(default=0, versions="3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = field(default_factory=list)
    cluster_id: str | None = field(default=None, versions="2+", ignorable=True)
    controller_id: int32 = field(default=-1, versions="1+", ignorable=True)
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    cluster_authorized_operations: int32 = field(default=-2147483648, versions="8-10")
    error_code: int16 = field(default=0, versions="13+", ignorable=True)
