"""A node's configuration: its properties, checked against the tables of keys, and what is derived from
several keys.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate.config.broker_defs import BROKER_CONFIGS, is_known
from quorate.config.definitions import ConfigError, ConfigType, missing_key_error
from quorate.config.listeners import (
    Endpoint,
    listener_key,
    parse_host_port,
    parse_listeners,
    parse_protocol_map,
    parse_voters,
)
from quorate.config.node_rules import check
from quorate.config.topic_defs import TOPIC_CONFIGS
from quorate.config.without_effect import no_effect_of, warnings_for
from quorate.lazy import lazy_module

if TYPE_CHECKING:
    from quorate.config import unknown_keys
else:
    unknown_keys = lazy_module("quorate.config.unknown_keys")


class KafkaConfig:
    """The configuration of a node, parsed and checked. It does not change.

    `get` returns the parsed value of a key. Each key is also an attribute, with underscores in place of
    dots. A property of this class that has such a name is derived from several keys. `warnings` are
    sentences for the operator, each of which names its key.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises ConfigError for the first key that is missing or wrong."""
        self.originals: dict[str, str] = dict(properties)
        self.warnings: list[str] = []
        self.without_effect: list[str] = []
        """Warnings about keys that have no effect. The tool that formats a directory does not show them."""
        if "broker.id" in self.originals:
            self._alias_broker_id()
        self._values: dict[str, Any] = {}
        if unknown := [name for name in self.originals if not is_known(name)]:
            self.warnings += [found.warning for found in unknown_keys.unknown_keys(unknown)]
        for name, definition in BROKER_CONFIGS.items():
            text = self.originals.get(name)
            if text is None:
                if definition.required:
                    raise missing_key_error(name)
                self._values[name] = definition.default_value()
            elif text.strip() == "" and definition.default is None and definition.type is not ConfigType.LIST:
                self._values[name] = None  # `key=` unsets a key, as in Kafka's sample files
            else:
                self._values[name] = definition.parse(text)
        self.without_effect += warnings_for(self.keys_without_effect())
        check(self)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> KafkaConfig:
        """The configuration of a properties file."""
        return cls(properties)

    def with_overrides(self, overrides: Mapping[str, str]) -> KafkaConfig:
        """Returns a copy with the keys of `overrides` set. Raises ConfigError."""
        return KafkaConfig(self.originals | dict(overrides))

    def get(self, name: str) -> Any:
        """Returns the parsed value of a key. Raises KeyError for an unknown key."""
        return self._values[name]

    def explicit(self, name: str) -> bool:
        """Returns whether the key is set, even if to its default."""
        return name in self.originals

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values")
        if values is not None:
            key = name.replace("_", ".")
            if key in values:
                return values[key]
        raise AttributeError(f"no configuration key {name.replace('_', '.')}")

    def keys_without_effect(self) -> list[str]:
        """The keys that have no effect and are set to another value than their default. A key of one listener
        counts with every value."""
        return [
            name
            for name in self.originals
            if no_effect_of(name) is not None
            and (
                self._values[name] != BROKER_CONFIGS[name].default_value()
                if name in self._values
                else listener_key(name) is not None
            )
        ]

    # -- reading

    def _alias_broker_id(self) -> None:
        old, new = self.originals["broker.id"].strip(), self.originals.get("node.id", "").strip()
        if not new:
            self.originals["node.id"] = old
        elif old != new:
            raise ConfigError(
                "broker.id",
                old,
                f"node.id is {new}",
                "they are the same thing: leave broker.id out",
                {"broker.id": None},
            )

    # -- roles and listeners

    @cached_property
    def process_roles(self) -> frozenset[str]:
        """The roles of the node, `broker` and `controller`."""
        return frozenset(self._values["process.roles"])

    @property
    def is_broker(self) -> bool:
        """Whether the node has the broker role."""
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        """Whether the node has the controller role."""
        return "controller" in self.process_roles

    @property
    def node_id(self) -> int:
        """The id of the node."""
        return int(self._values["node.id"])

    @cached_property
    def controller_listener_names(self) -> tuple[str, ...]:
        """The names of the controller listeners, in upper case."""
        return tuple(name.upper() for name in self._values["controller.listener.names"] or ())

    @cached_property
    def security_protocol_map(self) -> dict[str, int]:
        """Security protocols by listener name.

        The controller listeners default to PLAINTEXT as long as no listener uses another protocol, as
        in Kafka.
        """
        key = "listener.security.protocol.map"
        mapping = parse_protocol_map(key, self._values[key])
        if not self.explicit(key):
            secured = {"SSL", "SASL_SSL", "SASL_PLAINTEXT"}
            names = {part.partition(":")[0].strip().upper() for part in self._values["listeners"]}
            if not secured & (names | set(self.controller_listener_names)):
                mapping |= dict.fromkeys(self.controller_listener_names, 0)
        return mapping

    @cached_property
    def listeners(self) -> tuple[Endpoint, ...]:
        """The listeners of the node."""
        return parse_listeners(
            "listeners",
            ",".join(self._values["listeners"]),
            self.security_protocol_map,
            distinct_ports=True,
        )

    @cached_property
    def broker_listeners(self) -> tuple[Endpoint, ...]:
        """The listeners that are not controller listeners."""
        return tuple(e for e in self.listeners if e.name not in self.controller_listener_names)

    @cached_property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        """The controller listeners of the node."""
        return tuple(e for e in self.listeners if e.name in self.controller_listener_names)

    @cached_property
    def explicit_advertised_listeners(self) -> tuple[Endpoint, ...] | None:
        """advertised.listeners as given, or None where the key is not set."""
        addresses = self._values["advertised.listeners"]
        if addresses is None:
            return None
        return parse_listeners(
            "advertised.listeners", ",".join(addresses), self.security_protocol_map, distinct_ports=False
        )

    @cached_property
    def advertised_broker_listeners(self) -> tuple[Endpoint, ...]:
        """The endpoints in the broker's registration. The name of this host replaces an empty host."""
        chosen = (
            self.explicit_advertised_listeners
            if self.explicit_advertised_listeners is not None
            else self.listeners
        )
        return tuple(_named(e) for e in chosen if e.name not in self.controller_listener_names)

    @cached_property
    def advertised_controller_listeners(self) -> tuple[Endpoint, ...]:
        """The endpoints in the order of controller.listener.names. A listener that is not advertised is
        its own endpoint.
        """
        advertised = {e.name: e for e in self.explicit_advertised_listeners or ()}
        own = {e.name: e for e in self.controller_listeners}
        result = []
        for name in self.controller_listener_names:
            endpoint = advertised.get(name) or own.get(name)
            if endpoint is not None:
                if name not in advertised and endpoint.wildcard:
                    endpoint = endpoint.with_host("")
                result.append(_named(endpoint))
        return tuple(result)

    @cached_property
    def inter_broker_listener_name(self) -> str:
        """The name of the listener for connections between brokers."""
        name = self._values["inter.broker.listener.name"]
        if name is not None:
            return str(name).upper()
        return str(self._values["security.inter.broker.protocol"])

    # -- the quorum

    def is_limited(self, listener: str, most: int) -> bool:
        """Whether a value of max.connections limits a listener. It does not limit the brokers' own if they
        have others (Kafka's ConnectionQuotas), and zero does not close the controllers', or nobody could
        change it."""
        if listener in self.controller_listener_names:
            return most > 0
        return listener != self.inter_broker_listener_name or len(self.broker_listeners) == 1

    @cached_property
    def quorum_voters(self) -> dict[int, tuple[str, int]]:
        """The addresses of controller.quorum.voters by node id. Empty for a dynamic quorum."""
        key = "controller.quorum.voters"
        return parse_voters(key, self.originals.get(key, ""))

    @cached_property
    def quorum_bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """The addresses of controller.quorum.bootstrap.servers."""
        key = "controller.quorum.bootstrap.servers"
        text = self.originals.get(key, "")
        return tuple(parse_host_port(key, text, item) for item in text.split(",") if item.strip())

    @cached_property
    def http_listen(self) -> tuple[str, int] | None:
        """The address of quorate.http.listen, at which /metrics and /health are served, or None."""
        key = "quorate.http.listen"
        text = self.originals.get(key, "").strip()
        return parse_host_port(key, text, text) if text else None

    # -- directories

    @cached_property
    def log_dirs(self) -> tuple[Path, ...]:
        """The log directories, as absolute paths."""
        directories = self._values["log.dirs"] or self._values["log.dir"]
        return tuple(dict.fromkeys(Path(directory).absolute() for directory in directories))

    @cached_property
    def metadata_log_dir(self) -> Path:
        """The directory of the metadata log, by default the first log directory."""
        text = self._values["metadata.log.dir"]
        return Path(text).absolute() if text else self.log_dirs[0]

    @cached_property
    def all_dirs(self) -> tuple[Path, ...]:
        """The directories that have a meta.properties: the log directories and the metadata directory."""
        return tuple(dict.fromkeys([*self.log_dirs, self.metadata_log_dir]))

    # -- times that have several keys

    @property
    def log_roll_time_ms(self) -> int:
        """The time after which a segment is rolled."""
        ms = self._values["log.roll.ms"]
        return int(ms if ms is not None else self._values["log.roll.hours"] * 3_600_000)

    @property
    def log_roll_jitter_time_ms(self) -> int:
        """The maximum random part of this time."""
        ms = self._values["log.roll.jitter.ms"]
        return int(ms if ms is not None else self._values["log.roll.jitter.hours"] * 3_600_000)

    @property
    def log_retention_time_ms(self) -> int:
        """The time for which records are kept, or -1 for no limit."""
        ms = self._values["log.retention.ms"]
        if ms is None:
            minutes = self._values["log.retention.minutes"]
            ms = minutes * 60_000 if minutes is not None else self._values["log.retention.hours"] * 3_600_000
        return -1 if ms < 0 else int(ms)

    @property
    def log_flush_interval_time_ms(self) -> int:
        """The time after which written records are flushed to disk."""
        ms = self._values["log.flush.interval.ms"]
        return int(ms if ms is not None else self._values["log.flush.scheduler.interval.ms"])

    @cached_property
    def topic_defaults(self) -> dict[str, Any]:
        """The parsed defaults of the topic keys, which this node's broker keys determine."""
        derived = {
            "segment.ms": self.log_roll_time_ms,
            "segment.jitter.ms": self.log_roll_jitter_time_ms,
            "retention.ms": self.log_retention_time_ms,
            "flush.ms": self.log_flush_interval_time_ms,
        }
        defaults: dict[str, Any] = {}
        for name, definition in TOPIC_CONFIGS.items():
            if name in derived:
                defaults[name] = derived[name]
            elif definition.synonyms:
                defaults[name] = self._values[definition.synonyms[0]]
            else:
                defaults[name] = definition.default_value()
        return defaults


def _named(endpoint: Endpoint) -> Endpoint:
    """Replaces an empty host by the name of this host."""
    return endpoint if endpoint.host else endpoint.with_host(socket.getfqdn())
