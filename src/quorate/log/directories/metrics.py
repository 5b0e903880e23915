"""The metrics of the log directories, with the names of Kafka's LogManager (cordoned ones: KIP-1066)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.metrics import Family, gauge, histogram, labels

if TYPE_CHECKING:
    from quorate.log.directories.manager import LogManager


def directory_families(logs: LogManager, opened: Mapping[Path, tuple[int, int]]) -> Iterator[Family]:
    """The metrics of `kafka.log:type=LogManager`. A directory is named by its absolute path. `opened` has the
    number of its logs that were opened at the start, and of all that there are."""
    group = "log.LogManager"
    offline = [(labels(logDirectory=path.absolute()), not logs.is_online(path)) for path in logs.dirs]
    cordoned = [(labels(logDirectory=path.absolute()), path in logs.cordoned) for path in logs.dirs]
    count = sum(failed for _, failed in offline)
    yield gauge(f"{group}.OfflineLogDirectoryCount", "Log directories that failed.", count)
    yield gauge(
        f"{group}.CordonedLogDirectoryCount", "Log directories that get no new replicas.", len(logs.cordoned)
    )
    yield gauge(f"{group}.LogDirectoryOffline", "Whether the log directory failed.", offline)
    yield gauge(f"{group}.LogDirectoryCordoned", "Whether the log directory gets no new replicas.", cordoned)
    remaining = [(path, found - done) for path in logs.dirs for done, found in [opened.get(path, (0, 0))]]
    yield gauge(
        f"{group}.remainingLogsToRecover",
        "Logs that are still to be opened at the start.",
        [(labels(dir=path.absolute()), left) for path, left in remaining],
    )
    yield histogram(
        "log.LogFlushStats.LogFlushRateAndTimeMs",
        "Time that the flush of a log takes, in ms.",
        [("", logs.scheduler.flush_times.quantiles())],
    )
