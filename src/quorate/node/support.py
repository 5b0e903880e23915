"""What a valid configuration may ask for and this node does not have: refused at start, never quietly left out.

A listener that should encrypt and does not, or an authorizer that lets everybody in, would be worse than no node.
"""

from __future__ import annotations

from quorate.config.definitions import ConfigError
from quorate.config.kafka_config import KafkaConfig

_PROTOCOLS = {1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


def refuse_unsupported(config: KafkaConfig) -> None:
    """Raises ConfigError."""
    for endpoint in config.listeners:
        _refuse_protocol(endpoint.name, endpoint.security_protocol)
    for name in config.controller_listener_names:
        _refuse_protocol(name, config.security_protocol_map.get(name, 0))
    if authorizer := config.get("authorizer.class.name"):
        raise ConfigError(
            "authorizer.class.name",
            authorizer,
            "ACLs are kept but not enforced yet: everybody would be let in",
            "remove the key to run without authorization, or run this node with Apache Kafka",
        )
    if config.get("remote.log.storage.system.enable"):
        raise ConfigError("remote.log.storage.system.enable", "true", "there is no remote storage here", "remove the key")


def _refuse_protocol(name: str, protocol: int) -> None:
    if protocol:
        raise ConfigError(
            "listener.security.protocol.map",
            f"{name}:{_PROTOCOLS.get(protocol, protocol)}",
            "TLS and SASL are not available yet, and this listener must not serve in the clear",
            f"map {name} to PLAINTEXT on a network that is trusted",
        )
