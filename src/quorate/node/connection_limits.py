"""The limits on the connections to a node's listeners, as its configuration and the client quotas
of IP addresses have them now."""

from __future__ import annotations

import ipaddress
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from quorate.config.definitions import ConfigError
from quorate.config.kafka_config import KafkaConfig
from quorate.config.listeners import CONNECTION_RATE, LISTENER_LIMIT, parse_connections_per_ip
from quorate.net.accept_throttle import ConnectionRate
from quorate.net.ip_throttle import IpRates
from quorate.net.limits import UNLIMITED, ConnectionLimits
from quorate.net.server import Listener
from quorate.node.process_setup import max_connections_per_listener
from quorate.security.client_quota import CONNECTION_CREATION_RATE, IP

if TYPE_CHECKING:
    from quorate.metadata.image import ClientQuotasImage, MetadataImage

logger = logging.getLogger(__name__)

Values = Callable[[str], str | None]
"""Returns the value of a key as text, or None."""


class NodeLimits:
    """Gives each listener its limits.

    The listeners of one role share a rate of new connections, and those of single addresses.
    """

    def __init__(self, config: KafkaConfig, open_file_limit: int) -> None:
        self.open_file_limit = open_file_limit
        self._config = config
        self._rate_of_brokers, self._rate_of_controllers = ConnectionRate(), ConnectionRate()
        self._ips_of_brokers, self._ips_of_controllers = IpRates(), IpRates()
        self._quotas: ClientQuotasImage | None = None

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
        is_controller = name in self._config.controller_listener_names
        listener.ip_throttle.rates = self._ips_of_controllers if is_controller else self._ips_of_brokers
        if is_controller:
            throttle.shared = self._rate_of_controllers
        elif self._config.is_limited(name, UNLIMITED):
            throttle.shared = self._rate_of_brokers
        if throttle.shared is not None:
            throttle.shared.limit = int(values(CONNECTION_RATE) or 0)

    def apply_quotas(self, image: MetadataImage) -> None:
        """Applies the client quotas of IP addresses to connections that are opened from now on."""
        if image.client_quotas is self._quotas:
            return
        self._quotas = image.client_quotas
        default, limits = UNLIMITED, dict[str, int]()
        for entity, values in image.client_quotas.entities.items():
            [(kind, name), *_] = entity
            rate = values.get(CONNECTION_CREATION_RATE)
            if kind != IP or rate is None:
                continue
            if not math.isfinite(rate):  # a controller of Apache Kafka takes NaN
                logger.warning(
                    "[KafkaRaftServer nodeId=%d] Ignoring the client quota of ip %s: its rate is %s",
                    self._config.node_id,
                    name or "<default>",
                    rate,
                )
            elif name is None:
                default = int(rate)
            elif (address := _address(name)) is not None:
                limits[address] = int(rate)
            else:  # a controller of Apache Kafka takes host names
                logger.warning(
                    "[KafkaRaftServer nodeId=%d] Ignoring the client quota of ip %s: host names are "
                    "not resolved",
                    self._config.node_id,
                    name,
                )
        for rates in (self._ips_of_brokers, self._ips_of_controllers):
            rates.set_limits(default, limits)


def _address(name: str) -> str | None:
    """An IP address as connections have it, or None for another name."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
