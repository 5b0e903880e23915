"""What Apache Kafka 4.4 says when it does not start with a properties file.

Kafka stops at its first error: it parses every key (ConfigDef), and then checks the rules between keys
(KafkaConfig.validateValues, in this order). The texts are those of its exceptions, because operators search
for them. `tests/tools/test_doctor_kafka.py` compares them with Kafka itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from quorate.config.broker_defs import BROKER_CONFIGS
from quorate.config.definitions import ConfigError, EmptyValues, NotAmong

_CONFIG_EXCEPTION = "org.apache.kafka.common.config.ConfigException"
_ARGUMENT = "java.lang.IllegalArgumentException"
_REQUIRED = "java.lang.IllegalArgumentException: requirement failed"
_LISTENER = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_VOTER_FORM = "Each entry should be in the form `{id}@{host}:{port}`."
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_REQUIRED_KEYS = ("process.roles", "node.id", "controller.listener.names")


class _Refused(Exception):  # noqa: N818 - it is the result, not an error
    """Ends the checks with the text of Kafka's exception."""


def kafka_refusal(properties: Mapping[str, str]) -> str | None:
    """The exception with which Kafka ends, None if it accepts the properties or if that is not known."""
    given = dict(properties)
    if "node.id" not in given and "broker.id" in given:
        given["node.id"] = given["broker.id"]
    try:
        values = _parsed(given)
        for text in _broken_rules(given, values):
            return text
    except _Refused as refused:
        return str(refused)
    return None


