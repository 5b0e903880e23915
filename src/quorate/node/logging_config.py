"""Configures the log output: one line for each event, in the layout of Apache Kafka's log4j2.yaml."""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import TextIO

ENVIRONMENT = "QUORATE_LOG_LEVEL"
"""The environment variable that sets the level where no option does."""

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


class LineFormatter(logging.Formatter):
    """Formats a record that has `lines` as if each line had a record of its own."""

    def format(self, record: logging.LogRecord) -> str:
        lines: list[str] | None = getattr(record, "lines", None)
        if lines is None or len(lines) == 1:
            return super().format(record)
        record.asctime = self.formatTime(record)
        record.message = "\0"
        before, _, after = self.formatMessage(record).partition("\0")
        return "\n".join([f"{before}{line}{after}" for line in lines])


def parse_level(text: str) -> int:
    """Returns the level with this name of log4j. Raises ValueError, which names all levels."""
    level = LEVELS.get(text.strip().upper())
    if level is None:
        raise ValueError(f"{text!r} is no log level; choose among {', '.join(LEVELS)}")
    return level


def configure(level: str | None = None, stream: TextIO | None = None, prefix: str = "") -> None:
    """Configures the root logger to write to `stream`, or else to standard output.

    `level`, or else the environment variable, is a level, a list of NAME=LEVEL for single loggers, or
    both, separated by commas. Raises ValueError for an unknown level.
    """
    text = level or os.environ.get(ENVIRONMENT) or "INFO"
    root_level = logging.INFO
    levels: dict[str, int] = {}
    for part in (p for p in text.split(",") if p.strip()):
        name, equals, value = part.partition("=")
        if equals:
            levels[name.strip()] = parse_level(value)
        else:
            root_level = parse_level(part)
    logging.addLevelName(logging.WARNING, "WARN")
    logging.addLevelName(logging.CRITICAL, "FATAL")
    output = stream or sys.stdout
    if isinstance(output, io.TextIOWrapper):
        # The audit log writes many lines at once: a name that cannot be encoded would lose all of them.
        output.reconfigure(errors="backslashreplace")
    handler = logging.StreamHandler(output)
    handler.setFormatter(LineFormatter(prefix + _LAYOUT))
    for unused in ("logThreads", "logProcesses", "logMultiprocessing", "logAsyncioTasks"):
        setattr(
            logging, unused, False
        )  # the layout does not show these; to look them up would cost time for every record
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(root_level)
    logging.getLogger("asyncio").setLevel(max(root_level, logging.WARNING))
    for name, number in levels.items():
        logging.getLogger(name).setLevel(number)
