"""UnregisterController (94): removes the registration of a controller that will not come back (KIP-1312).

A stale registration blocks upgrades of features that its controller does not support. A controller that
still runs registers again.
"""

from __future__ import annotations

from quorate.controller.context import Context, Result, View
from quorate.metadata.features import FIRST_CONTROLLER_UNREGISTRATION, upgrade_remedy
from quorate.metadata.records import UnregisterControllerRecord
from quorate.protocol.errors import ErrorCode, KafkaError, listed
from quorate.protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)


def unregister_controller(
    view: View, request: UnregisterControllerRequest, _ctx: Context
) -> Result[UnregisterControllerResponse]:
    """Removes a registration. Raises INVALID_REQUEST for the active controller itself,
    UNSUPPORTED_VERSION below metadata.version 33, CONTROLLER_ID_NOT_REGISTERED."""
    controller_id = request.controller_id
    if controller_id == view.config.node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Controller cannot unregister itself while it is active.",
            remedy=f"Stop controller {controller_id}, then repeat the command.",
        )
    if view.metadata_version < FIRST_CONTROLLER_UNREGISTRATION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller unregistration.",
            remedy=upgrade_remedy(view.metadata_version, FIRST_CONTROLLER_UNREGISTRATION),
        )
    if controller_id not in view.image.cluster.controllers:
        raise KafkaError(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
            f"Controller ID {controller_id} is not currently registered.",
            remedy=f"Registered controllers: {listed(sorted(view.image.cluster.controllers))}.",
        )
    return Result(UnregisterControllerResponse(), [UnregisterControllerRecord(controller_id=controller_id)])
