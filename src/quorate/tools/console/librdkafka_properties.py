"""Translates the properties of Kafka's Java clients to those of librdkafka.

Most properties have the same name in both. This module translates the others, and sets the defaults of Java's
clients where librdkafka has other ones. An unknown property is passed on unchanged: librdkafka rejects it by
name, and `librdkafka_client` warns about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path

from quorate.dataclass import dataclass
from quorate.security.jaas import parse_jaas
from quorate.tools.command_line import ToolError

METADATA_MAX_AGE_MS = 10_000
"""The interval at which topics are checked for new partitions. Java's clients wait 5 minutes, in which a user
would miss records.
"""

COMMON_DEFAULTS = {
    "topic.metadata.refresh.interval.ms": str(METADATA_MAX_AGE_MS),
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "1000",  # librdkafka's 10 s is longer than a node takes to restart
    "log_level": "0",  # errors are reported by the error callback
}

PRODUCER_DEFAULTS = COMMON_DEFAULTS | {
    "partitioner": "murmur2_random",  # keys go to the partitions that Java's producer chooses
    "message.timeout.ms": "120000",
    "message.max.bytes": "1048576",
    "batch.size": "16384",
    "linger.ms": "5",
    "queue.buffering.max.kbytes": "32768",
}

CONSUMER_DEFAULTS = COMMON_DEFAULTS | {
    "isolation.level": "read_uncommitted",
    "check.crcs": "true",
    "allow.auto.create.topics": "true",
    "fetch.error.backoff.ms": "100",
    "fetch.queue.backoff.ms": "50",  # reads on soon after a full queue has room again
}

_RENAMED = {
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "max.request.size": "message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}

_WITHOUT_EFFECT = frozenset(
    {
        "key.serializer", "value.serializer", "key.deserializer", "value.deserializer",  # bytes only
        "metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
        "auto.include.jmx.reporter", "metadata.max.idle.ms", "socket.connection.setup.timeout.max.ms",
        "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
        "compression.gzip.level", "compression.lz4.level", "compression.zstd.level",  # see compression.type
        "ssl.keystore.type", "ssl.truststore.type", "ssl.truststore.password",  # see the locations
    }
)  # fmt: skip
"""Properties without an effect on what the tools send or print, and those that the translation of another
property reads.
"""


@dataclass(slots=True)
class Translation:
    """Settings of librdkafka, and the name by which the user gave each of them."""

    settings: dict[str, str]
    given: dict[str, str] = field(default_factory=dict)

    def set(self, name: str, value: str, given: str) -> None:
        self.settings.pop(name, None)  # librdkafka takes the last of two aliases
        self.settings[name] = value
        self.given[name] = given


def for_producer(properties: Mapping[str, str]) -> Translation:
    """Translates the properties of a producer. Raises ToolError for a property that librdkafka cannot honour
    and that must not be ignored.
    """
    found = Translation(dict(PRODUCER_DEFAULTS))
    idempotence = properties.get("enable.idempotence", "").strip().lower()
    acks = properties.get("acks", "all").strip().lower()
    if acks not in ("all", "-1", "0", "1"):
        raise ToolError(f"Invalid value {acks} for configuration acks: String must be one of: all, -1, 0, 1")
    if idempotence == "true" and acks not in ("all", "-1"):
        raise ToolError("Must set acks to all in order to use the idempotent producer.")
    if not idempotence:
        # As in Java's ProducerConfig, the default changes if other settings exclude it.
        possible = acks in ("all", "-1") and number(properties, "retries", 1) > 0
        possible = possible and number(properties, "max.in.flight.requests.per.connection", 5) <= 5
        found.settings["enable.idempotence"] = str(possible).lower()
    _translate(properties, found, _PRODUCER)
    return found


def for_consumer(properties: Mapping[str, str]) -> Translation:
    """Translates the properties of a consumer. Raises ToolError for a property that librdkafka cannot honour
    and that must not be ignored.
    """
    found = Translation(dict(CONSUMER_DEFAULTS))
    _translate(properties, found, _CONSUMER)
    return found


def number(properties: Mapping[str, str], name: str, default: int) -> int:
    """Returns the value of a property. Raises ToolError, with Kafka's message, if it is not a number."""
    text = properties.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise ToolError(f"Invalid value {text} for configuration {name}: Not a number of type INT") from None


def flag(properties: Mapping[str, str], name: str, default: bool) -> bool:
    """Returns the value of a property. Raises ToolError, with Kafka's message, if it is not true or false."""
    text = properties.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ToolError(
            f"Invalid value {text} for configuration {name}: Expected value to be either true or false"
        )
    return text == "true"


