"""The kinds of resources that have configurations. Source: Kafka's `ConfigResource.Type`."""

from __future__ import annotations

import re
from enum import IntEnum

from quorate.protocol.errors import ErrorCode, KafkaError


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


_NODE_ID = re.compile(r"[+-]?[0-9]{1,10}\Z")


def parse_node_id(name: str) -> int | None:
    """The number in the name of a broker resource, or None if it is not a 32-bit decimal integer."""
    if not _NODE_ID.match(name):
        return None
    number = int(name)
    return number if -(2**31) <= number < 2**31 else None


def check_described_node(name: str, own_id: int, expected: str) -> None:
    """Raises INVALID_REQUEST unless the name of a resource that DescribeConfigs names is the id of
    this node. `expected` is what would be right. The texts are those of Kafka's ConfigHelper."""
    node_id = parse_node_id(name)
    if node_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if node_id != own_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {expected} but received {name}"
        )


def altered_node_id(name: str) -> int:
    """The id of the node in the name of a resource to alter.

    Raises INVALID_REQUEST if it is no id. Kafka words the error about another node's id differently
    for configurations and for loggers.
    """
    node_id = parse_node_id(name)
    if node_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    return node_id
