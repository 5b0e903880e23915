"""Log output: Kafka's one-line layout on standard output, the level by flag or environment."""

from __future__ import annotations

import logging
import os
import sys
from typing import TextIO

ENVIRONMENT = "QUORATE_LOG_LEVEL"
LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 1,
}
_LAYOUT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"


def parse_level(text: str) -> int:
    """A level by Kafka's name. Raises ValueError naming the choices."""
    level = LEVELS.get(text.strip().upper())
    if level is None:
        raise ValueError(f"{text!r} is no log level; choose among {', '.join(LEVELS)}")
    return level


def set_up(level: str | None = None, stream: TextIO | None = None, prefix: str = "") -> None:
    """Configures the root logger. `level` wins over the environment; `NAME=LEVEL,...` sets single loggers.

    Raises ValueError.
    """
    text = level or os.environ.get(ENVIRONMENT) or "INFO"
    root_level = logging.INFO
    own: dict[str, int] = {}
    for part in (p for p in text.split(",") if p.strip()):
        name, equals, value = part.partition("=")
        if equals:
            own[name.strip()] = parse_level(value)
        else:
            root_level = parse_level(part)
    logging.addLevelName(logging.WARNING, "WARN")
    logging.addLevelName(logging.CRITICAL, "FATAL")
    handler = logging.StreamHandler(stream or sys.stdout)
    handler.setFormatter(logging.Formatter(prefix + _LAYOUT))
    for unused in ("logThreads", "logProcesses", "logMultiprocessing", "logAsyncioTasks"):
        setattr(logging, unused, False)  # looked up for every record, and not in the layout
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(root_level)
    logging.getLogger("asyncio").setLevel(max(root_level, logging.WARNING))
    for name, number in own.items():
        logging.getLogger(name).setLevel(number)