def _parsed(given: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, definition in BROKER_CONFIGS.items():
        if name.startswith("quorate."):
            continue
        if name not in given:
            if name in _REQUIRED_KEYS:
                raise _Refused(
                    f'{_CONFIG_EXCEPTION}: Missing required configuration "{name}" which has no default '
                    "value."
                )
            values[name] = definition.default_value()
            continue
        try:
            values[name] = definition.parse(given[name])
        except ConfigError as error:
            raise _Refused(f"{_CONFIG_EXCEPTION}: {_value_text(name, error)}") from None
    values["voters"] = dict(_voters(values["controller.quorum.voters"]))
    _check_bootstrap_servers(values["controller.quorum.bootstrap.servers"])
    return values


def _value_text(name: str, error: ConfigError) -> str:
    """The text about an invalid value. Those about lists name the item, or have no value."""
    reason = error.reason
    if isinstance(reason, EmptyValues):
        if reason.allowed is None:
            return f"Configuration '{name}' {reason}."
        shown = reason.allowed if reason.allowed.startswith("any ") else f"[{reason.allowed}]"
        return f"Configuration '{name}' must not be empty. Valid values include: {shown}"
    value = reason.item if isinstance(reason, NotAmong) else error.value
    return f"Invalid value {value} for configuration {name}: {reason}"


def _voters(entries: list[str]) -> Iterator[tuple[int, str]]:
    for entry in entries or ():
        number, _, address = entry.partition("@")
        if len(entry.split("@")) != 2:
            raise _Refused(
                f"{_CONFIG_EXCEPTION}: Invalid configuration value for controller.quorum.voters. "
                f"{_VOTER_FORM}"
            )
        if not re.fullmatch(r"[+-]?[0-9]+", number):
            raise _Refused(f"{_CONFIG_EXCEPTION}: Failed to parse voter ID as an integer from {number}")
        found = re.fullmatch(r"\[?([0-9a-zA-Z\-%._:]+)\]?:([0-9]+)", address)
        if found is None:
            raise _Refused(
                f"{_CONFIG_EXCEPTION}: Failed to parse host name from entry {entry} for the configuration "
                f"controller.quorum.voters. {_VOTER_FORM}"
            )
        yield int(number), address


def _check_bootstrap_servers(entries: list[str]) -> None:
    for entry in entries or ():
        if re.fullmatch(r"\[?([0-9a-zA-Z\-%._:]+)\]?:([0-9]+)", entry) is None:
            raise _Refused(
                f"{_CONFIG_EXCEPTION}: Failed to parse host name from {entry} for the configuration "
                'controller.quorum.bootstrap.servers. Each entry should be in the form "{host}:{port}"'
            )


# --- rules ----------------------------------------------------------------------------------------


class _Listeners:
    """The listeners of a node, with the checks that Kafka makes while it parses them."""

    def __init__(self, given: Mapping[str, str], values: Mapping[str, Any]) -> None:
        self._given = given
        self._values = values
        self.controllers: list[str] = values["controller.listener.names"]
        self.protocols = self._protocol_map()

    def _protocol_map(self) -> dict[str, str]:
        key = "listener.security.protocol.map"
        found = {}
        for item in filter(None, (part.strip() for part in self._values[key].split(","))):
            name, _, protocol = item.rpartition(":")
            if protocol.strip().upper() not in _PROTOCOLS:
                raise _Refused(
                    f"{_CONFIG_EXCEPTION}: Invalid security protocol `{protocol.strip()}` defined in {key}"
                )
            found[name.strip().upper()] = protocol.strip().upper()
        if key not in self._given:
            secured = set(_PROTOCOLS[1:])
            names = {item.partition(":")[0].upper() for item in self._values["listeners"]}
            if not secured & (names | set(self.controllers)):
                found |= dict.fromkeys(self.controllers, "PLAINTEXT")
        return found

    def parse(self, items: list[str], *, distinct_ports: bool) -> list[tuple[str, str, int]]:
        """The listeners as (name, host, port)."""
        shown = f"[{', '.join(items)}]"
        failed = f"{_ARGUMENT}: Error creating broker listeners from '{shown}'"
        found: list[tuple[str, str, int]] = []
        for item in items:
            match = _LISTENER.fullmatch(item)
            if match is None:
                raise _Refused(f"{failed}: Unable to parse {item} to a broker endpoint")
            name = match[1].upper()
            if name not in self.protocols:
                raise _Refused(f"{failed}: No security protocol defined for listener {name}")
            found.append((name, match[2], int(match[3])))
        if len({name for name, _, _ in found}) != len(found):
            raise _Refused(f"{failed}: Each listener must have a different name, listeners: {shown}")
        if distinct_ports:
            self._check_ports(found, shown, failed)
        return found

    def _check_ports(self, found: list[tuple[str, str, int]], shown: str, failed: str) -> None:
        for port in {port for _, _, port in found if port}:
            hosts = [host for _, host, used in found if used == port]
            if len(hosts) == 1:
                continue
            v4 = [host for host in hosts if re.fullmatch(r"[0-9]+(\.[0-9]+){3}", host)]
            v6 = [host for host in hosts if ":" in host]
            if len(hosts) - len(v4) - len(v6) > 1:
                raise _Refused(f"{failed}: Each listener must have a different port, listeners: {shown}")
            if not v4 and not v6:
                continue
            if len(v4) + len(v6) == 2 and not (len(v4) == len(v6) == 1 and len(hosts) == 2):
                raise _Refused(
                    f"{failed}: If you have two listeners on the same port then one needs to be IPv4 and the "
                    f"other IPv6, listeners: {shown}, port: {port}"
                )
            if len(v4) + len(v6) != 2:
                raise _Refused(
                    f"{failed}: Each listener must have a different port unless exactly one listener has an "
                    f"IPv4 address and the other IPv6 address, listeners: {shown}, port: {port}"
                )


def _broken_rules(given: Mapping[str, str], values: Mapping[str, Any]) -> Iterator[str]:
    """Yields the exceptions of the rules that are violated, in Kafka's order."""
    if "broker.id" in given and values["node.id"] != int(given["broker.id"].strip() or -1):
        yield (
            f"{_CONFIG_EXCEPTION}: `node.id` and `broker.id` must be set to the same value. `broker.id` is "
            "deprecated, please use `node.id` instead."
        )
    yield from _log_rules(values)
    names = _Listeners(given, values)
    listeners = names.parse(values["listeners"], distinct_ports=True)
    advertised = listeners
    if values["advertised.listeners"] is not None:
        advertised = names.parse(values["advertised.listeners"], distinct_ports=False)
    of_brokers = [listener for listener in advertised if listener[0] not in names.controllers]
    yield from _role_rules(values, names, listeners)
    if "broker" in values["process.roles"]:
        yield from _broker_rules(given, values, names, listeners, of_brokers)
    if any(host == "0.0.0.0" for _, host, _ in of_brokers):
        yield (
            f"{_REQUIRED}: advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a "
            "routable IP address."
        )
    queued = values["queued.max.request.bytes"]
    if 0 < queued < values["socket.request.max.bytes"]:
        yield f"{_REQUIRED}: queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
    if values["max.connections.per.ip"] == 0 and not values["max.connections.per.ip.overrides"]:
        yield (
            f"{_REQUIRED}: max.connections.per.ip can be set to zero only if "
            "max.connections.per.ip.overrides property is set."
        )


def _log_rules(values: Mapping[str, Any]) -> Iterator[str]:
    def first(ms: str, others: tuple[tuple[str, int], ...]) -> int:
        if values[ms] is not None:
            return int(values[ms])
        return next(int(values[key]) * factor for key, factor in others if values[key] is not None)

    if first("log.roll.ms", (("log.roll.hours", 3_600_000),)) < 1:
        yield f"{_REQUIRED}: log.roll.ms must be greater than or equal to 1"
    if first("log.roll.jitter.ms", (("log.roll.jitter.hours", 3_600_000),)) < 0:
        yield f"{_REQUIRED}: log.roll.jitter.ms must be greater than or equal to 0"
    kept = first("log.retention.ms", (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)))
    if kept == 0:
        yield f"{_REQUIRED}: log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
    threads = values["log.cleaner.threads"]
    if threads and values["log.cleaner.dedupe.buffer.size"] // threads <= 1 << 20:
        yield f"{_REQUIRED}: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
    wait = values["replica.fetch.wait.max.ms"]
    if wait > values["replica.socket.timeout.ms"]:
        yield (
            f"{_REQUIRED}: replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to "
            "prevent unnecessary socket timeouts"
        )
    if wait > values["replica.lag.time.max.ms"]:
        yield (
            f"{_REQUIRED}: replica.fetch.wait.max.ms should always be less than or equal to "
            "replica.lag.time.max.ms to prevent frequent changes in ISR"
        )


