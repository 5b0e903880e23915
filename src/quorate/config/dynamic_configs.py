"""The rules of dynamic broker configurations (`DynamicBrokerConfig` in Kafka, KIP-226).

A node applies a dynamic configuration while it runs, or refuses it with the reason. A controller of Apache
Kafka stores any value, so that a node may find values in the metadata that it cannot apply. It ignores them
with a warning, as Apache Kafka does.

The order of precedence is: the node's own value, the default of all nodes, the properties file, the default
of the key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from quorate.config.broker_defs import BROKER_CONFIGS, DYNAMIC_BROKER_CONFIGS
from quorate.config.cordoned_dirs import CORDONED_LOG_DIRS
from quorate.config.definitions import ConfigDef, ConfigError, Scope
from quorate.config.kafka_config import KafkaConfig
from quorate.config.listeners import OF_LISTENERS, base_key, listener_key
from quorate.config.without_effect import no_effect_of
from quorate.lazy import lazy_module

if TYPE_CHECKING:
    from quorate.config import unknown_keys
else:
    unknown_keys = lazy_module("quorate.config.unknown_keys")

logger = logging.getLogger(__name__)

LOGS, PRODUCERS, LISTENERS, THROTTLES, DIRECTORIES, RECOVERY = (
    "logs of topics without a value of their own",
    "producer ids of all logs",
    "connections that are opened from now on",
    "replication and copies between log directories",
    "placement of new replicas",
    "the next start after an unclean stop",
)

_APPLIED = {
    LOGS: """
        compression.gzip.level compression.lz4.level compression.type compression.zstd.level
        log.cleanup.policy log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes
        log.index.size.max.bytes log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms
        log.message.timestamp.type log.retention.bytes log.retention.ms log.roll.jitter.ms log.roll.ms
        log.segment.bytes log.segment.delete.delay.ms max.decompressed.message.bytes message.max.bytes
        min.insync.replicas unclean.leader.election.enable
        """,
    PRODUCERS: "producer.id.expiration.ms",
    LISTENERS: """
        max.connection.creation.rate max.connections max.connections.per.ip max.connections.per.ip.overrides
        """,
    THROTTLES: """
        follower.replication.throttled.rate leader.replication.throttled.rate
        replica.alter.log.dirs.io.max.bytes.per.second
        """,
    DIRECTORIES: "cordoned.log.dirs",
    RECOVERY: "num.recovery.threads.per.data.dir",
}

APPLIED_LIVE: Mapping[str, str] = {key: what for what, keys in _APPLIED.items() for key in keys.split()}
"""Key -> where a change of it acts while the node runs. Every other key is refused."""

APPLIED_AT_START: Mapping[str, str] = dict.fromkeys(
    ("listener.security.protocol.map", "listeners"),
    "Listeners are opened when a node starts; set them in its properties file and restart it, "
    "these cannot be changed dynamically",
)
"""Key -> the error for a change of it. These keys are dynamic in Kafka."""

_FOR_ALL_BROKERS = OF_LISTENERS | {"num.network.threads"}
"""Keys of a listener that may be set for all brokers. The others may be set for one broker only."""
_PER_LISTENER = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""Keys that can be changed for single listeners only (SslConfigs.RECONFIGURABLE_CONFIGS)."""

_ALIASES = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)


def broker_aliases(name: str) -> tuple[str, ...]:
    """The broker keys with the same meaning as this one, in the order of precedence. A key of one listener
    is followed by the key for all listeners."""
    if name == "log.flush.interval.ms":
        return ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
    for aliases in _ALIASES:
        if name in aliases:
            return aliases
    of_listener = listener_key(name)
    return (name,) if of_listener is None else (name, base_key(of_listener.key))


def broker_definition(name: str) -> ConfigDef | None:
    """The definition of a key of brokers, of one listener too, or None."""
    definition = BROKER_CONFIGS.get(name) or DYNAMIC_BROKER_CONFIGS.get(name)
    if definition is None and (of_listener := listener_key(name)) is not None:
        return BROKER_CONFIGS.get(base_key(of_listener.key))
    return definition


