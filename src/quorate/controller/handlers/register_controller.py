"""ControllerRegistration (70): registers the endpoints and features of a controller (KIP-919)."""

from __future__ import annotations

from quorate.controller.context import Context, Result, View
from quorate.controller.handlers.register_broker import check_listeners
from quorate.metadata.features import FIRST_CONTROLLER_REGISTRATION, upgrade_remedy
from quorate.metadata.records import RegisterControllerRecord
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)


def register_controller(
    view: View, request: ControllerRegistrationRequest, ctx: Context
) -> Result[ControllerRegistrationResponse]:
    """Registers a controller. Raises UNSUPPORTED_VERSION below metadata.version 15,
    INVALID_REGISTRATION."""
    if view.metadata_version < FIRST_CONTROLLER_REGISTRATION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
            remedy=upgrade_remedy(view.metadata_version, FIRST_CONTROLLER_REGISTRATION),
        )
    check_listeners(f"Controller {request.controller_id}", request.listeners)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=[
            RegisterControllerRecord.ControllerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            RegisterControllerRecord.ControllerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
    )
    return Result(ControllerRegistrationResponse(error_message=""), [record])  # not null, as in Kafka