def _role_rules(
    values: Mapping[str, Any], names: _Listeners, listeners: list[tuple[str, str, int]]
) -> Iterator[str]:
    roles, node, voters = set(values["process.roles"]), values["node.id"], values["voters"]
    own = {name for name, _, _ in listeners}
    shown = "Set(" + ", ".join(map(str, voters)) + ")"
    if not voters and not values["controller.quorum.bootstrap.servers"]:
        yield (
            f"{_CONFIG_EXCEPTION}: If using process.roles, either controller.quorum.bootstrap.servers must "
            "contain the set of bootstrap controllers or controller.quorum.voters must contain a parseable "
            "set of controllers."
        )
    if roles == {"broker"}:
        if node in voters:
            yield (
                f"{_REQUIRED}: If process.roles contains just the 'broker' role, the node id {node} must not "
                f"be included in the set of voters controller.quorum.voters={shown}"
            )
        if not names.controllers:
            yield (
                f"{_REQUIRED}: controller.listener.names must contain at least one value when running KRaft "
                "with just the broker role"
            )
        if own & set(names.controllers):
            yield (
                f"{_REQUIRED}: controller.listener.names must not contain a value appearing in the "
                "'listeners' configuration when running KRaft with just the broker role"
            )
        for name in names.controllers:
            if name.upper() not in names.protocols:
                yield (
                    f"{_CONFIG_EXCEPTION}: Controller listener with name {name.upper()} defined in "
                    "controller.listener.names not found in listener.security.protocol.map  (an explicit "
                    "security mapping for each controller listener is required if "
                    "listener.security.protocol.map is non-empty, or if there are security protocols other "
                    "than PLAINTEXT in use)"
                )
        if values["controller.quorum.auto.join.enable"]:
            yield (
                f"{_REQUIRED}: controller.quorum.auto.join.enable is only supported when process.roles "
                "contains the 'controller' role."
            )
        return
    if roles == {"controller"} and len(own - set(names.controllers)):
        yield (
            f"{_REQUIRED}: The listeners config must only contain KRaft controller listeners from "
            "controller.listener.names when process.roles=controller"
        )
    if voters and node not in voters:
        yield (
            f"{_REQUIRED}: If process.roles contains the 'controller' role, the node id {node} must be "
            f"included in the set of voters controller.quorum.voters={shown}"
        )
    where = "appearing in the 'listeners' configuration when running the KRaft controller role"
    if not own & set(names.controllers):
        yield f"{_REQUIRED}: controller.listener.names must contain at least one value {where}"
    if not set(names.controllers) <= own:
        yield f"{_REQUIRED}: controller.listener.names must only contain values {where}"


def _broker_rules(
    given: Mapping[str, str],
    values: Mapping[str, Any],
    names: _Listeners,
    listeners: list[tuple[str, str, int]],
    of_brokers: list[tuple[str, str, int]],
) -> Iterator[str]:
    advertised = dict.fromkeys(name for name, _, _ in of_brokers)
    if not advertised:
        yield (
            f"{_REQUIRED}: There must be at least one broker advertised listener. Perhaps all listeners "
            "appear in controller.listener.names?"
        )
    name = values["inter.broker.listener.name"]
    if name is not None and "security.inter.broker.protocol" in given:
        yield (
            f"{_CONFIG_EXCEPTION}: Only one of inter.broker.listener.name and security.inter.broker.protocol "
            "should be set."
        )
    if name is not None and name.upper() not in names.protocols:
        yield (
            f"{_CONFIG_EXCEPTION}: Listener with name {name.upper()} defined in inter.broker.listener.name "
            "not found in listener.security.protocol.map."
        )
    between = name.upper() if name is not None else values["security.inter.broker.protocol"]
    if between not in advertised:
        yield (
            f"{_REQUIRED}: inter.broker.listener.name must be a listener name defined in "
            "advertised.listeners. The valid options based on currently configured listeners are "
            f"{','.join(advertised)}"
        )
    own = dict.fromkeys(name for name, _, _ in listeners)
    if not set(advertised) <= set(own):
        yield (
            f"{_REQUIRED}: advertised.listeners listener names must be equal to or a subset of the ones "
            f"defined in listeners. Found {','.join(advertised)}. The valid options based on the current "
            f"configuration are {','.join(own)}"
        )
