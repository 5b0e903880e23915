"""The kinds of resources that have configurations. Source: Kafka's `ConfigResource.Type`."""

from __future__ import annotations

from enum import IntEnum


class ConfigResourceType(IntEnum):
    """The int8 by which requests and ConfigRecord name the kind of a configured resource."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def name_of(cls, code: int) -> str:
        """The name of a code, or the code in decimal if a newer release added it."""
        try:
            return cls(code).name
        except ValueError:
            return str(code)
