"""AlterConfigs (33), versions 0 to 2, and IncrementalAlterConfigs (44), versions 0 and 1, on a broker
(KIP-339, KIP-412).

A broker validates requests about brokers (its id, dynamic keys, values), changes the levels of its own
loggers, and forwards the other resources to the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quorate.broker.metadata.config_view import ConfigView
from quorate.config.broker_defs import BROKER_CONFIGS
from quorate.config.definitions import ConfigType
from quorate.config.dynamic_configs import inconsistency, refusal_reason, valid_values
from quorate.lazy import lazy_module
from quorate.protocol.api import ApiKey, encode_request
from quorate.protocol.config_resource import altered_node_id
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_configs import AlterConfigsResponse
from quorate.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse

if TYPE_CHECKING:
    from quorate import log_levels
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import Handler, RequestContext
else:
    log_levels = lazy_module("quorate.log_levels")

logger = logging.getLogger("quorate.broker.alter_configs")

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
_FORWARD_S = 60.0
_SLICE = 50
"""Resources that are checked between two turns of the event loop. Each that is refused is logged."""


class AlterConfigsHandler:
    """The handler of both APIs. AlterConfigs replaces all keys of a resource, IncrementalAlterConfigs changes
    some of them."""

    def __init__(self, services: Services, *, incremental: bool) -> None:
        self._services = services
        self._incremental = incremental
        self._view = ConfigView(services.config, lambda: services.metadata.image)

    async def __call__(self, context: RequestContext, request: Any) -> Any:
        refused: dict[int, KafkaError] = {}  # by position; NONE for resources that are done
        seen: dict[tuple[int, str], int] = {}
        for position, resource in enumerate(request.resources):
            key = (resource.resource_type, resource.resource_name)
            if key in seen:
                twice = KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                refused[seen[key]] = refused[position] = twice
            seen[key] = position
        for position, resource in enumerate(request.resources):
            if position in refused:
                continue
            if position and not position % _SLICE:
                await asyncio.sleep(0)
            try:
                if self._check(request, resource):
                    refused[position] = KafkaError(ErrorCode.NONE)
            except KafkaError as error:
                logger.info(
                    "[AlterConfigs broker=%d] Resource %d %r refused: %s",
                    self._services.node_id,
                    resource.resource_type,
                    resource.resource_name,
                    error,
                )
                refused[position] = error
        if not refused:
            return await self._services.channel.forward(context, request)
        return await self._rest(context, request, refused)

    async def _rest(self, context: RequestContext, request: Any, refused: Mapping[int, KafkaError]) -> Any:
        response = self._response()
        rest = [resource for position, resource in enumerate(request.resources) if position not in refused]
        for position, error in sorted(refused.items()):
            resource = request.resources[position]
            response.responses.append(
                self._result(error.code, error.message, resource.resource_type, resource.resource_name)
            )
        if rest:
            smaller = type(request)(resources=rest, validate_only=request.validate_only)
            frame = encode_request(context.correlation_id, context.client_id, smaller, context.api_version)
            forwarded: Any = await self._services.channel.forward_frame(context, smaller, frame, _FORWARD_S)
            if forwarded is None:
                return None
            response.responses.extend(forwarded.responses)
        return response

    def _check(self, request: Any, resource: Any) -> bool:
        """Validates a resource. Returns whether it is done and needs no controller. Raises KafkaError."""
        names = [config.name for config in resource.configs]
        if len(set(names)) != len(names):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        nulls = [
            config.name
            for config in resource.configs
            if config.value is None and not (self._incremental and config.config_operation == DELETE)
        ]
        if nulls:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Null value not supported for : " + ", ".join(nulls))
        kind = resource.resource_type
        if kind == BROKER_LOGGER and self._incremental:
            log_levels.change_levels(
                self._services.node_id,
                resource.resource_name,
                resource.configs,
                validate_only=request.validate_only,
            )
            return True
        if kind == BROKER:
            if resource.resource_name:
                me, name = self._services.node_id, resource.resource_name
                if altered_node_id(name) != me:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {me}, but received {name}"
                    )
            self._check_broker(resource)
        elif kind not in (TOPIC, CLIENT_METRICS, GROUP):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
        return False

    def _check_broker(self, resource: Any) -> None:
        """Checks the dynamic configurations of a broker, or the defaults of all, after the change."""
        name, config = resource.resource_name, self._services.config
        stored = self._stored(name)
        values = self._resulting(resource, stored)

        def consistency() -> str | None:
            default, own = self._view.dynamic_default(), self._view.dynamic_broker()
            after = (default, values) if name else (values, own)
            return inconsistency(config.originals, (default, own), after)

        listeners = {endpoint.name.lower() for endpoint in config.listeners} if name else None
        reason = refusal_reason(values, stored, consistency, per_broker=bool(name), listeners=listeners)
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)

    def _stored(self, name: str) -> Mapping[str, str]:
        """The keys that a broker resource has, without those that Apache Kafka would ignore."""
        return valid_values(self._services.metadata.image.configs.get(BROKER, name), per_broker=bool(name))

    def _resulting(self, resource: Any, stored: Mapping[str, str]) -> dict[str, str]:
        """The keys of a broker resource after the change."""
        if not self._incremental:
            return {config.name: config.value for config in resource.configs}
        values = dict(stored)
        for config in resource.configs:
            name, operation = config.name, config.config_operation
            if operation == SET:
                values[name] = config.value
            elif operation == DELETE:
                values.pop(name, None)
            elif operation in (APPEND, SUBTRACT):
                definition = BROKER_CONFIGS.get(name)
                if definition is None or definition.type is not ConfigType.LIST:
                    word = "append" if operation == APPEND else "subtract"
                    raise KafkaError(
                        ErrorCode.INVALID_CONFIG,
                        f"Unknown config name: {name}"
                        if definition is None
                        else f"Config value {word} is not allowed for config key: {name}",
                    )
                current = values.get(name, definition.default or "")
                items = [item for item in current.split(",") if item]
                changed = config.value.split(",")
                if operation == APPEND:
                    present = set(items)
                    items += [item for item in changed if item not in present]
                else:
                    taken = set(changed)
                    items = [item for item in items if item not in taken]
                values[name] = ",".join(items)
            else:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
        return values

    def _response(self) -> Any:
        if self._incremental:
            return IncrementalAlterConfigsResponse()
        return AlterConfigsResponse()

    def _result(self, code: int, message: str | None, kind: int, name: str) -> Any:
        response = self._response()
        # Both responses have results of the same name with the same fields.
        make = type(response).AlterConfigsResourceResponse
        return make(error_code=code, error_message=message, resource_type=kind, resource_name=name)


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {
        int(ApiKey.ALTER_CONFIGS): AlterConfigsHandler(services, incremental=False),
        int(ApiKey.INCREMENTAL_ALTER_CONFIGS): AlterConfigsHandler(services, incremental=True),
    }
