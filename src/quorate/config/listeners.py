"""Parses lists of listeners and of addresses.

A listener is `NAME://host:port`. An IPv6 host is in brackets, and an empty host means every address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from quorate.config.definitions import ConfigError
from quorate.dataclass import dataclass

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

LISTENER_LIMIT, CONNECTION_RATE = "max.connections", "max.connection.creation.rate"
OF_LISTENERS = frozenset({LISTENER_LIMIT, CONNECTION_RATE})
"""The keys that a listener can have for itself here, as listener.name.NAME.max.connections."""
_LISTENER_KEY = re.compile(r"listener\.name\.([^.]*)\.(.*)", re.DOTALL)
_MECHANISM = re.compile(r"(?:gssapi|oauthbearer|plain|scram-sha-256|scram-sha-512)\.")
"""A SASL mechanism before a key, as in listener.name.NAME.plain.sasl.jaas.config."""

_LISTENER = re.compile(r"([^:/]+)://(?:\[([0-9a-zA-Z\-%._:]*)\]|([0-9a-zA-Z\-%._]*)):(-?[0-9]+)")

WILDCARDS = frozenset({"0.0.0.0", "::", "0:0:0:0:0:0:0:0"})


def shown_host(host: str) -> str:
    """Puts an IPv6 address in brackets and leaves every other host as it is."""
    return f"[{host}]" if ":" in host else host


def shown_address(host: str, port: int) -> str:
    """Returns `host:port`, as in a list of servers."""
    return f"{shown_host(host)}:{port}"


@dataclass(slots=True, frozen=True)
class Endpoint:
    """A listener. An empty `host` means every address; `security_protocol` is the number of
    Kafka's SecurityProtocol.
    """

    name: str
    host: str
    port: int
    security_protocol: int = 0

    def __str__(self) -> str:
        return f"{self.name}://{shown_address(self.host, self.port)}"

    @property
    def wildcard(self) -> bool:
        """Whether the host means every address of the machine."""
        return not self.host or self.host in WILDCARDS

    def with_port(self, port: int) -> Endpoint:
        """The same listener with another port."""
        return replace(self, port=port)

    def with_host(self, host: str) -> Endpoint:
        """The same listener with another host."""
        return replace(self, host=host)


def parse_listeners(
    key: str, text: str, protocols: Mapping[str, int], *, distinct_ports: bool, zero_port: bool = True
) -> tuple[Endpoint, ...]:
    """Parses a list of listeners. Raises ConfigError, which names the invalid entry."""
    endpoints: list[Endpoint] = []
    for item in (part.strip() for part in text.split(",") if part.strip()):
        match = _LISTENER.fullmatch(item)
        if match is None:
            raise ConfigError(
                key,
                text,
                f"{item!r} is not a listener",
                "write NAME://host:port, an IPv6 host in brackets as in PLAINTEXT://[::1]:9092",
            )
        name = match[1].upper()
        host = match[2] if match[2] is not None else match[3]
        port = int(match[4])
        if not 0 <= port <= 65535:
            raise ConfigError(
                key, text, f"{item!r} has no valid port", "ports are 1 to 65535, 0 for any free one"
            )
        if name not in protocols:
            raise ConfigError(
                key,
                text,
                f"No security protocol defined for listener {name}",
                f"add {name}:PLAINTEXT (or another protocol) to listener.security.protocol.map",
                {"listener.security.protocol.map": _shown_map({**protocols, name: 0})},
            )
        endpoints.append(Endpoint(name, host, port, protocols[name]))
    names = [e.name for e in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(key, text, f"Each listener must have a different name, {name} is there twice")
    if distinct_ports:
        _check_ports(key, text, endpoints)
    return tuple(endpoints)


def _check_ports(key: str, text: str, endpoints: list[Endpoint]) -> None:
    """Raises ConfigError where a port is used twice, except by one IPv4 and one IPv6 address (KIP-797)."""
    by_port: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, same in by_port.items():
        if len(same) == 1:
            continue
        v6 = [e for e in same if ":" in e.host]
        v4 = [e for e in same if re.fullmatch(r"[0-9.]+", e.host)]
        if len(same) == 2 and len(v6) == 1 and len(v4) == 1:
            continue
        raise ConfigError(
            key,
            text,
            f"Each listener must have a different port, {port} is used by "
            f"{' and '.join(e.name for e in same)}",
            "controllers and brokers never share a port",
        )


def _shown_map(protocols: Mapping[str, int]) -> str:
    names = {number: name for name, number in SECURITY_PROTOCOLS.items()}
    return ",".join(f"{name}:{names[number]}" for name, number in protocols.items())


def parse_protocol_map(key: str, text: str) -> dict[str, int]:
    """Parses `NAME:PROTOCOL,...` into the numbers of the protocols by listener name. Raises ConfigError."""
    mapping: dict[str, int] = {}
    for item in (part.strip() for part in text.split(",") if part.strip()):
        name, colon, protocol = item.rpartition(":")
        if not colon or not name:
            raise ConfigError(key, text, f"{item!r} is not LISTENER:PROTOCOL")
        number = SECURITY_PROTOCOLS.get(protocol.strip().upper())
        if number is None:
            raise ConfigError(
                key,
                text,
                f"Invalid security protocol `{protocol}`",
                f"one of {', '.join(SECURITY_PROTOCOLS)}",
            )
        mapping[name.strip().upper()] = number
    return mapping


def parse_host_port(key: str, text: str, item: str) -> tuple[str, int]:
    """Parses `host:port`, an IPv6 host in brackets. Raises ConfigError."""
    match = re.fullmatch(r"(?:\[([0-9a-zA-Z\-%._:]+)\]|([0-9a-zA-Z\-%._]+)):([0-9]+)", item.strip())
    if match is None or not 0 <= int(match[3]) <= 65535:
        raise ConfigError(
            key, text, f"{item.strip()!r} is not host:port", "an IPv6 host goes in brackets: [::1]:9093"
        )
    return match[1] or match[2], int(match[3])


def parse_voters(key: str, text: str) -> dict[int, tuple[str, int]]:
    """Parses `id@host:port,...` into addresses by node id. Raises ConfigError."""
    voters: dict[int, tuple[str, int]] = {}
    for item in (part.strip() for part in text.split(",") if part.strip()):
        number, at, address = item.partition("@")
        if not at or not re.fullmatch(r"[0-9]+", number.strip()):
            raise ConfigError(
                key, text, f"{item!r} is not id@host:port", "for example 1@localhost:9093,2@localhost:9094"
            )
        node = int(number)
        if node in voters:
            raise ConfigError(key, text, f"node {node} is there twice")
        voters[node] = parse_host_port(key, text, address)
    return voters


def parse_connections_per_ip(key: str, text: str) -> dict[str, int]:
    """Parses max.connections.per.ip.overrides, `host:count,...`, into a map by host. Raises ConfigError."""
    limits: dict[str, int] = {}
    for item in (part.strip() for part in text.split(",") if part.strip()):
        host, colon, count = item.rpartition(":")
        if not colon or not re.fullmatch(r"[0-9]{1,10}", count):
            raise ConfigError(key, text, f"{item!r} is not host:count")
        limits[host.strip("[]")] = int(count)
    return limits


class ListenerKey(NamedTuple):
    """The listener and the key in listener.name.NAME.KEY. The key may begin with a SASL mechanism."""

    listener: str
    key: str


def listener_key(name: str) -> ListenerKey | None:
    """The parts of a key of one listener. None for every other key."""
    match = _LISTENER_KEY.fullmatch(name)
    return None if match is None else ListenerKey(match[1], match[2])


def base_key(key: str) -> str:
    """The key of a listener without its SASL mechanism."""
    mechanism = _MECHANISM.match(key)
    return key if mechanism is None else key[mechanism.end() :]
