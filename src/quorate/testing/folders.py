"""Reads and copies folders of clusters."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

from quorate.log.directories.lock import DirLock, DirLockedError
from quorate.node.properties import read_properties
from quorate.testing.errors import ClusterError


def roles_of(source: Path, controllers: int | None, brokers: int | None) -> tuple[int, int]:
    """Returns the numbers of controllers and brokers in a cluster's folder.

    Raises ClusterError if they differ from the given numbers.
    """
    try:
        found_controllers = int(json.loads((source / "cluster.json").read_text())["controllers"])
        nodes = [read_properties(path / "server.properties") for path in source.glob("node-*")]
        found_brokers = sum("broker" in properties["process.roles"] for properties in nodes)
    except (OSError, ValueError, KeyError) as e:
        raise ClusterError(
            f"{source} is not the folder of a cluster ({e}): name one that quorate up --data or "
            "KafkaCluster.directory wrote"
        ) from e
    if controllers not in (None, found_controllers) or brokers not in (None, found_brokers):
        raise ClusterError(
            f"{source} holds a cluster of {found_controllers} controllers and {found_brokers} brokers: leave "
            "both numbers out"
        )
    return found_controllers, found_brokers


def has_separate_roles(source: Path) -> bool:
    """Returns whether no node of a cluster's folder has both roles. Node 1 is always a controller."""
    properties = read_properties(source / "node-1" / "server.properties")
    return "broker" not in properties["process.roles"]


def copy_cluster(source: Path, target: Path) -> None:
    """Copies a cluster's folder. Raises ClusterError if one of its nodes runs, because the copy would be
    inconsistent.
    """
    for directory in source.glob("node-*/data"):
        lock = DirLock(directory)
        try:
            lock.acquire()
        except DirLockedError as e:
            raise ClusterError(f"stop the cluster in {source} before another one starts from it ({e})") from e
        lock.release()
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".lock"))


def size_of(directory: Path) -> int:
    """Returns the size of all files below a directory, which may change meanwhile."""
    size = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size if path.is_file() else 0
    return size
