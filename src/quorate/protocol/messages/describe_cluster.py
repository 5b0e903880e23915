"""DescribeCluster, API key 60.

Versions
  0  flexible (KIP-482) from the first
  1  controllers too (KIP-919); request gains endpoint_type; response gains endpoint_type
  2  fenced brokers on request (KIP-1073); request gains include_fenced_brokers; response gains
     brokers.is_fenced
"""

from __future__ import annotations

from quorate.protocol import our_tags
from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32, int64


class DescribeClusterRequest(
    Request, key=60, versions="0-2", flexible="0+", listeners={"broker", "controller"}
):
    """Shows the cluster id, the controller and the brokers, or, on request, the controllers. KIP-700,
    KIP-919."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: int8 = field(default=1, versions="1+")
    include_fenced_brokers: bool = field(default=False, versions="2+")


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    class DescribeClusterBroker(Struct):
        broker_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = None
        is_fenced: bool = field(default=False, versions="2+")
        start_time_ms: int64 = field(default=0, tag=our_tags.START_TIME_MS, ignorable=True)

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    endpoint_type: int8 = field(default=1, versions="1+")
    cluster_id: str = ""
    controller_id: int32 = -1
    brokers: list[DescribeClusterBroker] = field(default_factory=list)
    cluster_authorized_operations: int32 = -2147483648
