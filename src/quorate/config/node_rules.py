"""Checks the rules between several keys of a node: roles, listeners, quorum, directories, limits.

Each error names the key, its value, the reason and a remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from quorate.config.broker_defs import BROKER_CONFIGS
from quorate.config.cordoned_dirs import CORDONED_LOG_DIRS, parse_cordoned_dirs
from quorate.config.definitions import ConfigError, missing_key_error
from quorate.config.listeners import (
    OF_LISTENERS,
    Endpoint,
    listener_key,
    parse_connections_per_ip,
    shown_address,
)

_SASL_PROTOCOLS = (2, 3)
_FETCH_WAIT_MS = 500
"""The default of replica.fetch.wait.max.ms."""


class NodeConfig(Protocol):
    """The members of KafkaConfig that the rules need."""

    originals: dict[str, str]
    warnings: list[str]

    def get(self, name: str) -> Any: ...
    def explicit(self, name: str) -> bool: ...
    @property
    def is_broker(self) -> bool: ...
    @property
    def is_controller(self) -> bool: ...
    @property
    def node_id(self) -> int: ...
    @property
    def listeners(self) -> tuple[Endpoint, ...]: ...
    @property
    def broker_listeners(self) -> tuple[Endpoint, ...]: ...
    @property
    def controller_listener_names(self) -> tuple[str, ...]: ...
    @property
    def security_protocol_map(self) -> Mapping[str, int]: ...
    @property
    def explicit_advertised_listeners(self) -> tuple[Endpoint, ...] | None: ...
    @property
    def advertised_broker_listeners(self) -> tuple[Endpoint, ...]: ...
    @property
    def inter_broker_listener_name(self) -> str: ...
    @property
    def quorum_voters(self) -> Mapping[int, tuple[str, int]]: ...
    @property
    def quorum_bootstrap_servers(self) -> tuple[tuple[str, int], ...]: ...
    @property
    def log_dirs(self) -> Sequence[Path]: ...
    @property
    def log_roll_time_ms(self) -> int: ...
    @property
    def log_roll_jitter_time_ms(self) -> int: ...
    @property
    def log_retention_time_ms(self) -> int: ...


def check(config: NodeConfig) -> None:
    """Raises ConfigError for the first rule that is violated. Adds unusual settings to
    `config.warnings`."""
    _roles(config)
    _quorum(config)
    _listeners(config)
    _advertised(config)
    _security(config)
    _logs(config)
    _limits(config)


def _roles(config: NodeConfig) -> None:
    roles = config.get("process.roles")
    if not roles:
        raise missing_key_error("process.roles")


def _quorum(config: NodeConfig) -> None:
    voters, servers, node = config.quorum_voters, config.quorum_bootstrap_servers, config.node_id
    if not voters and not servers:
        raise ConfigError(
            "controller.quorum.bootstrap.servers",
            config.originals.get("controller.quorum.bootstrap.servers", ""),
            "a node must know where the controllers are, and controller.quorum.voters is empty too",
            "set controller.quorum.bootstrap.servers=host:port of one or more controllers",
            {"controller.quorum.bootstrap.servers": "HOST-OF-A-CONTROLLER:9093"},
        )
    text = config.originals.get("controller.quorum.voters", "")
    if config.is_controller and voters and node not in voters:
        raise ConfigError(
            "controller.quorum.voters",
            text,
            f"this node is a controller and its node.id {node} is not among the voters {sorted(voters)}",
            f"add {node}@host:port, or correct node.id",
            _as_voter(config, text),
        )
    if not config.is_controller and node in voters:
        raise ConfigError(
            "controller.quorum.voters",
            text,
            f"this node is only a broker and its node.id {node} is among the voters",
            "give the broker another node.id, or add controller to process.roles",
        )


def _listeners(config: NodeConfig) -> None:
    names = config.controller_listener_names
    shown = config.get("controller.listener.names")
    if not names:
        raise ConfigError(
            "controller.listener.names",
            shown,
            "it is required on every node: a controller serves on these listeners, a broker talks to the "
            "quorum by the first",
            "set controller.listener.names=CONTROLLER",
            {"controller.listener.names": "CONTROLLER"},
        )
    own = {e.name for e in config.listeners}
    if config.is_controller:
        absent = [n for n in names if n not in own]
        if absent:
            raise ConfigError(
                "controller.listener.names",
                shown,
                f"listeners has no {absent[0]}, and this node is a controller",
                f"add {absent[0]}://host:port to listeners",
                _with_listener(config, absent[0]),
            )
        if not config.is_broker and config.broker_listeners:
            extra = config.broker_listeners[0]
            raise ConfigError(
                "listeners",
                config.get("listeners"),
                f"this node is only a controller and {extra.name} is not among controller.listener.names",
                f"remove {extra}, or add broker to process.roles",
                _without_listener(config, extra.name),
            )
    else:
        shared = [n for n in names if n in own]
        if shared:
            raise ConfigError(
                "listeners",
                config.get("listeners"),
                f"this node is only a broker and must not listen on the controllers' {shared[0]}",
                f"remove {shared[0]} from listeners, or add controller to process.roles",
                _without_listener(config, shared[0]),
            )
        if len(names) > 1:
            config.warnings.append(
                f"controller.listener.names: a broker uses only the first of {','.join(names)}"
            )
    for name in names:
        if name not in config.security_protocol_map:
            raise ConfigError(
                "listener.security.protocol.map",
                config.get("listener.security.protocol.map"),
                f"the controllers' listener {name} has no security protocol",
                f"add {name}:PLAINTEXT, or whatever the controllers use",
                _with_protocol(config, name),
            )


def _advertised(config: NodeConfig) -> None:
    """Checks the listeners as they are set, before the name of this host replaces an empty host."""
    given = config.get("advertised.listeners")
    if given is not None:
        for endpoint in config.explicit_advertised_listeners or ():
            if endpoint.wildcard:
                raise ConfigError(
                    "advertised.listeners",
                    given,
                    f"{endpoint.host or 'an empty host'} is every address of a machine: clients cannot "
                    "connect to it",
                    "give the name or address by which clients reach this node",
                    _advertised_by_name(config.explicit_advertised_listeners or ()),
                )
            if (
                config.is_broker
                and endpoint.name in config.controller_listener_names
                and not config.is_controller
            ):
                raise ConfigError(
                    "advertised.listeners",
                    given,
                    f"{endpoint.name} is a listener of the controllers",
                    f"remove {endpoint}",
                    _not_advertised(config, endpoint.name),
                )
            if endpoint.name not in {e.name for e in config.listeners}:
                raise ConfigError(
                    "advertised.listeners",
                    given,
                    f"listeners has no {endpoint.name}",
                    f"add {endpoint.name} to listeners, or remove it here",
                    _not_advertised(config, endpoint.name),
                )
    elif config.is_broker:
        for endpoint in config.broker_listeners:
            if endpoint.host and endpoint.wildcard:
                raise ConfigError(
                    "listeners",
                    config.get("listeners"),
                    f"{endpoint.name} would be advertised as {endpoint.host}, to which clients cannot "
                    "connect",
                    f"set advertised.listeners={endpoint.name}://<name of this host>:{endpoint.port}",
                    _advertised_by_name(config.broker_listeners),
                )
    if not config.is_broker:
        return
    names = [e.name for e in config.advertised_broker_listeners]
    if not names:
        raise ConfigError(
            "listeners",
            config.get("listeners"),
            "a broker must advertise at least one listener, and all of these are the controllers'",
            "add PLAINTEXT://host:port",
        )
    inter_broker = config.inter_broker_listener_name
    if config.get("inter.broker.listener.name") is not None and config.explicit(
        "security.inter.broker.protocol"
    ):
        raise ConfigError(
            "security.inter.broker.protocol",
            config.get("security.inter.broker.protocol"),
            "inter.broker.listener.name is set too, only one of them may be",
            "keep inter.broker.listener.name",
            {"security.inter.broker.protocol": None},
        )
    if inter_broker in config.controller_listener_names:
        raise ConfigError(
            "inter.broker.listener.name",
            inter_broker,
            "it is a listener of the controllers",
            f"one of {', '.join(names)}",
            {"inter.broker.listener.name": names[0]},
        )
    if inter_broker not in names:
        raise ConfigError(
            "inter.broker.listener.name",
            inter_broker,
            "the brokers' own listener must be an advertised one",
            f"set inter.broker.listener.name to one of {', '.join(names)}",
            {"inter.broker.listener.name": names[0], "security.inter.broker.protocol": None},
        )


def _security(config: NodeConfig) -> None:
    """Rejects GSSAPI, which is Kafka's default mechanism but is not implemented here."""
    for endpoint in config.listeners:
        if endpoint.security_protocol not in _SASL_PROTOCOLS:
            continue
        key = f"listener.name.{endpoint.name.lower()}.sasl.enabled.mechanisms"
        mechanisms = config.originals.get(key) or ",".join(config.get("sasl.enabled.mechanisms"))
        if any(m.strip() == "GSSAPI" for m in mechanisms.split(",")):
            raise ConfigError(
                "sasl.enabled.mechanisms",
                mechanisms,
                f"listener {endpoint.name} uses SASL, and GSSAPI (Kerberos) is not available",
                "choose among PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER",
            )


