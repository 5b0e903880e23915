"""AlterConfigs (33), versions 0 to 2, and IncrementalAlterConfigs (44), versions 0 and 1, on a broker
(KIP-339, KIP-412).

A broker validates requests about brokers (its id, dynamic keys, values), changes the levels of its own
loggers, and forwards the other resources to the controller.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from quorate.broker import log_levels
from quorate.config.broker_defs import BROKER_CONFIGS
from quorate.config.cordoned_dirs import CORDONED_LOG_DIRS, parse_cordoned_dirs
from quorate.config.definitions import ConfigError, ConfigType, Scope
from quorate.config.listeners import parse_connections_per_ip
from quorate.config.without_effect import STORED, WITHOUT_EFFECT
from quorate.protocol.api import ApiKey, encode_request
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.alter_configs import AlterConfigsResponse
from quorate.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse

if TYPE_CHECKING:
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import Handler, RequestContext

logger = logging.getLogger("quorate.broker.alter_configs")

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
_FORWARD_S = 60.0
_OPENED_AT_START = frozenset({"listeners", "listener.security.protocol.map"})
"""Keys that are dynamic in Kafka. Here a change of them would have no effect."""


class AlterConfigsHandler:
    """The handler of both APIs. AlterConfigs replaces all keys of a resource, IncrementalAlterConfigs changes
    some of them."""

    def __init__(self, services: Services, *, incremental: bool) -> None:
        self._services = services
        self._incremental = incremental

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
            self._check_broker_id(resource.resource_name)
            for config in resource.configs:
                log_levels.check_change(config.name, config.config_operation, config.value)
            if not request.validate_only:
                for config in resource.configs:
                    log_levels.change(config.name, config.config_operation, config.value)
            return True
        if kind == BROKER:
            if resource.resource_name:
                self._check_broker_id(resource.resource_name)
            self._check_broker(resource)
        elif kind not in (TOPIC, CLIENT_METRICS, GROUP):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
        return False

    def _check_broker_id(self, name: str) -> None:
        me = self._services.node_id
        try:
            wanted = int(name)
        except ValueError:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
            ) from None
        if wanted != me:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {me}, but received {name}"
            )

    def _check_broker(self, resource: Any) -> None:
        values = self._resulting(resource)
        if opened := [name for name in values if name in _OPENED_AT_START]:
            raise _invalid(
                "Listeners are opened when a node starts; set them in its properties file and restart it, "
                "these cannot be changed dynamically",
                opened,
            )
        fixed = [
            name
            for name in values
            if (d := BROKER_CONFIGS.get(name)) is not None and d.dynamic is Scope.READ_ONLY
        ]
        if fixed:
            raise _invalid("Cannot update these configs dynamically", fixed)
        if not resource.resource_name:
            single = [
                name
                for name in values
                if (d := BROKER_CONFIGS.get(name)) is not None and d.dynamic is Scope.PER_BROKER
            ]
            if single:
                raise _invalid(
                    "Cannot update these configs at default cluster level, broker id must be specified",
                    single,
                )
        for name, value in values.items():
            definition = BROKER_CONFIGS.get(name)
            if definition is not None:
                try:
                    definition.validate(value)
                except ConfigError as error:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        self._check_effect(resource, values)
        if CORDONED_LOG_DIRS in values:
            try:
                parse_cordoned_dirs(values[CORDONED_LOG_DIRS], self._services.config.log_dirs)
            except ConfigError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        self._check_connections(values)

    def _check_effect(self, resource: Any, values: Mapping[str, str]) -> None:
        """Refuses to set a key that has no effect to another value than its default. Keys that are stored
        already, by a broker of Apache Kafka in the same cluster, may stay."""
        stored = self._services.metadata.image.configs.get(BROKER, resource.resource_name)
        for name, value in values.items():
            reason = WITHOUT_EFFECT.get(name)
            if reason is None or name in STORED or stored.get(name) == value:
                continue
            definition = BROKER_CONFIGS[name]
            if definition.parse(value) != definition.default_value():
                raise _invalid(f"Cannot change what has no effect on this broker ({reason})", [name])

    def _check_connections(self, values: Mapping[str, str]) -> None:
        """Validates the limits on connections, which depend on two keys."""
        single, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
        if single not in values and overrides not in values:
            return
        config = self._services.config
        try:
            excepted = parse_connections_per_ip(overrides, values.get(overrides, config.get(overrides)))
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        if int(values.get(single, config.get(single))) == 0 and not excepted:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{single}=0 needs {overrides}, or no client could connect"
            )

    def _resulting(self, resource: Any) -> dict[str, str]:
        """The keys of a broker resource after the change."""
        if not self._incremental:
            return {config.name: config.value for config in resource.configs}
        values = dict(self._services.metadata.image.configs.get(BROKER, resource.resource_name))
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
                        ErrorCode.INVALID_REQUEST,
                        f"Config value {word} is not allowed for config key: {name}",
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


def _invalid(text: str, names: Iterable[str]) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{text}: Set({', '.join(sorted(names))})")


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {
        int(ApiKey.ALTER_CONFIGS): AlterConfigsHandler(services, incremental=False),
        int(ApiKey.INCREMENTAL_ALTER_CONFIGS): AlterConfigsHandler(services, incremental=True),
    }
