"""DescribeCluster (60) on the controller listener (KIP-700, KIP-919)."""

from __future__ import annotations

from quorate.metadata.features import FIRST_CONTROLLER_REGISTRATION, METADATA_VERSION, upgrade_remedy
from quorate.metadata.image import MetadataImage
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

BROKERS, CONTROLLERS = 1, 2
ALL_CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
"""The cluster operations that everybody may perform without ACLs: create, alter, describe, cluster
action, describe configs, alter configs, idempotent write."""


def describe_cluster(
    image: MetadataImage,
    request: DescribeClusterRequest,
    api_version: int,
    listener: str,
    cluster_id: str,
    leader_id: int,
) -> DescribeClusterResponse:
    """The registered controllers with their endpoints on this listener (KIP-919).

    Raises UNSUPPORTED_VERSION. Raises NOT_CONTROLLER, which clients retry, as long as this controller
    has received no metadata.
    """
    if METADATA_VERSION not in image.features.finalized:
        raise KafkaError(
            ErrorCode.NOT_CONTROLLER,
            "This controller has no metadata yet, because it has not heard from a leader.",
        )
    if image.features.metadata_version < FIRST_CONTROLLER_REGISTRATION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "Direct-to-controller communication is not supported with the current MetadataVersion.",
            remedy=upgrade_remedy(image.features.metadata_version, FIRST_CONTROLLER_REGISTRATION),
        )
    kind = request.endpoint_type
    if kind != CONTROLLERS:
        unknown = kind != BROKERS
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE if unknown else ErrorCode.MISMATCHED_ENDPOINT_TYPE
        return DescribeClusterResponse(
            error_code=ErrorCode.INVALID_REQUEST if api_version == 0 else code,
            error_message=f"Unsupported endpoint type {kind}"
            if unknown
            else "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type "
            "BROKER",
        )
    nodes = [
        DescribeClusterResponse.DescribeClusterBroker(
            broker_id=controller.id, host=endpoint.host, port=endpoint.port
        )
        for controller in sorted(image.cluster.controllers.values(), key=lambda controller: controller.id)
        if (endpoint := controller.endpoint(listener)) is not None
    ]
    response = DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id=cluster_id,
        controller_id=leader_id if any(node.broker_id == leader_id for node in nodes) else -1,
        brokers=nodes,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response
