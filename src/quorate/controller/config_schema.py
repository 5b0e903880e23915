"""The effective configuration of a topic: its own keys, dynamic broker keys, the node's properties, and
defaults.

The order of precedence is that of Kafka's KafkaConfigSchema: topic, dynamic keys of this node, dynamic
keys of all brokers, static properties, default. A topic key has several broker keys as synonyms, which
are tried in order: `log.retention.ms`, then `.minutes`, then `.hours`. Minutes and hours are converted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from quorate.config.definitions import ConfigDef, ConfigError, ConfigType
from quorate.config.dynamic_configs import DynamicConfigFilter, DynamicConfigs, broker_definition
from quorate.config.topic_defs import TOPIC_CONFIGS
from quorate.lazy import lazy_module
from quorate.metadata.image.small_images import (
    ConfigsImage,
)
from quorate.protocol.config_resource import ConfigResourceType

if TYPE_CHECKING:
    from quorate.config import group_defs
else:
    group_defs = lazy_module("quorate.config.group_defs")

UNKNOWN_SOURCE = 0
DYNAMIC_TOPIC = 1
DYNAMIC_BROKER = 2
DYNAMIC_DEFAULT_BROKER = 3
STATIC_BROKER = 4
DEFAULT = 5
DYNAMIC_BROKER_LOGGER = 6
DYNAMIC_CLIENT_METRICS = 7
DYNAMIC_GROUP = 8
"""The sources of a value, with the numbers of DescribeConfigs."""

_UNITS = {".hours": 3_600_000, ".minutes": 60_000}


class Entry(NamedTuple):
    """The effective value of one key. The value of a sensitive key is present, and must be left out of
    responses."""

    name: str
    value: str | None
    source: int
    is_sensitive: bool


def in_topic_units(broker_key: str, value: str) -> str:
    """The value of a broker key in the unit of the topic key. Hours and minutes become milliseconds. A
    negative value stands for 'unlimited' and is not converted."""
    for suffix, factor in _UNITS.items():
        if broker_key.endswith(suffix):
            number = int(value)
            return str(number * factor if number >= 0 else number)
    return value


class Inherited:
    """The configuration of a topic without own entries: every key that is not internal, in the order of
    names.

    `shown` caches the configuration in the form of a response, which is the same for thousands of
    topics.
    """

    __slots__ = ("entries", "positions", "shown")

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.positions = {entry.name: position for position, entry in enumerate(entries)}
        self.shown: list[Any] | None = None


class ConfigSchema:
    """The definitions of keys together with the static properties of this node. It caches values, but
    has no state of its own."""

    __slots__ = ("_defaults", "_filter", "_inherited", "_inherited_from", "_static", "node_id")

    def __init__(self, node_id: int, static: Mapping[str, str], *, warns: bool = False) -> None:
        self.node_id = node_id
        self._static = static
        self._defaults: dict[str, Entry] = {}
        self._filter = DynamicConfigFilter(node_id if warns else None)
        self._inherited: Inherited | None = None
        self._inherited_from: DynamicConfigs | None = None

    @staticmethod
    def definition(resource_type: int, key: str) -> ConfigDef | None:
        """The definition of a key, or None for an unknown key."""
        if resource_type == ConfigResourceType.TOPIC:
            return TOPIC_CONFIGS.get(key)
        if resource_type == ConfigResourceType.BROKER:
            return broker_definition(key)
        if resource_type in (ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS):
            is_group = resource_type == ConfigResourceType.GROUP
            return (group_defs.GROUP_CONFIGS if is_group else group_defs.CLIENT_METRICS_CONFIGS).get(key)
        return None

    def is_list(self, resource_type: int, key: str) -> bool:
        """Whether the value of the key is a list."""
        definition = self.definition(resource_type, key)
        return definition is not None and definition.type is ConfigType.LIST

    def default_text(self, resource_type: int, key: str) -> str | None:
        """The default of a key, or None."""
        definition = self.definition(resource_type, key)
        return None if definition is None else definition.default

    def static_entry(self, definition: ConfigDef) -> Entry:
        """The value of a key without dynamic configurations."""
        entry = self._defaults.get(definition.name)
        if entry is None:
            value, source = definition.default, DEFAULT
            for synonym in definition.synonyms:
                if synonym in self._static:
                    value, source = in_topic_units(synonym, self._static[synonym]), STATIC_BROKER
                    break
            entry = self._defaults[definition.name] = Entry(
                definition.name, value, source, definition.sensitive
            )
        return entry

    def entry(self, configs: ConfigsImage, topic: Mapping[str, str], definition: ConfigDef) -> Entry:
        """The effective value of one key. `topic` are the topic's own entries."""
        name = definition.name
        if name in topic:
            return Entry(name, topic[name], DYNAMIC_TOPIC, definition.sensitive)
        applied = self.dynamic(configs)
        for dynamic, source in (
            (applied.own, DYNAMIC_BROKER),
            (applied.default, DYNAMIC_DEFAULT_BROKER),
        ):
            if dynamic:
                for synonym in definition.synonyms:
                    if synonym in dynamic:
                        return Entry(
                            name, in_topic_units(synonym, dynamic[synonym]), source, definition.sensitive
                        )
        return self.static_entry(definition)

    def dynamic(self, configs: ConfigsImage) -> DynamicConfigs:
        """The dynamic configurations that this node applies.

        The result is the same object until they change.
        """
        return self._filter.applied(configs.broker(self.node_id), configs.cluster_default())

    def effective_topic_value(self, configs: ConfigsImage, topic: str, key: str) -> str | None:
        """The effective value of one key of a topic."""
        return self.entry(configs, configs.topic(topic), TOPIC_CONFIGS[key]).value

    def inherited(self, configs: ConfigsImage) -> Inherited:
        """The configuration of a topic without own entries. It is computed again only after a change of
        a dynamic key of this node or of all brokers."""
        applied = self.dynamic(configs)
        if self._inherited is None or applied is not self._inherited_from:
            self._inherited_from = applied
            self._inherited = Inherited(
                [
                    self.entry(configs, {}, TOPIC_CONFIGS[name])
                    for name in sorted(TOPIC_CONFIGS)
                    if not TOPIC_CONFIGS[name].internal
                ]
            )
        return self._inherited

    def effective_topic_configs(self, configs: ConfigsImage, topic: Mapping[str, str]) -> list[Entry]:
        """Every key of a topic in the order of names. Internal keys are included only if the topic sets
        them."""
        inherited = self.inherited(configs)
        entries = list(inherited.entries)
        more = False
        for name, value in topic.items():
            definition = TOPIC_CONFIGS.get(name)
            if definition is None:
                continue
            entry = Entry(name, value, DYNAMIC_TOPIC, definition.sensitive)
            position = inherited.positions.get(name)
            if position is None:
                entries.append(entry)
                more = True
            else:
                entries[position] = entry
        if more:
            entries.sort()
        return entries

    def check_topic(self, topic: Mapping[str, str]) -> None:
        """Raises ConfigError for an unknown key, an invalid value, or keys that contradict each other."""
        for key, value in topic.items():
            definition = TOPIC_CONFIGS.get(key)
            if definition is None:
                raise InconsistentConfigError(f"Unknown topic config name: {key}")
            definition.validate(value)
        lowest = self._number(topic, "min.compaction.lag.ms")
        highest = self._number(topic, "max.compaction.lag.ms")
        if lowest > highest:
            raise InconsistentConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({lowest}) > max.compaction.lag.ms "
                f"({highest})"
            )
        if topic.get("remote.storage.enable", "false").strip().lower() == "true":
            raise InconsistentConfigError(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with "
                "remote log storage."
            )

    def _number(self, topic: Mapping[str, str], key: str) -> int:
        """The value of a key with an integer type."""
        value = topic.get(key)
        return int(value if value is not None else self.static_entry(TOPIC_CONFIGS[key]).value or 0)


class InconsistentConfigError(ConfigError):
    """A configuration whose keys contradict each other or do not exist."""

    def __init__(self, text: str) -> None:
        ValueError.__init__(self, text)
        self.key, self.value, self.reason, self.remedy = "", None, text, ""
