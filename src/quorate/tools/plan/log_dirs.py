"""The log directories of brokers: the bytes of replicas, and how many more a broker has room for.

A running cluster describes them, or a file with the output of `kafka-log-dirs --describe`. The file has no
bytes of volumes, so nothing is known about room then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from quorate.admin.client import AdminClient
from quorate.admin.types import LogDirDescription, ReplicaSize, TopicPartition
from quorate.planner.sizes import ReplicaSizes
from quorate.tools.command_line import ToolError

LogDirs = Mapping[int, list[LogDirDescription]]
"""The log directories of each broker that tells."""

_COMMAND = "kafka-log-dirs --describe --bootstrap-server HOST:PORT"


async def describe_log_dirs(admin: AdminClient, brokers: Iterable[int]) -> LogDirs:
    """Asks one broker after the other: a description may have many megabytes."""
    return {broker: (await admin.describe_log_dirs([broker]))[broker] for broker in brokers}


def read_log_dirs(path: str) -> LogDirs:
    """Reads the output of `kafka-log-dirs --describe`. Raises ToolError."""
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except OSError as error:
        raise ToolError(f"Cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ToolError(f"{path} is not the output of {_COMMAND}") from None
    try:
        (document,) = [json.loads(line) for line in lines if line.startswith("{")]
        found = {entry["broker"]: [_directory(d) for d in entry["logDirs"]] for entry in document["brokers"]}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ToolError(f"{path} is not the output of {_COMMAND}") from None
    if not all(isinstance(broker, int) for broker in found):
        raise ToolError(f"{path} is not the output of {_COMMAND}")
    return found


def _directory(found: Mapping[str, Any]) -> LogDirDescription:
    replicas = {}
    for entry in found["partitions"]:
        topic, _, number = entry["partition"].rpartition("-")
        if not entry.get("isFuture"):
            size = int(entry["size"])
            replicas[TopicPartition(topic, int(number))] = ReplicaSize(size, int(entry["offsetLag"]), False)
    return LogDirDescription(str(found["logDir"]), found["error"], -1, -1, replicas)


def replica_sizes(log_dirs: LogDirs) -> ReplicaSizes:
    """Returns the bytes of all replicas in some log directories."""
    found = ReplicaSizes()
    for broker, directories in log_dirs.items():
        for directory in directories:
            for tp, replica in directory.replicas.items():
                found.add(tp.topic, tp.partition, broker, replica.size)
    return found


def capacities(log_dirs: LogDirs, disk_limit: float) -> dict[int, int | None]:
    """Returns how many bytes the replicas of each broker may have, as far as it tells."""
    return {broker: capacity_of(directories, disk_limit) for broker, directories in log_dirs.items()}


def capacity_of(directories: list[LogDirDescription], disk_limit: float) -> int | None:
    """Returns how many bytes the replicas of a broker may have, or None if it does not tell.

    `disk_limit` is how full the disks of a broker may be, as a fraction. Directories with equal figures are
    taken for directories of one volume. What others than replicas have written to it counts.
    """
    healthy = _healthy(directories)
    if healthy is None:
        return None
    held = sum(replica.size for directory in healthy for replica in directory.replicas.values())
    return max(0, held + sum(_rooms(healthy, disk_limit)))


def rooms_of(directories: list[LogDirDescription], disk_limit: float) -> tuple[int, ...] | None:
    """Returns how many bytes of new replicas each volume of a broker has room for, the largest first, or None
    if the broker does not tell. Volumes whose directories are all cordoned get no replicas."""
    healthy = _healthy(directories)
    if healthy is None:
        return None
    rooms = _rooms([directory for directory in healthy if not directory.cordoned], disk_limit)
    return tuple(sorted((max(0, room) for room in rooms), reverse=True))


def _healthy(directories: list[LogDirDescription]) -> list[LogDirDescription] | None:
    """The directories that are online, or None if there is none, or one of an unknown size."""
    healthy = [directory for directory in directories if directory.error is None]
    return None if any(directory.total_bytes < 0 for directory in healthy) else healthy or None


def _rooms(directories: list[LogDirDescription], disk_limit: float) -> list[int]:
    """The bytes until each volume is as full as it may be. Below 0 it is already too full."""
    volumes = {(directory.total_bytes, directory.usable_bytes) for directory in directories}
    return [usable - round(total * (1 - disk_limit)) for total, usable in volumes]
