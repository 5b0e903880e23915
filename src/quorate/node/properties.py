"""A node's configuration from a properties file and the command line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from quorate.config.broker_defs import BROKER_CONFIGS
from quorate.config.definitions import ConfigError
from quorate.config.kafka_config import KafkaConfig
from quorate.log import properties_text


def read_properties(path: Path, repeated: dict[str, int] | None = None) -> dict[str, str]:
    """The keys and values of a Java properties file; `repeated` is given the keys that are there more than once, and how often.
    Raises OSError, and ConfigError for text that is none."""
    try:
        # Java reads these files as Latin-1; UTF-8 is what people write into them. ASCII is the same in both.
        raw = path.read_bytes()
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = raw.decode("latin-1")
        # Windows editors begin a file with a byte order mark, which Java takes for a part of the first key.
        return properties_text.parse(text.removeprefix("\ufeff"), repeated)
    except ValueError as e:
        raise ConfigError(str(path), "", str(e)) from e


def parse_overrides(items: Iterable[str]) -> dict[str, str]:
    """`key=value` arguments. Raises ConfigError."""
    overrides: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ConfigError("--override", item, "it is not key=value")
        overrides[key.strip()] = value.strip()
    return overrides


def load_config(path: Path, overrides: Iterable[str] = ()) -> KafkaConfig:
    """A node's configuration. Raises OSError, ConfigError."""
    repeated: dict[str, int] = {}
    properties, given = read_properties(path, repeated), parse_overrides(overrides)
    config = KafkaConfig(properties | given)
    for key, times in repeated.items():
        if key not in given:
            config.warnings.append(f"{key} is set {times} times; the last value, {_shown(key, properties[key])}, counts")
    return config


def _shown(key: str, value: str) -> str:
    definition = BROKER_CONFIGS.get(key)
    return value if definition is not None and not definition.sensitive else "not shown"
