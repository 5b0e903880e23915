"""IncrementalAlterConfigs (44): changes single configurations of a resource (KIP-339, KIP-966)."""

from __future__ import annotations

from quorate.controller.changes.batched_change import ChangeSteps, in_one_turn
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
    return in_one_turn(incremental_alter_configs_in_steps(view, request, ctx))


def incremental_alter_configs_in_steps(
    view: View, request: IncrementalAlterConfigsRequest, ctx: Context
) -> ChangeSteps[Result[IncrementalAlterConfigsResponse]]:
    """Does the same as `incremental_alter_configs` in steps, which yield the records."""

    def alter(resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> list[Data]:
        operations = {
            config.name: (_operation(config.config_operation), config.value) for config in resource.configs
        }
        return altered_config_records(
            view, resource.resource_type, resource.resource_name, operations, forwarded=ctx.forwarded
        )

    answers, recheck = yield from alter_resources(
        view,
        request.resources,
        IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
        alter,
        validate_only=request.validate_only,
    )
    return Result(IncrementalAlterConfigsResponse(responses=answers), recheck=recheck)


def _operation(code: int) -> Operation:
    """Raises INVALID_REQUEST for an unknown code."""
    try:
        return Operation(code)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {code}") from None