# -- single properties
# --------------------------------------------------------------------------------------------------

_Rule = Callable[[Mapping[str, str], Translation], None]


def _translate(properties: Mapping[str, str], found: Translation, rules: Mapping[str, _Rule]) -> None:
    for name, text in properties.items():
        rule = rules.get(name)
        if rule is not None:
            rule(properties, found)
        elif name not in _WITHOUT_EFFECT:
            found.set(_RENAMED.get(name, name), text.strip(), name)


def _metadata_max_age(properties: Mapping[str, str], found: Translation) -> None:
    age_ms = number(properties, "metadata.max.age.ms", METADATA_MAX_AGE_MS)
    found.set(
        "topic.metadata.refresh.interval.ms", str(min(max(age_ms, 1), 3_600_000)), "metadata.max.age.ms"
    )


def _request_timeout(properties: Mapping[str, str], found: Translation) -> None:
    # Java's clients wait this long for an answer. librdkafka calls that socket.timeout.ms.
    timeout_ms = number(properties, "request.timeout.ms", 30_000)
    found.set("socket.timeout.ms", str(min(max(timeout_ms, 10), 300_000)), "request.timeout.ms")


def _produce_timeout(properties: Mapping[str, str], found: Translation) -> None:
    _request_timeout(properties, found)
    timeout_ms = number(properties, "request.timeout.ms", 30_000)
    found.set("request.timeout.ms", str(min(max(timeout_ms, 1), 900_000)), "request.timeout.ms")


def _default_or(name: str, replacement: str) -> _Rule:
    """Returns a rule that replaces -1, by which Java's clients mean the default of the system."""

    def rule(properties: Mapping[str, str], found: Translation) -> None:
        text = properties[name].strip()
        found.set(_RENAMED.get(name, name), replacement if text == "-1" else text, name)

    return rule


