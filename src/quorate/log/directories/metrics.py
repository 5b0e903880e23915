"""The metrics of the log directories, with the names of Kafka's LogManager (cordoned ones: KIP-1066)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from quorate.log.directories.manager import LogManager


class Metric(NamedTuple):
    """A number, or a number for each log directory."""

    name: str
    help: str
    value: float | Mapping[str, float]
    label: str = ""
    states: tuple[str, ...] = ()


def directory_metrics(logs: LogManager) -> list[Metric]:
    """The metrics of `kafka.log:type=LogManager`. A directory is named by its absolute path."""
    offline = {str(path.absolute()): float(not logs.is_online(path)) for path in logs.dirs}
    cordoned = {str(path.absolute()): float(path in logs.cordoned) for path in logs.dirs}
    return [
        Metric("OfflineLogDirectoryCount", "Log directories that failed.", sum(offline.values())),
        Metric("CordonedLogDirectoryCount", "Log directories that get no new replicas.", len(logs.cordoned)),
        Metric("LogDirectoryOffline", "Whether the log directory failed.", offline, "logDirectory"),
        Metric(
            "LogDirectoryCordoned",
            "Whether the log directory gets no new replicas.",
            cordoned,
            "logDirectory",
        ),
    ]
