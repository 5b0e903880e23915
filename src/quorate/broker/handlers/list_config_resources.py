"""ListConfigResources (74), versions 0 and 1: the resources that can have configurations (KIP-714, KIP-1142).
Version 0 lists client metrics only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode
from quorate.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import Handler, RequestContext

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
_ALL = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)


def list_resources(
    services: Services, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Lists the resources of the requested types."""
    supported = _ALL if context.api_version >= 1 else (CLIENT_METRICS,)
    wanted = (
        set(request.resource_types) if context.api_version >= 1 and request.resource_types else set(supported)
    )
    if not wanted <= set(supported):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = services.metadata.image
    names: list[tuple[int, str]] = []
    for kind in _ALL:
        if kind not in wanted:
            continue
        if kind in (GROUP, CLIENT_METRICS):
            names += sorted((k, name) for k, name in image.configs.resources if k == kind)
        elif kind == TOPIC:
            names += [(TOPIC, name) for name in sorted(image.topics.by_name)]
        else:
            names += [
                (kind, str(broker.id))
                for _, broker in sorted(image.cluster.brokers.items())
                if broker.endpoint(context.listener) is not None
            ]
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind, name in names
        ]
    )


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {
        int(ApiKey.LIST_CONFIG_RESOURCES): lambda context, request: list_resources(services, context, request)
    }
