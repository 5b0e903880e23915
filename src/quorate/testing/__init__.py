"""Real Kafka clusters for tests: a pytest plugin, the clusters that it starts, and faults on demand.

    plugin         the pytest plugin: the fixtures `kafka_cluster` and `kafka_cluster_factory`, and the nodes'
                   logs in the reports of failed tests
    cluster        KafkaCluster: starts, stops, kills, freezes and disturbs the nodes of one cluster
    kafka_node     KafkaNode: one node whose properties, formatting and start are left to the test
    cluster_node   the process, log, faults and control socket of a node of either
    readiness      waits until nodes serve
    config         the configuration of nodes
    errors         ClusterError
    folders        reads and copies folders of clusters
    ports          PortReservation: reserves a TCP port
    from_snapshot  adapts the metadata snapshot of another cluster to the nodes of this one
    messages       the messages from a cluster to its nodes
    node           the main program of each node's process
    disk_faults    slow, full and failing disks inside a node's process
    link_faults    cut links inside a node's process

Users import `KafkaCluster`, `KafkaNode`, `PortReservation`, `ClusterError` and `ClusterFactory` from here. No
other package of Quorate imports this one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quorate.testing.cluster import KafkaCluster
    from quorate.testing.errors import ClusterError
    from quorate.testing.kafka_node import KafkaNode
    from quorate.testing.plugin import ClusterFactory
    from quorate.testing.ports import PortReservation

__all__ = ["ClusterError", "ClusterFactory", "KafkaCluster", "KafkaNode", "PortReservation"]

_MODULES = {
    "ClusterError": "errors",
    "ClusterFactory": "plugin",
    "KafkaCluster": "cluster",
    "KafkaNode": "kafka_node",
    "PortReservation": "ports",
}


def __getattr__(name: str) -> object:
    """Imports a name on first use, because pytest imports this package in every run if Quorate is
    installed.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
