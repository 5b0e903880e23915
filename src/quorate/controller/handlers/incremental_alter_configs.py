"""IncrementalAlterConfigs (44): KIP-339, KIP-966."""

from __future__ import annotations

from quorate.controller.context import Context, Result, View, bounded
from quorate.controller.handlers.config_changes import (
    Operation,
    altered_config_records,
    check_keys,
    check_resource_type,
    move_clear_records_last,
    repeated_resources,
)
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from quorate.protocol.schema import Data


def incremental_alter_configs(
    view: View, request: IncrementalAlterConfigsRequest, ctx: Context
) -> Result[IncrementalAlterConfigsResponse]:
    """Errors are per resource."""
    response = IncrementalAlterConfigsResponse()
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
        answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        response.responses.append(answer)
        try:
            if key in repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate resource.")
            check_resource_type(resource.resource_type)
            check_keys([config.name for config in resource.configs])
            operations = {
                config.name: (_operation(config.config_operation), config.value)
                for config in resource.configs
            }
            records += altered_config_records(view, *key, operations)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
    move_clear_records_last(records)
    bounded(records, "Altering these configurations")
    return Result(response, [] if request.validate_only else records)


def _operation(code: int) -> Operation:
    try:
        return Operation(code)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {code}") from None