def is_sensitive(name: str) -> bool:
    """Whether the value of a key must not be shown, like a password, also if it is of one listener."""
    definition = broker_definition(name)
    return definition is not None and definition.sensitive


# -- the check of a change


def refusal_reason(
    values: Mapping[str, str],
    stored: Mapping[str, str],
    consistency: Callable[[], str | None],
    *,
    per_broker: bool,
    acts_here: bool = True,
    listeners: Iterable[str] | None = None,
) -> str | None:
    """The reason why the dynamic configurations of a node, or the defaults of all nodes, cannot become
    `values`.

    Values that are `stored` already may stay: a node of Apache Kafka in the same cluster may have set them.
    Every other value must be one that Kafka accepts, and one that has an effect unless `acts_here` is false,
    because only nodes of Kafka would apply it. `consistency` is asked last whether the values fit together.
    `listeners` are the names of the node's listeners, in lower case.
    """
    new = {name: value for name, value in values.items() if stored.get(name) != value}
    reason = rejection_reason(new, per_broker=per_broker)
    if reason is None and acts_here:
        reasons = (no_effect_reason(name, value, listeners=listeners) for name, value in new.items())
        reason = next((text for text in reasons if text is not None), None)
    return consistency() if reason is None else reason


# -- the rules of Apache Kafka


def rejection_reason(values: Mapping[str, str], *, per_broker: bool) -> str | None:
    """The reason why Apache Kafka refuses these values, in its words, or None. The order of the checks is
    that of DynamicBrokerConfig.validateConfigs."""
    if fixed := [name for name in values if _is_read_only(name)]:
        return _named("Cannot update these configs dynamically", fixed)
    if shared := [name for name in values if name in _PER_LISTENER]:
        text = "These security configs can be dynamically updated only per-listener using the listener prefix"
        return _named(text, shared)
    for name, value in values.items():
        of_listener = listener_key(name)
        definition = DYNAMIC_BROKER_CONFIGS.get(name if of_listener is None else of_listener.key)
        if definition is not None:
            try:
                definition.validate(value)
            except ConfigError as error:
                return str(error)
    if not per_broker and (single := [name for name in values if _is_per_broker(name)]):
        text = "Cannot update these configs at default cluster level, broker id must be specified"
        return _named(text, single)
    return None


def _is_read_only(name: str) -> bool:
    definition = BROKER_CONFIGS.get(name)
    return definition is not None and definition.dynamic is Scope.READ_ONLY


def _is_per_broker(name: str) -> bool:
    of_listener = listener_key(name)
    if of_listener is not None:
        return of_listener.key not in _FOR_ALL_BROKERS
    definition = BROKER_CONFIGS.get(name)
    return definition is not None and definition.dynamic is Scope.PER_BROKER


Layers = Sequence[Mapping[str, str]]
"""Dynamic configurations. A later layer takes precedence over an earlier one."""


def inconsistency(static: Mapping[str, str], before: Layers, after: Layers) -> str | None:
    """The reason why a node with these properties cannot have the configurations `after` together, or None.
    A reason that existed before, too, does not count: the change may be a step to remove it."""
    reason = _inconsistency(static, after)
    return reason if reason is None or reason != _inconsistency(static, before) else None


def contradiction(before: Mapping[str, str], after: Mapping[str, str]) -> str | None:
    """The reason why no node can have the configurations `after` together, or None. For a controller, which
    does not know the properties of other nodes."""
    before, after = (
        {name: value for name, value in values.items() if name != CORDONED_LOG_DIRS}
        for values in (before, after)
    )
    return inconsistency(_SOME_NODE, [before], [after])


def _inconsistency(static: Mapping[str, str], layers: Layers) -> str | None:
    merged = {name: value for name, value in static.items() if name in BROKER_CONFIGS}
    for layer in layers:
        for name, value in layer.items():
            if name in BROKER_CONFIGS:
                for alias in broker_aliases(name):
                    merged.pop(alias, None)
                merged[name] = value
    try:
        KafkaConfig(merged)
    except ConfigError as error:
        return str(error)
    return None


_SOME_NODE = {
    "process.roles": "broker",
    "node.id": "0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
}


