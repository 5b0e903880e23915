"""DescribeConfigs (32), versions 1 to 4: topics, brokers, broker loggers, groups, client metrics.

1 sources and synonyms (KIP-226) · 3 types and documentation (KIP-569).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from quorate.broker.metadata import config_view as source
from quorate.broker.metadata.config_view import ConfigView, Synonym
from quorate.broker.topic_names import topic_name_problem
from quorate.config.broker_defs import DYNAMIC_BROKER_CONFIGS
from quorate.config.definitions import ConfigDef, ConfigType
from quorate.config.dynamic_configs import broker_definition
from quorate.config.group_defs import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from quorate.config.topic_defs import TOPIC_CONFIGS
from quorate.lazy import lazy_module
from quorate.net.turns import Rounds
from quorate.protocol.api import ApiKey
from quorate.protocol.config_resource import check_described_node
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

if TYPE_CHECKING:
    from quorate import log_levels
    from quorate.broker.handlers import Services
    from quorate.net.dispatch import Handler, RequestContext
else:
    log_levels = lazy_module("quorate.log_levels")

logger = logging.getLogger("quorate.broker.describe_configs")

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
AT_ONCE = 50
"""Resources that are described in one turn of the event loop: up to a third of a millisecond each."""

Entry = DescribeConfigsResponse.DescribeConfigsResourceResult
Result = DescribeConfigsResponse.DescribeConfigsResult


class DescribeConfigsHandler:
    """Describes the configurations of resources."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._view = ConfigView(services.config, lambda: services.metadata.image)
        self._rounds = Rounds(AT_ONCE)

    def __call__(self, _context: RequestContext, request: DescribeConfigsRequest) -> Any:
        return self._rounds.answer(
            len(request.resources),
            self._results(request),
            lambda results: DescribeConfigsResponse(results=[r for r in results if r is not None]),
        )

    def _results(self, request: DescribeConfigsRequest) -> Iterator[Result | None]:
        """The result of each resource, or None for one that was described before."""
        answered: set[tuple[object, ...]] = set()
        for resource in request.resources:
            # A repeated resource is described once, because each takes some hundred kilobytes.
            asked = (
                resource.resource_type,
                resource.resource_name,
                *sorted(resource.configuration_keys or ()),
            )
            if asked in answered:
                yield None
                continue
            result = self._resource(request, resource)
            if result.error_code == ErrorCode.NONE:
                answered.add(asked)
            yield result

    def _resource(
        self, request: DescribeConfigsRequest, resource: DescribeConfigsRequest.DescribeConfigsResource
    ) -> Result:
        try:
            entries = self._entries(request, resource)
        except KafkaError as error:
            return Result(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        return Result(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=entries,
        )

    def _entries(
        self, request: DescribeConfigsRequest, resource: DescribeConfigsRequest.DescribeConfigsResource
    ) -> list[Entry]:
        name = resource.resource_name
        keys = set(resource.configuration_keys) if resource.configuration_keys else None
        match resource.resource_type:
            case x if x == TOPIC:
                return self._topic(request, name, keys)
            case x if x == BROKER:
                return self._broker(request, name, keys)
            case x if x == BROKER_LOGGER:
                levels = log_levels.levels_of_node(self._services.node_id, name, keys)
                return [
                    Entry(name=logger_name, value=level, config_source=source.LOGGER)
                    for logger_name, level in levels.items()
                ]
            case x if x in (CLIENT_METRICS, GROUP):
                return self._own(request, resource.resource_type, name, keys)
            case other:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {other}")

    def _topic(self, request: DescribeConfigsRequest, name: str, keys: set[str] | None) -> list[Entry]:
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
        if self._services.metadata.topic(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        overrides = self._view.topic_overrides(name)
        entries = []
        for key in sorted(TOPIC_CONFIGS.keys() | overrides.keys()):
            definition = TOPIC_CONFIGS.get(key)
            if (keys is not None and key not in keys) or (
                definition is not None and definition.internal and key not in overrides
            ):
                continue
            if definition is None:  # set by a newer node: the type is unknown, and the value is hidden
                entries.append(Entry(name=key, value=None, config_source=source.TOPIC, is_sensitive=True))
                continue
            entries.append(
                _entry(
                    request,
                    definition,
                    self._view.topic_value(definition, overrides),
                    self._view.topic_synonyms(definition, overrides),
                    read_only=False,
                )
            )
        return entries

    def _broker(self, request: DescribeConfigsRequest, name: str, keys: set[str] | None) -> list[Entry]:
        view = self._view
        if name:
            me = self._services.node_id
            check_described_node(name, me, f"{me} or empty string,")
            names: Iterable[str] = view.broker_names()
        else:
            names = sorted(view.dynamic_default())
        entries = []
        for key in names:
            if keys is not None and key not in keys:
                continue
            definition = broker_definition(key)
            sensitive = definition is None or definition.sensitive
            value = view.broker_value(key) if name else view.dynamic_default().get(key)
            synonyms = view.broker_synonyms(key, sensitive=sensitive, only_default=not name)
            read_only = key not in DYNAMIC_BROKER_CONFIGS
            if definition is None:
                entries.append(
                    Entry(
                        name=key,
                        value=None,
                        read_only=read_only,
                        is_sensitive=True,
                        config_source=synonyms[0].source if synonyms else source.DEFAULT,
                        synonyms=_synonyms(synonyms) if request.include_synonyms else [],
                        documentation=None,
                    )
                )
            else:
                entries.append(_entry(request, definition, value, synonyms, read_only=read_only, name=key))
        return entries

    def _own(
        self, request: DescribeConfigsRequest, kind: int, name: str, keys: set[str] | None
    ) -> list[Entry]:
        """Describes a group or a client metrics subscription: its own keys, then the defaults, which for a
        group are the values of this broker's keys."""
        if not name:
            what = "Group name" if kind == GROUP else "Client metrics subscription name"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} must not be empty")
        definitions: Mapping[str, ConfigDef] = GROUP_CONFIGS if kind == GROUP else CLIENT_METRICS_CONFIGS
        own = self._services.metadata.image.configs.get(kind, name)
        own_source = source.GROUP if kind == GROUP else source.CLIENT_METRICS
        entries = []
        for key, definition in sorted(definitions.items()):
            if keys is not None and key not in keys:
                continue
            synonyms = self._group_defaults(definition) if kind == GROUP else []
            if definition.internal and key not in own and not _is_set(synonyms):
                continue
            value = synonyms[0].value if synonyms else definition.default
            if key in own:
                value = own[key]
                synonyms.insert(0, Synonym(key, value, own_source))
            elif key == "streams.assignor.name" and value is not None:
                value = value.split(",")[0].strip()
            entries.append(_entry(request, definition, value, synonyms, read_only=False))
        return entries

    def _group_defaults(self, definition: ConfigDef) -> list[Synonym]:
        """The values of the broker key that gives the default of a group's key, in the order of
        precedence, or the default of a key without one."""
        for key in definition.synonyms:
            return self._view.broker_synonyms(key, sensitive=definition.sensitive)
        if definition.default is None:
            return []
        return [Synonym(definition.name, definition.default, source.DEFAULT)]


def _is_set(synonyms: Iterable[Synonym]) -> bool:
    return any(synonym.source != source.DEFAULT for synonym in synonyms)


def _synonyms(synonyms: Iterable[Synonym]) -> list[DescribeConfigsResponse.DescribeConfigsSynonym]:
    return [
        DescribeConfigsResponse.DescribeConfigsSynonym(
            name=synonym.name, value=synonym.value, source=synonym.source
        )
        for synonym in synonyms
    ]


def _entry(
    request: DescribeConfigsRequest,
    definition: ConfigDef,
    value: str | None,
    synonyms: list[Synonym],
    *,
    read_only: bool,
    name: str | None = None,
) -> Entry:
    """The description of a key.

    `name` is another one than that of its definition for a key of one listener.
    """
    own_name = name is None or name == definition.name
    return Entry(
        name=definition.name if name is None else name,
        value=None if definition.sensitive else value,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else source.DEFAULT,
        is_sensitive=definition.sensitive,
        synonyms=_synonyms(synonyms) if request.include_synonyms else [],
        config_type=int(ConfigType(definition.type)),
        documentation=definition.doc if request.include_documentation and own_name else None,
    )


def routes(services: Services) -> dict[int, Handler]:
    """The handlers of this module."""
    return {int(ApiKey.DESCRIBE_CONFIGS): DescribeConfigsHandler(services)}
