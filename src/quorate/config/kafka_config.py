"""A node's configuration: properties checked against the tables, and what follows from them."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from quorate.config.broker_defs import BROKER_CONFIGS
from quorate.config.definitions import ConfigError
from quorate.config.listeners import Endpoint, parse_host_port, parse_listeners, parse_protocol_map, parse_voters
from quorate.config.topic_defs import TOPIC_CONFIGS

OBSOLETE = {
    "control.plane.listener.name": "brokers and controllers have separate listeners",
    "broker.id.generation.enable": "every node has its own node.id",
    "reserved.broker.max.id": "ids are not generated any more",
    "inter.broker.protocol.version": "metadata.version, a feature, took its place (kafka-features)",
    "log.message.format.version": "there is one message format",
    "log.message.downconversion.enable": "there is one message format",
    "message.downconversion.enable": "there is one message format",
    "log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and .after.max.ms",
    "offsets.commit.required.acks": "offset commits always wait for the whole ISR",
    "leader.imbalance.per.broker.percentage": "the controller moves every leadership back",
    "eligible.leader.replicas.enable": "eligible.leader.replicas.version, a feature, took its place",
    "delegation.token.master.key": "it is delegation.token.secret.key now",
}
"""Keys that once meant something: set, they do nothing, and the operator should know."""

_PREFIXES = ("listener.name.", "quorate.", "confluent.", "rsm.config.", "rlmm.config.", "metric.reporters.", "config.providers")
"""Families of keys that no table can list."""

_NO_LIMIT = 9223372036854775807


class KafkaConfig:
    """Typed, checked, immutable.

    `config.get("log.dirs")` gives a parsed value by Kafka's name, `config.log_dirs`-like attributes exist for every
    key (dots become underscores); what is derived from several keys is a property below and wins over the raw key.
    `warnings` are lines for the operator, each naming its key.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises ConfigError for the first key that is missing or wrong."""
        self.originals: dict[str, str] = dict(properties)
        self.warnings: list[str] = []
        if "broker.id" in self.originals:
            self._alias_broker_id()
        self._values: dict[str, Any] = {}
        self._classify_unknown()
        for name, definition in BROKER_CONFIGS.items():
            text = self.originals.get(name)
            if text is None:
                if definition.required:
                    raise missing(name)
                self._values[name] = definition.default_value()
            elif text.strip() == "" and definition.default is None and not isinstance(definition.parse(""), list):
                self._values[name] = None  # `key=` unsets, as in Kafka's own sample files
            else:
                self._values[name] = definition.parse(text)
        from quorate.config.node_rules import check

        check(self)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> KafkaConfig:
        return cls(properties)

    def with_overrides(self, overrides: Mapping[str, str]) -> KafkaConfig:
        """The same with some keys set otherwise. Raises ConfigError."""
        return KafkaConfig(self.originals | dict(overrides))

    def get(self, name: str) -> Any:
        """The parsed value of a key by Kafka's name. Raises KeyError for a name that does not exist."""
        return self._values[name]

    def explicit(self, name: str) -> bool:
        """Whether the key was given, rather than left at its default."""
        return name in self.originals

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values")
        if values is not None:
            key = name.replace("_", ".")
            if key in values:
                return values[key]
        raise AttributeError(f"no configuration key {name.replace('_', '.')}")

    # -- reading

    def _alias_broker_id(self) -> None:
        old, new = self.originals["broker.id"].strip(), self.originals.get("node.id", "").strip()
        if not new:
            self.originals["node.id"] = old
        elif old != new:
            raise ConfigError("broker.id", old, f"node.id is {new}", "they are the same thing: leave broker.id out")

    def _classify_unknown(self) -> None:
        for name in self.originals:
            if name in BROKER_CONFIGS or name.startswith(_PREFIXES):
                continue
            if name.startswith("zookeeper."):
                self.warnings.append(f"{name} is obsolete and ignored: there is no ZooKeeper, the controllers hold the metadata")
            elif name in OBSOLETE:
                self.warnings.append(f"{name} is obsolete and ignored: {OBSOLETE[name]}")
            else:
                self.warnings.append(f"{name} is not a known configuration and is ignored{_suggestion(name)}")

    # -- roles and listeners

    @cached_property
    def process_roles(self) -> frozenset[str]:
        return frozenset(self._values["process.roles"])

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def node_id(self) -> int:
        return int(self._values["node.id"])

    @cached_property
    def controller_listener_names(self) -> tuple[str, ...]:
        text = self._values["controller.listener.names"] or ""
        return tuple(n.strip().upper() for n in text.split(",") if n.strip())

    @cached_property
    def security_protocol_map(self) -> dict[str, int]:
        """Listener name -> protocol number; controllers' listeners default to PLAINTEXT while nothing else is in use."""
        key = "listener.security.protocol.map"
        mapping = parse_protocol_map(key, self._values[key])
        if not self.explicit(key):
            secured = {"SSL", "SASL_SSL", "SASL_PLAINTEXT"}
            names = {part.partition(":")[0].strip().upper() for part in (self._values["listeners"] or "").split(",")}
            if not secured & (names | set(self.controller_listener_names)):
                mapping |= dict.fromkeys(self.controller_listener_names, 0)
        return mapping

    @cached_property
    def listeners(self) -> tuple[Endpoint, ...]:
        return parse_listeners("listeners", self._values["listeners"] or "", self.security_protocol_map, distinct_ports=True)

    @cached_property
    def broker_listeners(self) -> tuple[Endpoint, ...]:
        return tuple(e for e in self.listeners if e.name not in self.controller_listener_names)

    @cached_property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        return tuple(e for e in self.listeners if e.name in self.controller_listener_names)

    @cached_property
    def _advertised(self) -> tuple[Endpoint, ...] | None:
        text = self._values["advertised.listeners"]
        if text is None:
            return None
        return parse_listeners("advertised.listeners", text, self.security_protocol_map, distinct_ports=False)

    @cached_property
    def advertised_broker_listeners(self) -> tuple[Endpoint, ...]:
        """What clients and other brokers are told; an empty host became this host's name."""
        chosen = self._advertised if self._advertised is not None else self.listeners
        return tuple(_named(e) for e in chosen if e.name not in self.controller_listener_names)

    @cached_property
    def advertised_controller_listeners(self) -> tuple[Endpoint, ...]:
        """In the order of controller.listener.names; a listener that is not advertised stands for itself."""
        advertised = {e.name: e for e in self._advertised or ()}
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
        name = self._values["inter.broker.listener.name"]
        if name is not None:
            return str(name).upper()
        return str(self._values["security.inter.broker.protocol"])

    # -- the quorum

    @cached_property
    def quorum_voters(self) -> dict[int, tuple[str, int]]:
        """controller.quorum.voters: id -> address; empty for a dynamic quorum."""
        key = "controller.quorum.voters"
        return parse_voters(key, self.originals.get(key, ""))

    @cached_property
    def quorum_bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        key = "controller.quorum.bootstrap.servers"
        text = self.originals.get(key, "")
        return tuple(parse_host_port(key, text, item) for item in text.split(",") if item.strip())

    @cached_property
    def http_listen(self) -> tuple[str, int] | None:
        """quorate.http.listen: where /metrics and /health are served; None for nowhere."""
        key = "quorate.http.listen"
        text = self.originals.get(key, "").strip()
        return parse_host_port(key, text, text) if text else None

    # -- directories

    @cached_property
    def log_dirs(self) -> tuple[Path, ...]:
        text = self._values["log.dirs"] or self._values["log.dir"]
        return tuple(dict.fromkeys(Path(d.strip()).absolute() for d in text.split(",") if d.strip()))

    @cached_property
    def metadata_log_dir(self) -> Path:
        text = self._values["metadata.log.dir"]
        return Path(text).absolute() if text else self.log_dirs[0]

    @cached_property
    def all_dirs(self) -> tuple[Path, ...]:
        """Every directory that holds a meta.properties: the log directories and the metadata one."""
        return tuple(dict.fromkeys([*self.log_dirs, self.metadata_log_dir]))

    # -- times that have several keys

    @property
    def log_roll_time_ms(self) -> int:
        ms = self._values["log.roll.ms"]
        return int(ms if ms is not None else self._values["log.roll.hours"] * 3_600_000)

    @property
    def log_roll_jitter_time_ms(self) -> int:
        ms = self._values["log.roll.jitter.ms"]
        return int(ms if ms is not None else self._values["log.roll.jitter.hours"] * 3_600_000)

    @property
    def log_retention_time_ms(self) -> int:
        ms = self._values["log.retention.ms"]
        if ms is None:
            minutes = self._values["log.retention.minutes"]
            ms = minutes * 60_000 if minutes is not None else self._values["log.retention.hours"] * 3_600_000
        return -1 if ms < 0 else int(ms)

    @property
    def log_flush_interval_time_ms(self) -> int:
        ms = self._values["log.flush.interval.ms"]
        return int(ms if ms is not None else self._values["log.flush.scheduler.interval.ms"])

    @cached_property
    def topic_defaults(self) -> dict[str, Any]:
        """What a topic's keys are while nobody sets them: parsed values by topic key."""
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
    """An endpoint that others can reach: an empty host stands for this host's name."""
    return endpoint if endpoint.host else endpoint.with_host(socket.getfqdn())


