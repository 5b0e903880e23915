"""Rules of a client metrics subscription (KIP-714), of a group (KIP-848, KIP-932, KIP-1071) and of cordoned
log directories (KIP-1066).

Each value has already been checked by itself. These are the additional rules of Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from re import _parser  # type: ignore[attr-defined]

from quorate.config.broker_defs import BROKER_CONFIGS
from quorate.config.cordoned_dirs import CORDONED_LOG_DIRS, cordoned_entries
from quorate.config.group_defs import GROUP_CONFIGS
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

_BOUNDS = (
    ("consumer.heartbeat.interval.ms", "group.consumer.{}.heartbeat.interval.ms"),
    ("consumer.session.timeout.ms", "group.consumer.{}.session.timeout.ms"),
    ("share.heartbeat.interval.ms", "group.share.{}.heartbeat.interval.ms"),
    ("share.session.timeout.ms", "group.share.{}.session.timeout.ms"),
    ("share.record.lock.duration.ms", "group.share.{}.record.lock.duration.ms"),
    ("streams.heartbeat.interval.ms", "group.streams.{}.heartbeat.interval.ms"),
    ("streams.session.timeout.ms", "group.streams.{}.session.timeout.ms"),
    ("streams.num.standby.replicas", "group.streams.{}.standby.replicas"),
)
"""A key of a group, and the pattern of the broker keys for its smallest value, which may not exist, and
its largest value."""


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
    """Checks that the keys of a group, including defaults, are within the limits of the node's
    properties. Raises INVALID_CONFIG."""

    def own(key: str) -> int:
        return int(values.get(key, GROUP_CONFIGS[key].default or "0"))

    def bound(key: str) -> int:
        return int(static.get(key, BROKER_CONFIGS[key].default or "0"))

    for key, pattern in _BOUNDS:
        least, greatest = pattern.format("min"), pattern.format("max")
        if least in BROKER_CONFIGS and own(key) < bound(least):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} must be greater than or equal to {least}")
        if own(key) > bound(greatest):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} must be less than or equal to {greatest}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if own(session) <= own(heartbeat):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{session} must be greater than {heartbeat}")
