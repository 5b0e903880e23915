"""Real Kafka clusters for tests: a pytest plugin, the clusters that it starts, and faults on demand.

    plugin         the pytest plugin: the fixtures `kafka_cluster` and `kafka_cluster_factory`, node logs in failure reports
    cluster        KafkaCluster: starts, stops, kills, freezes and disturbs the nodes of one cluster
    errors         ClusterError
    folders        folders of clusters: what they hold, and copies of them
    ports          PortReservation: TCP ports that no other process is given
    from_snapshot  the metadata snapshot of another cluster, adapted to the nodes of this one
    messages       what a cluster tells a node: its configuration and its faults
    node           the program that runs in each node's process
    disk_faults    slow and full disks inside a node's process
    link_faults    cut links inside a node's process

Users import `KafkaCluster`, `ClusterError` and `ClusterFactory` from here. No other package of Quorate
imports this one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quorate.testing.cluster import KafkaCluster
    from quorate.testing.errors import ClusterError
    from quorate.testing.plugin import ClusterFactory

__all__ = ["ClusterError", "ClusterFactory", "KafkaCluster"]

_MODULES = {"ClusterError": "errors", "KafkaCluster": "cluster", "ClusterFactory": "plugin"}


def __getattr__(name: str) -> object:
    """Imports on first use: pytest imports this package in every run where Quorate is installed."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
