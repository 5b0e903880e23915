"""Refuses valid settings of Apache Kafka that this implementation does not support.

A node that ignored them would be unsafe: a listener would not encrypt, or clients would not be authorized.
"""

from __future__ import annotations

from collections.abc import Iterator

from quorate.config.definitions import ConfigError
from quorate.config.kafka_config import KafkaConfig

_PROTOCOLS = {1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


def check_supported(config: KafkaConfig) -> None:
    """Raises ConfigError for the first setting that is not supported."""
    for error in unsupported_configs(config):
        raise error


def unsupported_configs(config: KafkaConfig) -> Iterator[ConfigError]:
    """Yields an error for each setting that is not supported."""
    own = {endpoint.name: endpoint.security_protocol for endpoint in config.listeners}
    controllers = {
        name: config.security_protocol_map.get(name, 0) for name in config.controller_listener_names
    }
    for name, protocol in (own | controllers).items():
        if protocol:
            yield ConfigError(
                "listener.security.protocol.map",
                f"{name}:{_PROTOCOLS.get(protocol, protocol)}",
                "TLS and SASL are not available yet, and this listener must not serve in the clear",
                f"map {name} to PLAINTEXT on a network that is trusted",
            )
    if authorizer := config.get("authorizer.class.name"):
        yield ConfigError(
            "authorizer.class.name",
            authorizer,
            "ACLs are kept but not enforced yet: everybody would be let in",
            "remove the key to run without authorization, or run this node with Apache Kafka",
        )
    if config.get("remote.log.storage.system.enable"):
        yield ConfigError(
            "remote.log.storage.system.enable", "true", "there is no remote storage here", "remove the key"
        )
