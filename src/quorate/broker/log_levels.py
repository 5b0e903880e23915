"""Reads and changes the levels of this process's loggers, with Kafka's names (KIP-412). Changes are not
persistent."""

from __future__ import annotations

import logging

from quorate.protocol.errors import ErrorCode, KafkaError

LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
ROOT = "root"
SET, DELETE = 0, 1


def _level_name(level: int) -> str:
    for name, number in LEVELS.items():
        if level >= number:
            return name
    return "TRACE"


def logger_levels() -> dict[str, str]:
    """The effective level of each logger, by name."""
    names = sorted(name for name in logging.root.manager.loggerDict if name.startswith("quorate"))
    levels = {ROOT: _level_name(logging.root.getEffectiveLevel())}
    for name in names:
        levels[name] = _level_name(logging.getLogger(name).getEffectiveLevel())
    return levels


def check_change(name: str, operation: int, level: str | None) -> None:
    """Checks a change. Raises INVALID_CONFIG, INVALID_REQUEST."""
    if operation not in (SET, DELETE):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Operation {operation} is not allowed for the BROKER_LOGGER resource"
        )
    if name not in logger_levels():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == SET and level not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}",
        )
    if operation == DELETE and name == ROOT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
        )


def change(name: str, operation: int, level: str | None) -> None:
    """Applies a checked change. After DELETE the logger inherits its level."""
    target = logging.root if name == ROOT else logging.getLogger(name)
    target.setLevel(LEVELS[level] if operation == SET and level is not None else logging.NOTSET)
