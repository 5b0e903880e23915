"""Reads and changes the levels of this process's loggers, with Kafka's names (KIP-412). Changes are not
persistent. A broker and a controller that share a process share its loggers, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from quorate.protocol.config_resource import altered_node_id, check_described_node
from quorate.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

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
_NOT_ALLOWED = {2: "APPEND operation", 3: "SUBTRACT operation"}


class LevelChange(Protocol):
    """A change of one logger in an IncrementalAlterConfigs request."""

    @property
    def name(self) -> str: ...
    @property
    def config_operation(self) -> int: ...
    @property
    def value(self) -> str | None: ...


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


def levels_of_node(node_id: int, name: str, wanted: Iterable[str] | None = None) -> dict[str, str]:
    """The levels that a DescribeConfigs request asks for: those of the `wanted` loggers, or of all.

    `name` is the id of the node in the request. Raises INVALID_REQUEST if it is not this node's.
    """
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    check_described_node(name, node_id, str(node_id))
    levels = logger_levels()
    return levels if wanted is None else {name: level for name, level in levels.items() if name in wanted}


def change_levels(
    node_id: int, name: str, changes: Sequence[LevelChange], *, validate_only: bool = False
) -> None:
    """Makes the changes of one resource, all or none. `name` is the id of the node in the request.

    Raises INVALID_REQUEST or INVALID_CONFIG, with the texts of Kafka's RuntimeLoggerManager.
    """
    received = altered_node_id(name)
    if received != node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {received}"
        )
    for change in changes:
        _check(change.name, change.config_operation, change.value)
    if not validate_only:
        for change in changes:
            _apply(change.name, change.config_operation, change.value)


def _check(name: str, operation: int, level: str | None) -> None:
    if operation not in (SET, DELETE):
        what = _NOT_ALLOWED.get(operation, f"Unknown operation type {operation}")
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} is not allowed for the BROKER_LOGGER resource")
    if name not in logger_levels():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == SET and level not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}",
        )
    if operation == DELETE and name == ROOT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
        )


def _apply(name: str, operation: int, level: str | None) -> None:
    """Sets the level of a logger. After DELETE the logger inherits its level."""
    target = logging.root if name == ROOT else logging.getLogger(name)
    if operation == SET and level is not None:
        target.setLevel(LEVELS[level])
        logger.warning("Updated the log level of %s to %s", name, level)
    else:
        target.setLevel(logging.NOTSET)
        logger.warning("Unset the log level of %s", name)
