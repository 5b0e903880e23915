"""Levels of this process's loggers under Kafka's names (KIP-412): shown and changed while it runs, gone
with it."""

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
    """Logger name -> effective level."""
    names = sorted(name for name in logging.root.manager.loggerDict if name.startswith("quorate"))
    levels = {ROOT: _level_name(logging.root.getEffectiveLevel())}
    for name in names:
        levels[name] = _level_name(logging.getLogger(name).getEffectiveLevel())
    return levels


def check_change(logger: str, operation: int, level: str | None) -> None:
    """Raises INVALID_CONFIG, INVALID_REQUEST when a change is not possible."""
    if operation not in (SET, DELETE):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Operation {operation} is not allowed for the BROKER_LOGGER resource"
        )
    if logger not in logger_levels():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {logger} does not exist!")
    if operation == SET and level not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {logger} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}",
        )
    if operation == DELETE and logger == ROOT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
        )


def change(logger: str, operation: int, level: str | None) -> None:
    """Applies a checked change; DELETE makes the logger inherit again."""
    target = logging.root if logger == ROOT else logging.getLogger(logger)
    target.setLevel(LEVELS[level] if operation == SET and level is not None else logging.NOTSET)