def missing(name: str) -> ConfigError:
    """The refusal of a key that has no default."""
    if name == "process.roles":
        return ConfigError(
            name,
            None,
            "it is required; without it a node would be a ZooKeeper one, and there is no ZooKeeper mode",
            "set process.roles=broker,controller for a node that is both, or one of the two",
        )
    return ConfigError(name, None, "it is required", f"set {name}=<a number from 0 on, different on every node>")


def _suggestion(name: str) -> str:
    import difflib

    if name in TOPIC_CONFIGS and TOPIC_CONFIGS[name].synonyms:
        return f" (a topic's key; a broker's is {TOPIC_CONFIGS[name].synonyms[0]})"
    close = difflib.get_close_matches(name, BROKER_CONFIGS, n=1, cutoff=0.85)
    return f" (did you mean {close[0]}?)" if close else ""


def parse_per_ip(key: str, text: str) -> dict[str, int]:
    """`host:count,...` of max.connections.per.ip.overrides. Raises ConfigError."""
    limits: dict[str, int] = {}
    for item in (part.strip() for part in text.split(",") if part.strip()):
        host, colon, count = item.rpartition(":")
        if not colon or not re.fullmatch(r"[0-9]+", count):
            raise ConfigError(key, text, f"{item!r} is not host:count")
        limits[host.strip("[]")] = int(count)
    return limits
