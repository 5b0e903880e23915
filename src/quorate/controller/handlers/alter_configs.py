"""AlterConfigs (33): replaces the whole configuration of a resource (KIP-133)."""

from __future__ import annotations

from quorate.controller.context import Context, Result, View
from quorate.controller.handlers.config_changes import alter_resources, replaced_config_records
from quorate.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from quorate.protocol.schema import Data


def alter_configs(view: View, request: AlterConfigsRequest, ctx: Context) -> Result[AlterConfigsResponse]:
    """Replaces the whole configuration of each resource. Errors are reported for each resource."""

    def alter(resource: AlterConfigsRequest.AlterConfigsResource) -> list[Data]:
        wanted = {config.name: config.value for config in resource.configs}
        return replaced_config_records(
            view, resource.resource_type, resource.resource_name, wanted, forwarded=ctx.forwarded
        )

    answers, records = alter_resources(
        request.resources, AlterConfigsResponse.AlterConfigsResourceResponse, alter
    )
    return Result(AlterConfigsResponse(responses=answers), [] if request.validate_only else records)