def _logs(config: NodeConfig) -> None:
    if config.is_broker:
        parse_cordoned_dirs(config.originals.get(CORDONED_LOG_DIRS, ""), config.log_dirs)
    if config.log_roll_time_ms < 1:
        raise ConfigError(
            "log.roll.ms",
            config.log_roll_time_ms,
            "Value must be at least 1",
            correction={"log.roll.ms": str(7 * 24 * 3_600_000)},
        )
    if config.log_roll_jitter_time_ms < 0:
        raise ConfigError(
            "log.roll.jitter.ms",
            config.log_roll_jitter_time_ms,
            "Value must be at least 0",
            correction={"log.roll.jitter.ms": "0"},
        )
    if config.log_retention_time_ms == 0:
        raise ConfigError(
            "log.retention.ms",
            0,
            "it must be unlimited (-1) or at least 1",
            correction={"log.retention.ms": "-1"},
        )
    threads = config.get("log.cleaner.threads")
    if threads and config.get("log.cleaner.dedupe.buffer.size") / threads <= 1 << 20:
        raise ConfigError(
            "log.cleaner.dedupe.buffer.size",
            config.get("log.cleaner.dedupe.buffer.size"),
            "it must be more than 1 MiB for each of log.cleaner.threads",
            correction={"log.cleaner.dedupe.buffer.size": str((threads << 20) + threads)},
        )


