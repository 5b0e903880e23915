"""Metrics in Prometheus' text format. The client library is large, and few nodes are asked: it is loaded only where one is.

A metric `group:name` becomes `group_name` with underscores, as Prometheus' exporter for Java names Kafka's own: current-epoch of
kafka.server:type=raft-metrics is kafka_server_raft_metrics_current_epoch. A state is one series for each state it may have,
1 for the one that holds; a text is a label of a series that is 1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

log = logging.getLogger(__name__)


class Metric(Protocol):
    """`value`: a number, NaN where not known; one of `states`, if there are any; or a text."""

    @property
    def name(self) -> str: ...
    @property
    def help(self) -> str: ...
    @property
    def value(self) -> float | str: ...
    @property
    def states(self) -> Sequence[str]: ...


Source = Callable[[], Iterable[Metric]]


class Exposition:
    """The sources of a node's metrics by group; `render` gives the text and its content type."""

    def __init__(self) -> None:
        self._sources: list[tuple[str, Source]] = []
        self._registry: Any = None

    def add(self, group: str, source: Source) -> None:
        """group: as in kafka_server_raft_metrics. A source that fails is left out of that answer and logged."""
        self._sources.append((group, source))

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Imports prometheus_client. `accept`: the header of the request, which chooses between the text formats."""
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        if self._registry is None:
            self._registry = CollectorRegistry(auto_describe=False)
            self._registry.register(self)
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> Iterator[Any]:
        """For the registry."""
        from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, StateSetMetricFamily

        for group, source in self._sources:
            try:
                metrics = list(source())
            except Exception:
                log.exception("[Exposition] %s cannot be told", group)
                continue
            for metric in metrics:
                name = f"{group}_{metric.name}".replace("-", "_").replace(".", "_")
                if metric.states:
                    yield StateSetMetricFamily(name, metric.help, {state: state == metric.value for state in metric.states})
                elif isinstance(metric.value, str):
                    yield InfoMetricFamily(name, metric.help, {metric.name.replace("-", "_"): metric.value})
                else:
                    yield GaugeMetricFamily(name, metric.help, float(metric.value))
