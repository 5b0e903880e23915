"""AlterConfigs (33): replaces the whole configuration of a resource (KIP-133)."""

from __future__ import annotations

from quorate.controller.changes.batched_change import ChangeSteps, in_one_turn
from quorate.controller.context import Context, Result, View
from quorate.controller.handlers.config_changes import alter_resources, replaced_config_records
from quorate.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from quorate.protocol.schema import Data


def alter_configs(view: View, request: AlterConfigsRequest, ctx: Context) -> Result[AlterConfigsResponse]:
    """Replaces the whole configuration of each resource. Errors are reported for each resource."""
    return in_one_turn(alter_configs_in_steps(view, request, ctx))


def alter_configs_in_steps(
    view: View, request: AlterConfigsRequest, ctx: Context
) -> ChangeSteps[Result[AlterConfigsResponse]]:
    """Does the same as `alter_configs` in steps, which yield the records."""

    def alter(resource: AlterConfigsRequest.AlterConfigsResource) -> list[Data]:
        wanted = {config.name: config.value for config in resource.configs}
        return replaced_config_records(
            view, resource.resource_type, resource.resource_name, wanted, forwarded=ctx.forwarded
        )

    answers, recheck = yield from alter_resources(
        view,
        request.resources,
        AlterConfigsResponse.AlterConfigsResourceResponse,
        alter,
        validate_only=request.validate_only,
    )
    return Result(AlterConfigsResponse(responses=answers), recheck=recheck)
