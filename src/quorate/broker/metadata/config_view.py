"""The configuration of topics and of this broker, with the source of each value: topic, dynamic broker,
dynamic default, properties file, default.

The order and the synonyms are Kafka's (KIP-226, KIP-524), and so is this rule: a value that is set only by
an alias of a key (`log.retention.hours` for `log.retention.ms`) is described as the key's default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quorate.config.broker_defs import BROKER_CONFIGS
from quorate.config.topic_defs import TOPIC_CONFIGS
from quorate.log.config import LogConfig

if TYPE_CHECKING:
    from quorate.config.definitions import ConfigDef
    from quorate.config.kafka_config import KafkaConfig
    from quorate.metadata.image import MetadataImage

UNKNOWN, TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC_BROKER, DEFAULT, LOGGER, CLIENT_METRICS, GROUP = (
    range(9)
)
"""Sources of values, with their numbers in DescribeConfigs."""

_ALIASES = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_UNITS = {".hours": 3_600_000, ".minutes": 60_000}


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value of a key that applies if the synonyms before it in a list are not set."""

    name: str
    value: str | None
    source: int


def as_text(value: Any) -> str | None:
    """Formats a parsed value as Kafka does."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    if isinstance(value, float):
        return str(value).replace("e+", "E").replace("e", "E")
    return str(value)


def broker_aliases(name: str) -> tuple[str, ...]:
    """The broker keys with the same meaning as this one, in the order of precedence."""
    if name == "log.flush.interval.ms":
        return ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
    for aliases in _ALIASES:
        if name in aliases:
            return aliases
    return (name,)


class ConfigView:
    """Reads configurations from the node's properties and the image. It has no state of its own."""

    def __init__(self, config: KafkaConfig, image: Callable[[], MetadataImage]) -> None:
        self.config = config
        self._image = image

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

    def dynamic_broker(self) -> Mapping[str, str]:
        """The dynamic keys of this broker."""
        return self._image().configs.broker(self.config.node_id)

    def dynamic_default(self) -> Mapping[str, str]:
        """The dynamic keys of all brokers."""
        return self._image().configs.cluster_default()

    def broker_names(self) -> Iterator[str]:
        """The names of all broker keys, sorted. Throttles, which exist only as dynamic keys, are among them
        while they are set."""
        seen = {name for name, definition in BROKER_CONFIGS.items() if not definition.internal}
        seen.update(self.config.originals, self.dynamic_broker(), self.dynamic_default())
        return iter(sorted(seen))

    def broker_value(self, name: str) -> str | None:
        """The effective value of a broker key."""
        for layer in (self.dynamic_broker(), self.dynamic_default()):
            if name in layer:
                return layer[name]
        try:
            return as_text(self.config.get(name))
        except KeyError:
            return self.config.originals.get(name)

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
