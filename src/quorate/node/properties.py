"""A node's configuration from a properties file and the command line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from quorate.config.definitions import ConfigError
from quorate.config.kafka_config import KafkaConfig
from quorate.log import properties_text


def read_properties(path: Path) -> dict[str, str]:
    """The keys and values of a Java properties file. Raises OSError, and ConfigError for text that is none."""
    try:
        # Java reads these files as Latin-1; UTF-8 is what people write into them. ASCII is the same in both.
        raw = path.read_bytes()
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = raw.decode("latin-1")
        return properties_text.parse(text)
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
    return KafkaConfig(read_properties(path) | parse_overrides(overrides))
