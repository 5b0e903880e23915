"""Refuses valid settings of Apache Kafka that this implementation does not support.

A node that ignored them would be unsafe: a listener would not encrypt, or clients would not be authorized.
"""

from __future__ import annotations

from quorate.config.definitions import ConfigError
from quorate.config.kafka_config import KafkaConfig

_PROTOCOLS = {1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


def check_supported(config: KafkaConfig) -> None:
    """Raises ConfigError for the first setting that is not supported."""
    for endpoint in config.listeners:
        _check_plaintext(endpoint.name, endpoint.security_protocol)
    for name in config.controller_listener_names:
        _check_plaintext(name, config.security_protocol_map.get(name, 0))
    if authorizer := config.get("authorizer.class.name"):
        raise ConfigError(
            "authorizer.class.name",
            authorizer,
            "ACLs are kept but not enforced yet: everybody would be let in",
            "remove the key to run without authorization, or run this node with Apache Kafka",
        )
    if config.get("remote.log.storage.system.enable"):
        raise ConfigError(
            "remote.log.storage.system.enable", "true", "there is no remote storage here", "remove the key"
        )


def _check_plaintext(name: str, protocol: int) -> None:
    if protocol:
        raise ConfigError(
            "listener.security.protocol.map",
            f"{name}:{_PROTOCOLS.get(protocol, protocol)}",
            "TLS and SASL are not available yet, and this listener must not serve in the clear",
            f"map {name} to PLAINTEXT on a network that is trusted",
        )
