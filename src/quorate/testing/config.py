"""The configuration of a test's nodes: its defaults, and its values as text."""

from __future__ import annotations

from collections.abc import Mapping

DEFAULT_CONFIG: Mapping[str, object] = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 3,
}
"""Internal topics with few partitions (Kafka's default is 50): the first consumer group of a test is
served sooner."""


def texts(config: Mapping[str, object]) -> dict[str, str]:
    """Returns a configuration as a properties file has it."""
    return {name: _text(value) for name, value in config.items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
