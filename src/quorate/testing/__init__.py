"""Real Kafka clusters for tests: a pytest plugin, the clusters that it starts, and faults on demand.

    plugin         the pytest plugin: the fixtures `kafka_cluster` and `kafka_cluster_factory`, and the nodes'
                   logs in the reports of failed tests
    cluster        KafkaCluster: starts, stops, kills, freezes and disturbs the nodes of one cluster
    cluster_node   one node of it: process, log, faults, control socket
    errors         ClusterError
    folders        reads and copies folders of clusters
    ports          PortReservation: reserves a TCP port
    from_snapshot  adapts the metadata snapshot of another cluster to the nodes of this one
    messages       the messages from a cluster to its nodes
    node           the main program of each node's process
    disk_faults    slow, full and failing disks inside a node's process
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
    """Imports a name on first use, because pytest imports this package in every run if Quorate is
    installed.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
