"""What a topic's configuration comes to: its own keys, the brokers' dynamic ones, the node's
properties, the defaults.

Order of Kafka's KafkaConfigSchema: topic, this node's dynamic keys, the cluster-wide dynamic keys,
static properties, default; for the last but one each broker key that stands for the topic key is tried
in turn (`log.retention.ms`, then `.minutes`, then `.hours`, which are converted).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from quorate.config.definitions import ConfigDef, ConfigError, ConfigType
from quorate.config.topic_defs import TOPIC_CONFIGS
from quorate.metadata.image.parts import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigsImage,
)

UNKNOWN_SOURCE = 0
DYNAMIC_TOPIC = 1
DYNAMIC_BROKER = 2
DYNAMIC_DEFAULT_BROKER = 3
STATIC_BROKER = 4
DEFAULT = 5
DYNAMIC_CLIENT_METRICS = 7
DYNAMIC_GROUP = 8
"""Sources as DescribeConfigs numbers them."""

_UNITS = {".hours": 3_600_000, ".minutes": 60_000}


class Entry(NamedTuple):
    """One effective key. `value` is text, also of a sensitive key; who answers a client leaves that out."""

    name: str
    value: str | None
    source: int
    is_sensitive: bool


def in_topic_units(broker_key: str, value: str) -> str:
    """A broker key's value as the topic key has it: hours and minutes become milliseconds; -1 stays
    'unlimited'."""
    for suffix, factor in _UNITS.items():
        if broker_key.endswith(suffix):
            number = int(value)
            return str(number * factor if number >= 0 else number)
    return value


class Inherited:
    """What topics get that set nothing themselves: every key that is not internal, in order of name.

    `shown` is for whoever turns them into a response: the same for thousands of topics.
    """

    __slots__ = ("entries", "positions", "shown")

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.positions = {entry.name: position for position, entry in enumerate(entries)}
        self.shown: list[Any] | None = None


class ConfigSchema:
    """Definitions together with this node's static properties; what it remembers of the state is only a
    cache."""

    __slots__ = ("_defaults", "_inherited", "_inherited_from", "_static", "node_id")

    def __init__(self, node_id: int, static: Mapping[str, str]) -> None:
        self.node_id = node_id
        self._static = static
        self._defaults: dict[str, Entry] = {}
        self._inherited: Inherited | None = None
        self._inherited_from: tuple[Mapping[str, str], Mapping[str, str]] | None = None

    @staticmethod
    def definition(resource_type: int, key: str) -> ConfigDef | None:
        if resource_type == TOPIC_RESOURCE:
            return TOPIC_CONFIGS.get(key)
        if resource_type == BROKER_RESOURCE:
            from quorate.config.broker_defs import BROKER_CONFIGS

            return BROKER_CONFIGS.get(key)
        if resource_type in (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
            from quorate.config.group_defs import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS

            return (GROUP_CONFIGS if resource_type == GROUP_RESOURCE else CLIENT_METRICS_CONFIGS).get(key)
        return None

    def is_list(self, resource_type: int, key: str) -> bool:
        definition = self.definition(resource_type, key)
        return definition is not None and definition.type is ConfigType.LIST

    def default_text(self, resource_type: int, key: str) -> str | None:
        definition = self.definition(resource_type, key)
        return None if definition is None else definition.default

    def static_entry(self, definition: ConfigDef) -> Entry:
        """The key's value where nothing dynamic is set."""
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
        """One key of a topic whose own keys are `topic`."""
        name = definition.name
        if name in topic:
            return Entry(name, topic[name], DYNAMIC_TOPIC, definition.sensitive)
        for dynamic, source in (
            (configs.broker(self.node_id), DYNAMIC_BROKER),
            (configs.cluster_default(), DYNAMIC_DEFAULT_BROKER),
        ):
            if dynamic:
                for synonym in definition.synonyms:
                    if synonym in dynamic:
                        return Entry(
                            name, in_topic_units(synonym, dynamic[synonym]), source, definition.sensitive
                        )
        return self.static_entry(definition)

    def effective_topic_value(self, configs: ConfigsImage, topic: str, key: str) -> str | None:
        return self.entry(configs, configs.topic(topic), TOPIC_CONFIGS[key]).value

    def inherited(self, configs: ConfigsImage) -> Inherited:
        """Made anew only when a dynamic key of this node or of all brokers has changed."""
        source = (configs.broker(self.node_id), configs.cluster_default())
        known = self._inherited_from
        if self._inherited is None or known is None or known[0] is not source[0] or known[1] is not source[1]:
            self._inherited_from = source
            self._inherited = Inherited(
                [
                    self.entry(configs, {}, TOPIC_CONFIGS[name])
                    for name in sorted(TOPIC_CONFIGS)
                    if not TOPIC_CONFIGS[name].internal
                ]
            )
        return self._inherited

    def effective_topic_configs(self, configs: ConfigsImage, topic: Mapping[str, str]) -> list[Entry]:
        """Every key of a topic in order of name; internal ones only where they are set."""
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
        """Raises ConfigError for an unknown key, a bad value, or keys that contradict one another."""
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
        value = topic.get(key)
        return int(value if value is not None else self.static_entry(TOPIC_CONFIGS[key]).value or 0)


class InconsistentConfigError(ConfigError):
    """A configuration that is wrong as a whole, not by one key's value."""

    def __init__(self, text: str) -> None:
        ValueError.__init__(self, text)
        self.key, self.value, self.reason, self.remedy = "", None, text, ""
