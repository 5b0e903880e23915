"""DescribeConfigs (32): every controller answers it from committed metadata (KIP-226, KIP-919)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from quorate import log_levels
from quorate.config.broker_defs import BROKER_CONFIGS, DYNAMIC_BROKER_CONFIGS
from quorate.config.definitions import ConfigDef
from quorate.config.dynamic_configs import DynamicConfigs, broker_aliases, broker_definition
from quorate.config.group_defs import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from quorate.config.topic_defs import TOPIC_CONFIGS
from quorate.controller.config import ControllerConfig
from quorate.controller.config_schema import (
    DEFAULT,
    DYNAMIC_BROKER,
    DYNAMIC_BROKER_LOGGER,
    DYNAMIC_CLIENT_METRICS,
    DYNAMIC_DEFAULT_BROKER,
    DYNAMIC_GROUP,
    DYNAMIC_TOPIC,
    STATIC_BROKER,
    Entry,
)
from quorate.controller.topic_names import invalid_reason
from quorate.metadata.image import MetadataImage
from quorate.protocol.config_resource import ConfigResourceType, check_described_node
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

Result = DescribeConfigsResponse.DescribeConfigsResult
ResourceResult = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


def describe_configs(
    image: MetadataImage, request: DescribeConfigsRequest, config: ControllerConfig
) -> DescribeConfigsResponse:
    """Describes topics, groups, client metrics subscriptions, this node, its loggers, and the
    default of all brokers. Errors are reported for each resource."""
    return response_of(list(results_of(image, request, config)))


def response_of(results: list[Result | None]) -> DescribeConfigsResponse:
    """The response that has these results."""
    return DescribeConfigsResponse(results=[result for result in results if result is not None])


def results_of(
    image: MetadataImage, request: DescribeConfigsRequest, config: ControllerConfig
) -> Iterator[Result | None]:
    """The result of each resource, or None for one that was described before."""
    answered: set[tuple[object, ...]] = set()
    for resource in request.resources:
        # A repeated resource is described once: a few bytes of a request would give hundreds of kilobytes.
        asked = (resource.resource_type, resource.resource_name, *sorted(resource.configuration_keys or ()))
        if asked in answered:
            yield None
            continue
        result = Result(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        wanted = set(resource.configuration_keys) if resource.configuration_keys else None
        try:
            entries = _described(image, resource.resource_type, resource.resource_name, config)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            yield result
            continue
        answered.add(asked)
        for definition, synonyms, entry, read_only in entries:
            if wanted is not None and entry.name not in wanted:
                continue
            result.configs.append(
                ResourceResult(
                    name=entry.name,
                    value=None if entry.is_sensitive else entry.value,
                    read_only=read_only,
                    config_source=entry.source,
                    is_sensitive=entry.is_sensitive,
                    synonyms=_described_config(synonyms) if request.include_synonyms else [],
                    config_type=definition.type if definition is not None else 0,
                    documentation=definition.doc
                    if request.include_documentation and definition is not None
                    else None,
                )
            )
        yield result


_Described = tuple["ConfigDef | None", "list[Entry]", Entry, bool]


def _described_config(synonyms: list[Entry]) -> list[Synonym]:
    return [
        Synonym(name=entry.name, value=None if entry.is_sensitive else entry.value, source=entry.source)
        for entry in synonyms
    ]


def _described(image: MetadataImage, kind: int, name: str, config: ControllerConfig) -> list[_Described]:
    """The configurations of a resource."""
    describers: dict[int, Callable[[MetadataImage, str, ControllerConfig], list[_Described]]] = {
        ConfigResourceType.TOPIC: _topic,
        ConfigResourceType.BROKER: _broker,
        ConfigResourceType.BROKER_LOGGER: _logger,
        ConfigResourceType.GROUP: _group,
        ConfigResourceType.CLIENT_METRICS: _client_metrics,
    }
    describer = describers.get(kind)
    if describer is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")
    return describer(image, name, config)


def _topic(image: MetadataImage, name: str, config: ControllerConfig) -> list[_Described]:
    """The configurations of a topic."""
    if (reason := invalid_reason(name)) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    if name not in image.topics.by_name:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    own, applied = image.configs.topic(name), config.schema.dynamic(image.configs)
    described: list[_Described] = []
    for entry in config.schema.effective_topic_configs(image.configs, own):
        definition = TOPIC_CONFIGS[entry.name]
        synonyms = [entry] if entry.source == DYNAMIC_TOPIC else []
        for key in definition.synonyms[:1]:
            synonyms += _broker_values(applied, key, config)
        described.append((definition, synonyms, entry, False))
    return described


def _broker_values(applied: DynamicConfigs, key: str, config: ControllerConfig) -> list[Entry]:
    """The values of a broker key and of its synonyms from all sources, in the order of precedence. `applied`
    are the dynamic configurations of this node."""
    definition = broker_definition(key)
    sensitive = definition is None or definition.sensitive
    aliases = broker_aliases(key)
    found = [
        Entry(alias, values[alias], source, sensitive)
        for values, source in (
            (applied.own, DYNAMIC_BROKER),
            (applied.default, DYNAMIC_DEFAULT_BROKER),
            (config.static, STATIC_BROKER),
        )
        for alias in aliases
        if alias in values
    ]
    for alias in aliases:
        default = BROKER_CONFIGS.get(alias)
        if default is not None and default.default is not None:
            found.append(Entry(alias, default.default, DEFAULT, sensitive))
    while found and found[0].name != key:
        found.pop(0)
    return found


def _broker(image: MetadataImage, name: str, config: ControllerConfig) -> list[_Described]:
    """The configurations of this node, or the default of all brokers if the name is empty."""
    described: list[_Described] = []
    applied = config.schema.dynamic(image.configs)
    if not name:
        for key in sorted(applied.default):
            values = [e for e in _broker_values(applied, key, config) if e.source == DYNAMIC_DEFAULT_BROKER]
            described.append((broker_definition(key), values, values[0], key not in DYNAMIC_BROKER_CONFIGS))
        return described
    check_described_node(name, config.node_id, f"{config.node_id} or empty string,")
    for key in sorted({*BROKER_CONFIGS, *config.static, *applied.own, *applied.default}):
        definition = broker_definition(key)
        if definition is not None and definition.internal:
            continue
        values = _broker_values(applied, key, config)
        entry = values[0] if values else Entry(key, None, DEFAULT, definition is None or definition.sensitive)
        described.append((definition, values, entry, key not in DYNAMIC_BROKER_CONFIGS))
    return described


def _logger(_image: MetadataImage, name: str, config: ControllerConfig) -> list[_Described]:
    """The levels of the loggers of this process (KIP-412)."""
    levels = log_levels.levels_of_node(config.node_id, name)
    return [
        (None, [], Entry(logger, level, DYNAMIC_BROKER_LOGGER, False), False)
        for logger, level in levels.items()
    ]


def _group(image: MetadataImage, name: str, config: ControllerConfig) -> list[_Described]:
    """The configurations of a group: its own entries, then the values of this node's keys."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    own = image.configs.get(ConfigResourceType.GROUP, name)
    applied = config.schema.dynamic(image.configs)
    described: list[_Described] = []
    for key, definition in sorted(GROUP_CONFIGS.items()):
        synonyms = _group_defaults(applied, definition, config)
        is_set = any(entry.source != DEFAULT for entry in synonyms)
        if definition.internal and key not in own and not is_set:
            continue
        entry = synonyms[0]._replace(name=key) if synonyms else Entry(key, None, DEFAULT, False)
        if key in own:
            entry = Entry(key, own[key], DYNAMIC_GROUP, definition.sensitive)
            synonyms.insert(0, entry)
        elif key == "streams.assignor.name" and entry.value is not None:
            entry = entry._replace(value=entry.value.split(",")[0].strip())
        described.append((definition, synonyms, entry, False))
    return described


def _group_defaults(applied: DynamicConfigs, definition: ConfigDef, config: ControllerConfig) -> list[Entry]:
    """The values of the broker key that gives the default of a group's key, in the order of precedence, or
    the default of a key without one."""
    for key in definition.synonyms:
        return _broker_values(applied, key, config)
    if definition.default is None:
        return []
    return [Entry(definition.name, definition.default, DEFAULT, definition.sensitive)]


def _client_metrics(image: MetadataImage, name: str, config: ControllerConfig) -> list[_Described]:
    """The configurations of a client metrics subscription: its own entries and the defaults."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    own = image.configs.get(ConfigResourceType.CLIENT_METRICS, name)
    described: list[_Described] = []
    for key, definition in sorted(CLIENT_METRICS_CONFIGS.items()):
        if key in own:
            entry = Entry(key, own[key], DYNAMIC_CLIENT_METRICS, definition.sensitive)
            described.append((definition, [entry], entry, False))
        else:
            default = Entry(key, definition.default, DEFAULT, definition.sensitive)
            described.append((definition, [], default, False))
    return described
