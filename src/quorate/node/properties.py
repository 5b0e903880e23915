"""A node's configuration from a properties file and the command line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from quorate.config.definitions import ConfigError
from quorate.config.dynamic_configs import broker_definition
from quorate.config.kafka_config import KafkaConfig
from quorate.log import properties_text


def read_properties(path: Path, repeated: dict[str, int] | None = None) -> dict[str, str]:
    """Reads the keys and values of a properties file. Raises OSError, and ConfigError for a malformed
    escape or a file that is too large.

    Adds to `repeated` how often each key is set that is set more than once.
    """
    try:
        return properties_text.load(properties_text.read(path), repeated)
    except ValueError as e:
        raise ConfigError(str(path), "", str(e)) from e


def parse_overrides(items: Iterable[str]) -> dict[str, str]:
    """Parses arguments of the form `key=value`. Raises ConfigError."""
    overrides: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ConfigError("--override", item, "it is not key=value")
        overrides[key.strip()] = value.strip()
    return overrides


def load_config(path: Path, overrides: Iterable[str] = ()) -> KafkaConfig:
    """Reads a node's configuration; `overrides` as in `parse_overrides`. Raises OSError, ConfigError.

    Adds warnings for what is probably a mistake: keys that the file sets more than once, and text in UTF-8.
    """
    repeated: dict[str, int] = {}
    properties, given = read_properties(path, repeated), parse_overrides(overrides)
    config = KafkaConfig(properties | given)
    for key, times in repeated.items():
        if key not in given:
            config.warnings.append(
                f"{key} is set {times} times; the last value, {_shown(key, properties[key])}, counts"
            )
    if any(properties_text.was_utf8(text) for item in properties.items() for text in item):
        config.warnings.append(
            f"{path} has text in UTF-8, but properties files are read as ISO-8859-1, as Java does: "
            "write characters outside of ASCII as \\uXXXX"
        )
    return config


def _shown(key: str, value: str) -> str:
    definition = broker_definition(key)
    return value if definition is not None and not definition.sensitive else "not shown"
