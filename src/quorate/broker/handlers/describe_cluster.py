"""DescribeCluster (60), versions 0 to 2.

1 endpoint type: a broker describes brokers only (KIP-919) · 2 fenced brokers on request. All versions have
the start time of brokers in a tagged field of Quorate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.broker.authorized_operations import CLUSTER_OPERATIONS
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import Handler, RequestContext

_BROKERS, _CONTROLLERS = 1, 2


def describe(
    services: Services, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describes the brokers of the cluster."""
    metadata = services.metadata
    if context.api_version >= 1 and request.endpoint_type != _BROKERS:
        known = request.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of "
            "type CONTROLLER"
            if known
            else f"Unsupported endpoint type {request.endpoint_type}",
        )
    response = DescribeClusterResponse(
        cluster_id=services.cluster_id, controller_id=metadata.some_alive_broker(services.node_id)
    )
    for broker_id in sorted(metadata.image.cluster.brokers):
        broker = metadata.image.cluster.brokers[broker_id]
        endpoint = broker.endpoint(context.listener)
        if endpoint is None or (broker.fenced and not request.include_fenced_brokers):
            continue
        response.brokers.append(
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=broker.id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
                start_time_ms=broker.start_time_ms,
            )
        )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {int(ApiKey.DESCRIBE_CLUSTER): lambda context, request: describe(services, context, request)}