def _buffer_memory(properties: Mapping[str, str], found: Translation) -> None:
    kbytes = max(1, number(properties, "buffer.memory", 32 << 20) // 1024)
    found.set("queue.buffering.max.kbytes", str(min(kbytes, 2**31 - 1)), "buffer.memory")


def _batch_size(properties: Mapping[str, str], found: Translation) -> None:
    found.set("batch.size", str(max(1, number(properties, "batch.size", 16_384))), "batch.size")


def _compression(properties: Mapping[str, str], found: Translation) -> None:
    codec = properties["compression.type"].strip().lower()
    if codec not in ("none", "gzip", "snappy", "lz4", "zstd"):
        raise ToolError(f"Unknown compression name: {properties['compression.type']}")
    found.set("compression.type", codec, "compression.type")
    level = f"compression.{codec}.level"
    if level in properties:
        found.set("compression.level", properties[level].strip(), level)


def _partitioner(properties: Mapping[str, str], found: Translation) -> None:
    name = properties["partitioner.class"].strip()
    if name.rpartition(".")[2] not in ("", "DefaultPartitioner"):
        raise ToolError(
            f"Invalid value {name} for configuration partitioner.class: Java's classes cannot be used; "
            "set librdkafka's partitioner instead (random, consistent, murmur2_random, ...)."
        )


def _ignore_keys(properties: Mapping[str, str], found: Translation) -> None:
    if flag(properties, "partitioner.ignore.keys", False):
        found.set("partitioner", "random", "partitioner.ignore.keys")


def _transactional(properties: Mapping[str, str], found: Translation) -> None:
    raise ToolError("transactional.id cannot be used here: the console producer runs no transactions.")


def _offset_reset(properties: Mapping[str, str], found: Translation) -> None:
    reset = properties["auto.offset.reset"].strip().lower()
    if reset not in ("earliest", "latest", "none"):
        raise ToolError(
            f"Invalid value {reset} for configuration auto.offset.reset: it is earliest, latest or none"
        )
    found.set("auto.offset.reset", "error" if reset == "none" else reset, "auto.offset.reset")


_ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def _assignors(properties: Mapping[str, str], found: Translation) -> None:
    given = [name.strip() for name in properties["partition.assignment.strategy"].split(",") if name.strip()]
    names = [_ASSIGNORS.get(name.rpartition(".")[2], name) for name in given]
    if len(names) > 1 and "cooperative-sticky" in names:
        # Java moves a group from one protocol to the other by naming both; librdkafka takes assignors
        # of one kind only.
        names.remove("cooperative-sticky")
    found.set("partition.assignment.strategy", ",".join(names), "partition.assignment.strategy")


# -- security
# --------------------------------------------------------------------------------------------------


def _jaas(properties: Mapping[str, str], found: Translation) -> None:
    try:
        module, options = parse_jaas(properties["sasl.jaas.config"])
    except ValueError as error:
        raise ToolError(str(error)) from error
    origin = "sasl.jaas.config"
    match module:
        case "PlainLoginModule" | "ScramLoginModule":
            for name in ("username", "password"):
                if name not in options:
                    raise ToolError(
                        f"Invalid value for configuration sasl.jaas.config: {module} needs {name}."
                    )
                found.set(f"sasl.{name}", options[name], origin)
        case "OAuthBearerLoginModule" if "sasl.oauthbearer.token.endpoint.url" in properties:
            found.set("sasl.oauthbearer.method", "oidc", origin)
            for option, name in (
                ("clientId", "client.id"),
                ("clientSecret", "client.secret"),
                ("scope", "scope"),
            ):
                if option in options:
                    found.set(f"sasl.oauthbearer.{name}", options[option], origin)
        case _:
            raise ToolError(
                f"Invalid value for configuration sasl.jaas.config: {module} cannot be used here; "
                "PlainLoginModule, ScramLoginModule and OAuthBearerLoginModule with "
                "sasl.oauthbearer.token.endpoint.url can."
            )


def _login_handler(properties: Mapping[str, str], found: Translation) -> None:
    name = properties["sasl.login.callback.handler.class"].strip()
    if name.rpartition(".")[2] != "OAuthBearerLoginCallbackHandler":
        raise ToolError(
            f"Invalid value {name} for configuration sasl.login.callback.handler.class: Java's classes "
            "cannot be used."
        )


def _truststore(properties: Mapping[str, str], found: Translation) -> None:
    location = properties["ssl.truststore.location"].strip()
    if not _is_pem(location, properties.get("ssl.truststore.type")):
        raise ToolError(
            f"ssl.truststore.location={location} is not a PEM file, and no other trust store can be read "
            "here. Convert it "
            "(keytool -list -rfc -keystore STORE > ca.pem) and set ssl.truststore.type=PEM."
        )
    found.set("ssl.ca.location", location, "ssl.truststore.location")


def _keystore(properties: Mapping[str, str], found: Translation) -> None:
    location = properties["ssl.keystore.location"].strip()
    kind = properties.get("ssl.keystore.type")
    if _is_pem(location, kind):
        found.set("ssl.certificate.location", location, "ssl.keystore.location")
        found.set("ssl.key.location", location, "ssl.keystore.location")
        return
    if (kind or "").strip().upper() == "JKS" or _begins_with(location, b"\xfe\xed\xfe\xed"):
        raise ToolError(
            f"ssl.keystore.location={location} is a JKS key store, which cannot be read here. Convert it to "
            "PKCS#12 "
            "(keytool -importkeystore -srckeystore STORE -destkeystore client.p12 -deststoretype PKCS12)."
        )
    found.set("ssl.keystore.location", location, "ssl.keystore.location")


def _endpoint_identification(properties: Mapping[str, str], found: Translation) -> None:
    name = "ssl.endpoint.identification.algorithm"
    found.set(name, properties[name].strip().lower() or "none", name)


def _is_pem(location: str, kind: str | None) -> bool:
    return (kind or "").strip().upper() == "PEM" or _begins_with(location, b"-----BEGIN")


def _begins_with(location: str, head: bytes) -> bool:
    try:
        with Path(location).open("rb") as f:
            return f.read(len(head)) == head
    except OSError as error:
        raise ToolError(f"Cannot read {location}: {error.strerror}") from error


_COMMON: dict[str, _Rule] = {
    "metadata.max.age.ms": _metadata_max_age,
    "request.timeout.ms": _request_timeout,
    "send.buffer.bytes": _default_or("send.buffer.bytes", "0"),
    "receive.buffer.bytes": _default_or("receive.buffer.bytes", "0"),
    "connections.max.idle.ms": _default_or("connections.max.idle.ms", "0"),
    "sasl.jaas.config": _jaas,
    "sasl.login.callback.handler.class": _login_handler,
    "ssl.truststore.location": _truststore,
    "ssl.keystore.location": _keystore,
    "ssl.endpoint.identification.algorithm": _endpoint_identification,
}
_PRODUCER: dict[str, _Rule] = _COMMON | {
    "request.timeout.ms": _produce_timeout,
    "buffer.memory": _buffer_memory,
    "batch.size": _batch_size,
    "compression.type": _compression,
    "partitioner.class": _partitioner,
    "partitioner.ignore.keys": _ignore_keys,
    "transactional.id": _transactional,
}
_CONSUMER: dict[str, _Rule] = _COMMON | {
    "auto.offset.reset": _offset_reset,
    "partition.assignment.strategy": _assignors,
}