def _limits(config: NodeConfig) -> None:
    wait = config.get("replica.fetch.wait.max.ms")
    for key in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        if wait > config.get(key):
            raise ConfigError(
                key,
                config.get(key),
                f"it must be at least replica.fetch.wait.max.ms ({wait})",
                correction={"replica.fetch.wait.max.ms": None} if wait > _FETCH_WAIT_MS else {key: None},
            )
    queued = config.get("queued.max.request.bytes")
    if 0 < queued < config.get("socket.request.max.bytes"):
        raise ConfigError(
            "queued.max.request.bytes",
            queued,
            "it must be at least socket.request.max.bytes, or -1",
            correction={"queued.max.request.bytes": "-1"},
        )
    if config.get("max.connections.per.ip") == 0 and not config.get("max.connections.per.ip.overrides"):
        raise ConfigError(
            "max.connections.per.ip",
            0,
            "zero needs max.connections.per.ip.overrides, or no client could connect",
            correction={"max.connections.per.ip": None},
        )
    key = "max.connections.per.ip.overrides"
    parse_connections_per_ip(key, config.get(key))
    for key, text in config.originals.items():
        of_listener = listener_key(key)
        if of_listener is not None and of_listener.key in OF_LISTENERS:
            replace(BROKER_CONFIGS[of_listener.key], name=key).validate(text)
    if config.get("broker.heartbeat.interval.ms") >= config.get("broker.session.timeout.ms"):
        config.warnings.append(
            "broker.heartbeat.interval.ms is not below broker.session.timeout.ms: this broker will be fenced"
        )


# -- corrections


def _as_voter(config: NodeConfig, voters: str) -> dict[str, str | None]:
    """Adds this controller to the voters, if its address is known."""
    own = [e for e in config.listeners if e.name in config.controller_listener_names and not e.wildcard]
    if not own:
        return {}
    address = shown_address(own[0].host, own[0].port)
    return {"controller.quorum.voters": f"{voters},{config.node_id}@{address}"}


def _with_listener(config: NodeConfig, name: str) -> dict[str, str | None]:
    used = {e.port for e in config.listeners}
    port = next(port for port in range(9093, 65536) if port not in used)
    return {"listeners": ",".join([*map(str, config.listeners), f"{name}://:{port}"])}


def _without_listener(config: NodeConfig, name: str) -> dict[str, str | None]:
    left = [str(e) for e in config.listeners if e.name != name]
    return {"listeners": ",".join(left)} if left else {}


def _advertised_by_name(endpoints: Iterable[Endpoint]) -> dict[str, str | None]:
    """The endpoints with a word in place of a host that no client can use. The operator replaces the word."""
    named = [str(e.with_host("NAME-OF-THIS-HOST") if e.wildcard else e) for e in endpoints]
    return {"advertised.listeners": ",".join(named)}


def _not_advertised(config: NodeConfig, name: str) -> dict[str, str | None]:
    left = [str(e) for e in config.explicit_advertised_listeners or () if e.name != name]
    return {"advertised.listeners": ",".join(left) or None}


def _with_protocol(config: NodeConfig, name: str) -> dict[str, str | None]:
    return {key: f"{config.get(key)},{name}:PLAINTEXT" for key in ["listener.security.protocol.map"]}