def _named(text: str, names: Iterable[str]) -> str:
    return f"{text}: [{', '.join(sorted(names))}]"


# -- what acts here


def no_effect_reason(name: str, value: str, *, listeners: Iterable[str] | None = None) -> str | None:
    """The reason why setting a key that Apache Kafka accepts would have no effect here, or None. `listeners`
    are the names of the node's listeners, in lower case."""
    if name in APPLIED_LIVE:
        return None
    if (text := APPLIED_AT_START.get(name)) is not None:
        return _named(text, [name])
    of_listener = listener_key(name)
    key = name if of_listener is None else of_listener.key
    if of_listener is not None and listeners is not None and of_listener.listener not in listeners:
        known = ", ".join(sorted(listeners))
        return _named(
            f"This broker has no listener {of_listener.listener!r}, its listeners are {known}", [name]
        )
    if (reason := no_effect_of(name)) is not None:
        definition = BROKER_CONFIGS.get(key)
        if definition is not None and _is_default(definition, value):
            return None
        return _named(f"Cannot change what has no effect on this broker ({reason})", [name])
    if of_listener is not None:
        return None
    hint = "".join(unknown.hint for unknown in unknown_keys.unknown_keys([name]))
    text = f"Cannot change what has no effect on this broker (no part of it reads this key){hint}"
    return _named(text, [name])


def _is_default(definition: ConfigDef, value: str) -> bool:
    try:
        return bool(definition.parse(value) == definition.default_value())
    except ConfigError:
        return False


class DynamicConfigs(NamedTuple):
    """The dynamic configurations that a node applies: its own, and the defaults of all nodes."""

    own: Mapping[str, str]
    default: Mapping[str, str]


NO_DYNAMIC_CONFIGS = DynamicConfigs({}, {})


class DynamicConfigFilter:
    """Removes the values that a node cannot apply. It keeps the last result, since configurations change
    seldom and are read often.

    With a `node_id` it warns about each key that has no effect, once.
    """

    __slots__ = ("_ignored", "_node_id", "_read", "_result")

    def __init__(self, node_id: int | None = None) -> None:
        self._node_id = node_id
        self._read = self._result = NO_DYNAMIC_CONFIGS
        self._ignored: set[str] = set()

    def applied(self, own: Mapping[str, str], default: Mapping[str, str]) -> DynamicConfigs:
        """The values among those of the metadata that the node applies. The result is the same object until
        they change."""
        if own is not self._read.own or default is not self._read.default:
            self._read = DynamicConfigs(own, default)
            self._result = DynamicConfigs(
                valid_values(own, per_broker=True), valid_values(default, per_broker=False)
            )
            if self._node_id is not None:
                self._warn(ignored_values(default, per_broker=False) | ignored_values(own, per_broker=True))
        return self._result

    def _warn(self, ignored: Mapping[str, str]) -> None:
        for name, reason in ignored.items():
            if name not in self._ignored:
                self._ignored.add(name)
                logger.warning("[DynamicConfig id=%d] Ignoring %s: %s", self._node_id, name, reason)


def effective_value(config: KafkaConfig, applied: DynamicConfigs, name: str) -> str | None:
    """The value of a key on a node, as text."""
    for layer in (applied.own, applied.default):
        if name in layer:
            return layer[name]
    try:
        return as_text(config.get(name))
    except KeyError:
        return config.originals.get(name)


def as_text(value: Any) -> str | None:
    """Formats a parsed value as Kafka does."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    if isinstance(value, float):
        return str(value).replace("e+", "E").replace("e", "E")
    return str(value)


def valid_values(values: Mapping[str, str], *, per_broker: bool) -> Mapping[str, str]:
    """The values that Apache Kafka would not ignore."""
    valid = {
        name: value
        for name, value in values.items()
        if rejection_reason({name: value}, per_broker=per_broker) is None
    }
    return values if len(valid) == len(values) else valid


def ignored_values(values: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    """The keys of these values that have no effect on this node, each with the reason."""
    ignored = {}
    for name, value in values.items():
        reason = rejection_reason({name: value}, per_broker=per_broker) or no_effect_reason(name, value)
        if reason is not None:
            ignored[name] = reason
    return ignored
