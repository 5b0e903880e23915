"""Rules of brokers' dynamic configurations (KIP-226), of a client metrics subscription (KIP-714), of a group
(KIP-848, KIP-932, KIP-1071) and of cordoned log directories (KIP-1066).

Each value has already been checked by itself. These are the additional rules of Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from re import _parser  # type: ignore[attr-defined]

from quorate.config.broker_defs import BROKER_CONFIGS
from quorate.config.cordoned_dirs import CORDONED_LOG_DIRS, cordoned_entries
from quorate.config.dynamic_configs import contradiction, refusal_reason, valid_values
from quorate.metadata.features import FIRST_CORDONED_DIRECTORIES, LEVELS
from quorate.protocol.errors import ErrorCode, KafkaError

_MATCHED = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
_INTERVAL_MS = (100, 3_600_000)

_RANGES = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.assignment.interval.ms",
)
"""Keys of a group. Two broker keys give the smallest and the largest value of each."""
_LARGEST = (
    ("streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    ("streams.num.warmup.replicas", "group.streams.max.warmup.replicas"),
)
_SMALLEST = (("streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms"),)
"""Keys of a group, and the broker key for the largest or smallest value."""
_RACK_TAGS = "streams.rack.aware.assignment.tags"
_DLQ_TOPIC = "errors.deadletterqueue.topic.name"


def check_broker(
    values: Mapping[str, str], stored: Mapping[str, str], *, per_broker: bool, acts_here: bool
) -> None:
    """Checks the dynamic configurations of a node, or the defaults of all nodes, that no broker has checked.
    `acts_here` means that no node of Apache Kafka would apply them.

    Raises INVALID_CONFIG. A controller of Apache Kafka stores what its nodes ignore later.
    """

    def consistency() -> str | None:
        before, after = (valid_values(some, per_broker=per_broker) for some in (stored, values))
        return contradiction(before, after)

    reason = refusal_reason(values, stored, consistency, per_broker=per_broker, acts_here=acts_here)
    if reason is not None:
        raise _invalid(reason)


def check_client_metrics(values: Mapping[str, str]) -> None:
    """Raises INVALID_REQUEST for an interval out of range, and INVALID_CONFIG for an invalid pattern or
    an unknown client property."""
    interval = values.get("interval.ms")
    low, high = _INTERVAL_MS
    if interval is not None and not low <= int(interval) <= high:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval} for interval.ms, interval must be between {low} and {high} (1 hour)",
        )
    for pattern in values.get("match", "").split(","):
        if not pattern.strip():
            continue
        name, _, expression = pattern.partition("=")
        if (
            name.strip() not in _MATCHED
            or not expression
            or "=" in expression
            or not _is_pattern(expression.strip())
        ):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern.strip()}")


def _is_pattern(expression: str) -> bool:
    """Whether the text is a regular expression. Java's and Python's notations differ only in rare cases.

    The text is parsed but not compiled. Parsing takes time in proportion to its length. Compilation
    expands a case-insensitive character set one character at a time, which could take minutes for a long
    value.
    """
    try:
        _parser.parse(expression)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def check_cordoned_dirs(
    metadata_version: int, current: str | None, value: str | None, forwarded: bool
) -> None:
    """Raises INVALID_CONFIG for a change of cordoned.log.dirs that this metadata.version does not support.

    A broker checks the paths. A controller does not know them, so a request that no broker has forwarded
    can only remove entries (KIP-1066).
    """
    if metadata_version < FIRST_CORDONED_DIRECTORIES:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"The {CORDONED_LOG_DIRS} configuration value cannot be set because it requires metadata.version "
            f">= {LEVELS[FIRST_CORDONED_DIRECTORIES]}",
        )
    if forwarded or not value:
        return
    if not set(cordoned_entries(value)) <= set(cordoned_entries(current or "")):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"When updating {CORDONED_LOG_DIRS} via controllers,  the new value must be a subset of the "
            "current configuration value.",
        )


def check_group(values: Mapping[str, str], static: Mapping[str, str]) -> None:
    """Checks that the keys of a group are within the limits of the node's properties. A key that is not
    among `values` is not checked. Raises INVALID_CONFIG. (Kafka's GroupConfig.validate.)"""

    def broker(key: str) -> int:
        return int(static.get(key, BROKER_CONFIGS[key].default or "0"))

    def effective(key: str) -> int:
        return int(values[key]) if key in values else broker(f"group.{key}")

    tags = [tag.strip() for tag in values.get(_RACK_TAGS, "").split(",")]
    if len(set(tags)) != len(tags):
        raise _invalid(f"{_RACK_TAGS} must not contain duplicate tag keys.")
    for key in _RANGES:
        if key in values:
            kind, _, limited = key.partition(".")
            least = broker(f"group.{kind}.min.{limited}")
            greatest = broker(f"group.{kind}.max.{limited}")
            if not least <= int(values[key]) <= greatest:
                raise _invalid(f"{key} must be in the range {least} to {greatest} inclusive.")
    for key, limit in _LARGEST:
        if key in values and int(values[key]) > broker(limit):
            raise _invalid(f"{key} must be less than or equal to {broker(limit)}")
    for key, limit in _SMALLEST:
        if key in values and int(values[key]) < broker(limit):
            raise _invalid(f"{key} must be greater than or equal to {broker(limit)}")
    if (assignor := values.get("streams.assignor.name")) is not None:
        known = static.get("group.streams.assignors", BROKER_CONFIGS["group.streams.assignors"].default)
        names = [name.strip() for name in (known or "").split(",")]
        if assignor not in names:
            raise _invalid(
                f"streams.assignor.name '{assignor}' is not a registered task assignor. Registered assignors "
                f"are: [{', '.join(names)}]."
            )
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if (session in values or heartbeat in values) and effective(session) <= effective(heartbeat):
            raise _invalid(f"{session} must be greater than {heartbeat}")
    if values.get(_DLQ_TOPIC, "").startswith("__"):
        raise _invalid(f"{_DLQ_TOPIC}: DLQ topic name must not start with '__'")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
