"""Joins the metrics of a node's parts to its collector.

A node that serves no metrics does not measure its requests, and imports neither this module nor those that
make families.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module
from quorate.metrics import Family, gauge, labels, meter
from quorate.net import request_metrics
from quorate.node.monitoring.metrics import MetricsCollector
from quorate.node.monitoring.process_metrics import process_families

if TYPE_CHECKING:
    from quorate.broker.metrics import families as broker_metrics
    from quorate.broker.server import BrokerServer
    from quorate.config.kafka_config import KafkaConfig
    from quorate.controller import metrics as controller_metrics
    from quorate.controller.driver import QuorumController
    from quorate.net.server import Listener
    from quorate.raft.runtime.client import RaftClient
else:
    broker_metrics = lazy_module("quorate.broker.metrics.families")
    controller_metrics = lazy_module("quorate.controller.metrics")


class MetricSources:
    """The collector of a node, and the meters of its requests."""

    def __init__(self) -> None:
        self.collector = MetricsCollector()
        self.collector.add_families(process_families)
        self.broker_requests = request_metrics.RequestMetrics()
        self.controller_requests = request_metrics.RequestMetrics()
        self._broker: BrokerServer | None = None

    def add_node(self, raft: RaftClient, listeners: Mapping[str, Listener], config: KafkaConfig) -> None:
        """Adds the metrics that every node has: those of Raft, of the requests and of the connections."""
        add = self.collector.add
        add("kafka_server_raft_metrics", raft.metrics)
        if config.is_broker:
            add("kafka_server_broker_metadata_metrics", raft.broker_metrics)
        self.collector.add_families(partial(_raft_families, raft, is_controller=config.is_controller))
        self.collector.add_families(self._request_families)
        self.collector.add_families(partial(_listener_families, listeners))

    def add_controller(self, controller: QuorumController) -> None:
        """Adds the metrics of the controller role."""
        self.collector.add_families(controller_metrics.ControllerMetrics(controller).families)
        self.collector.add_families(self._event_families)

    def add_broker(self, broker: BrokerServer, raft: RaftClient) -> None:
        """Adds the metrics of the broker role."""
        self._broker = broker
        self.collector.add_families(lambda: broker_metrics.broker_families(broker, raft))

    def _request_families(self) -> Iterator[Family | None]:
        handlers_errors = Counter() if self._broker is None else self._broker.replicas.stats.errors
        yield from request_metrics.request_families(
            (self.broker_requests, self.controller_requests), handlers_errors
        )

    def _event_families(self) -> Iterator[Family]:
        distribution = self.controller_requests.distribution
        yield from controller_metrics.event_families(
            distribution("RequestQueueTimeMs"), distribution("LocalTimeMs")
        )


def _raft_families(raft: RaftClient, *, is_controller: bool) -> Iterator[Family]:
    """The metrics of Raft that the exporter's rules shape in their own way, and those that Kafka
    counts to the controller."""
    [state] = [str(metric.value) for metric in raft.metrics() if metric.name == "current-state"]
    yield gauge(
        "server.raft-metrics.current-state-info",
        "The current state of this replica.",
        [(labels(state=state), 1)],
    )
    if is_controller:
        for metric in raft.controller_metrics():
            assert isinstance(metric.value, float | int)
            yield gauge(f"controller.KafkaController.{metric.name}", metric.help, metric.value)


def _listener_families(listeners: Mapping[str, Listener]) -> Iterator[Family]:
    """The connections of each listener. A node has one network processor for all of them."""
    group = "server.socket-server-metrics"
    by_name = [
        (labels(listener=name, networkProcessor=0), listener) for name, listener in sorted(listeners.items())
    ]
    yield gauge(
        f"{group}.connection-count",
        "Open connections.",
        [(where, len(listener.connections)) for where, listener in by_name],
    )
    yield meter(
        f"{group}.connection-creation",
        "Connections that were accepted or refused.",
        [(where, listener.accepted) for where, listener in by_name],
    )
    yield meter(
        f"{group}.connection-close",
        "Connections that have ended.",
        [(where, listener.accepted - len(listener.connections)) for where, listener in by_name],
    )
    yield gauge(
        "network.RequestChannel.RequestQueueSize",
        "Connections with requests that were read and not handled yet.",
        sum(listener.waiting for _, listener in by_name),
    )
