"""The limits on the connections to a node's listeners, as its configuration has them now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from quorate.config.definitions import ConfigError
from quorate.config.kafka_config import KafkaConfig
from quorate.config.listeners import CONNECTION_RATE, LISTENER_LIMIT, parse_connections_per_ip
from quorate.net.accept_throttle import ConnectionRate
from quorate.net.limits import UNLIMITED, ConnectionLimits
from quorate.net.server import Listener
from quorate.node.process_setup import max_connections_per_listener

logger = logging.getLogger(__name__)

Values = Callable[[str], str | None]
"""Returns the value of a key as text, or None."""


class NodeLimits:
    """Gives each listener its limits. The listeners of one role share a rate of new connections."""

    def __init__(self, config: KafkaConfig, open_file_limit: int) -> None:
        self.open_file_limit = open_file_limit
        self._config = config
        self._rate_of_brokers, self._rate_of_controllers = ConnectionRate(), ConnectionRate()

    def apply(self, listeners: Mapping[str, Listener], values: Values) -> None:
        """Applies changed values to connections that are opened from now on."""
        for name, listener in listeners.items():
            try:
                listener.limits = self.of(listener.limits, name, values)
                self.apply_rates(listener, name, values)
            except ConfigError as error:  # a controller of Apache Kafka has accepted this value
                text = "[KafkaRaftServer nodeId=%d] The limits on connections stay as they are: %s"
                logger.warning(text, self._config.node_id, error)
                return

    def of(self, limits: ConnectionLimits, listener: str, values: Values) -> ConnectionLimits:
        """Returns the limits with the configured numbers of connections. Raises ConfigError."""
        overrides = "max.connections.per.ip.overrides"
        of_listener = values(f"listener.name.{listener.lower()}.{LISTENER_LIMIT}")
        of_node = int(values(LISTENER_LIMIT) or 0)
        of_node = of_node if self._config.is_limited(listener, of_node) else UNLIMITED
        most = of_node if of_listener is None else min(of_node, int(of_listener))
        per_ip = int(values("max.connections.per.ip") or 0)
        excepted = parse_connections_per_ip(overrides, values(overrides) or "")
        if per_ip == 0 and not excepted:
            raise ConfigError(
                "max.connections.per.ip", "0", f"zero needs {overrides}, or no client could connect"
            )
        return replace(
            limits,
            max_connections=max_connections_per_listener(
                self.open_file_limit, len(self._config.listeners), most
            ),
            max_connections_per_ip=per_ip,
            max_connections_per_ip_overrides=excepted,
        )

    def apply_rates(self, listener: Listener, name: str, values: Values) -> None:
        """Sets the rate of new connections of a listener, and the one that it shares."""
        throttle, of_listener = listener.throttle, values(f"listener.name.{name.lower()}.{CONNECTION_RATE}")
        throttle.rate.limit = UNLIMITED if of_listener is None else int(of_listener)
        if name in self._config.controller_listener_names:
            throttle.shared = self._rate_of_controllers
        elif self._config.is_limited(name, UNLIMITED):
            throttle.shared = self._rate_of_brokers
        if throttle.shared is not None:
            throttle.shared.limit = int(values(CONNECTION_RATE) or 0)
