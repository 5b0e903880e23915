"""IncrementalAlterConfigs (44): changes single configurations of a resource (KIP-339, KIP-966)."""

from __future__ import annotations

from quorate.controller.context import Context, Result, View
from quorate.controller.handlers.config_changes import Operation, alter_resources, altered_config_records
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from quorate.protocol.schema import Data


def incremental_alter_configs(
    view: View, request: IncrementalAlterConfigsRequest, ctx: Context
) -> Result[IncrementalAlterConfigsResponse]:
    """Applies the operations of each resource. Errors are reported for each resource."""

    def alter(resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> list[Data]:
        operations = {
            config.name: (_operation(config.config_operation), config.value) for config in resource.configs
        }
        return altered_config_records(
            view, resource.resource_type, resource.resource_name, operations, forwarded=ctx.forwarded
        )

    answers, records = alter_resources(
        request.resources, IncrementalAlterConfigsResponse.AlterConfigsResourceResponse, alter
    )
    return Result(
        IncrementalAlterConfigsResponse(responses=answers), [] if request.validate_only else records
    )


def _operation(code: int) -> Operation:
    """Raises INVALID_REQUEST for an unknown code."""
    try:
        return Operation(code)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {code}") from None
