"""AlterConfigs (33): replaces the whole configuration of a resource (KIP-133)."""

from __future__ import annotations

from quorate.controller.context import Context, Result, View, bounded
from quorate.controller.handlers.config_changes import (
    check_keys,
    check_resource_type,
    move_clear_records_last,
    repeated_resources,
    replaced_config_records,
)
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from quorate.protocol.schema import Data


def alter_configs(view: View, request: AlterConfigsRequest, ctx: Context) -> Result[AlterConfigsResponse]:
    """Replaces the whole configuration of each resource; errors are per resource."""
    response = AlterConfigsResponse()
    records: list[Data] = []
    repeated = repeated_resources(
        [(resource.resource_type, resource.resource_name) for resource in request.resources]
    )
    answered: set[tuple[int, str]] = set()
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        if key in answered:
            continue
        answered.add(key)
        answer = AlterConfigsResponse.AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        response.responses.append(answer)
        try:
            if key in repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate resource.")
            check_resource_type(resource.resource_type)
            check_keys([config.name for config in resource.configs])
            records += replaced_config_records(
                view, *key, {config.name: config.value for config in resource.configs}
            )
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
    move_clear_records_last(records)
    bounded(records, "Altering these configurations")
    return Result(response, [] if request.validate_only else records)
