"""The configuration of topics and of this broker, with the source of each value: topic, dynamic broker,
dynamic default, properties file, default.

The order and the synonyms are Kafka's (KIP-226, KIP-524), and so is this rule: a value that is set only by
an alias of a key (`log.retention.hours` for `log.retention.ms`) is described as the key's default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from quorate.config.broker_defs import BROKER_CONFIGS
from quorate.config.dynamic_configs import DynamicConfigFilter, broker_aliases, effective_value
from quorate.config.topic_defs import TOPIC_CONFIGS
from quorate.dataclass import dataclass
from quorate.log.config import LogConfig

if TYPE_CHECKING:
    from quorate.config.definitions import ConfigDef
    from quorate.config.dynamic_configs import DynamicConfigs
    from quorate.config.kafka_config import KafkaConfig
    from quorate.metadata.image import MetadataImage

UNKNOWN, TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC_BROKER, DEFAULT, LOGGER, CLIENT_METRICS, GROUP = (
    range(9)
)
"""Sources of values, with their numbers in DescribeConfigs."""

_UNITS = {".hours": 3_600_000, ".minutes": 60_000}


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value of a key that applies if the synonyms before it in a list are not set."""

    name: str
    value: str | None
    source: int


class ConfigView:
    """Reads configurations from the node's properties and the image. It has no state of its own. With `warns`
    it logs the keys of the image that have no effect."""

    def __init__(
        self, config: KafkaConfig, image: Callable[[], MetadataImage], *, warns: bool = False
    ) -> None:
        self.config = config
        self._image = image
        self._filter = DynamicConfigFilter(config.node_id if warns else None)

    # --- topics -----------------------------------------------------------------------------------

    def topic_overrides(self, topic: str) -> Mapping[str, str]:
        """The keys that are set for a topic."""
        return self._image().configs.topic(topic)

    def topic_defaults(self) -> dict[str, str]:
        """The values for topics without own keys, as text. Keys without a value are omitted."""
        return {
            name: text
            for name, definition in TOPIC_CONFIGS.items()
            if (text := self._inherited(definition)) is not None
        }

    def log_defaults(self) -> LogConfig:
        """The configuration of logs of topics without own keys."""
        expiration_ms = self.broker_value("producer.id.expiration.ms")
        assert expiration_ms is not None  # it has a default
        return LogConfig(producer_id_expiration_ms=int(expiration_ms)).with_overrides(self.topic_defaults())

    def topic_value(self, definition: ConfigDef, overrides: Mapping[str, str]) -> str | None:
        """The value of a key for a topic with these overrides."""
        if definition.name in overrides:
            return overrides[definition.name]
        return self._inherited(definition)

    def _inherited(self, definition: ConfigDef) -> str | None:
        dynamic = self.dynamic_broker()
        default = self.dynamic_default()
        for layer in (dynamic, default, self.config.originals):
            for key in definition.synonyms:
                if key in layer:
                    return _in_topic_units(key, layer[key])
        return definition.default

    def topic_synonyms(self, definition: ConfigDef, overrides: Mapping[str, str]) -> list[Synonym]:
        """The values of a key for a topic, in the order of precedence."""
        found: list[Synonym] = []
        if definition.synonyms:
            found = self.broker_synonyms(definition.synonyms[0], sensitive=definition.sensitive)
        if definition.name in overrides:
            value = None if definition.sensitive else overrides[definition.name]
            found.insert(0, Synonym(definition.name, value, TOPIC))
        return found

    # --- brokers ----------------------------------------------------------------------------------

    def _dynamic(self) -> DynamicConfigs:
        configs = self._image().configs
        return self._filter.applied(configs.broker(self.config.node_id), configs.cluster_default())

    def dynamic_broker(self) -> Mapping[str, str]:
        """The dynamic keys of this broker, without values that it cannot apply."""
        return self._dynamic().own

    def dynamic_default(self) -> Mapping[str, str]:
        """The dynamic keys of all brokers, without values that none can apply."""
        return self._dynamic().default

    def broker_names(self) -> Iterator[str]:
        """The names of all broker keys, sorted. Throttles, which exist only as dynamic keys, are among them
        while they are set."""
        seen = {name for name, definition in BROKER_CONFIGS.items() if not definition.internal}
        seen.update(self.config.originals, self.dynamic_broker(), self.dynamic_default())
        return iter(sorted(seen))

    def broker_value(self, name: str) -> str | None:
        """The effective value of a broker key."""
        return effective_value(self.config, self._dynamic(), name)

    def broker_synonyms(self, name: str, *, sensitive: bool, only_default: bool = False) -> list[Synonym]:
        """The values of a broker key, in the order of precedence."""
        aliases = broker_aliases(name)
        found = []
        layers = (
            (self.dynamic_broker(), DYNAMIC_BROKER),
            (self.dynamic_default(), DYNAMIC_DEFAULT),
            (self.config.originals, STATIC_BROKER),
        )
        for layer, source in layers:
            found += [
                Synonym(key, None if sensitive else layer[key], source) for key in aliases if key in layer
            ]
        for key in aliases:
            definition = BROKER_CONFIGS.get(key)
            if definition is not None and definition.default is not None:
                found.append(Synonym(key, None if sensitive else definition.default, DEFAULT))
        if only_default:
            found = [synonym for synonym in found if synonym.source == DYNAMIC_DEFAULT]
        while found and found[0].name != name:
            found.pop(0)
        return found


def _in_topic_units(broker_key: str, value: str) -> str:
    for suffix, factor in _UNITS.items():
        if broker_key.endswith(suffix):
            number = int(value)
            return str(number * factor if number >= 0 else number)
    return value
