"""Collects the metrics of a node's parts for Prometheus.

A metric is named `group_name` with underscores, like the metrics of Apache Kafka that Prometheus' JMX
exporter serves: current-epoch of kafka.server:type=raft-metrics is
kafka_server_raft_metrics_current_epoch. A metric with states is a StateSet of OpenMetrics: one series
for each state, 1 for the current one and 0 for the others. A metric whose value is text is an Info of
OpenMetrics: a series with the value 1 and the text as a label. A metric with a label has one series for
each value of that label, like Kafka's metrics with a tag.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from quorate.lazy import lazy_module

if TYPE_CHECKING:
    from prometheus_client import Metric as MetricFamily
    from prometheus_client import core
else:  # takes 0.1 s to import, and a node may serve no metrics
    core = lazy_module("prometheus_client.core")

logger = logging.getLogger(__name__)


class Metric(Protocol):
    """`value` is one of `states` where there are any, else a number (NaN where it is unknown) or a text. A
    metric with a `label` has a number for each value of the label."""

    @property
    def name(self) -> str: ...
    @property
    def help(self) -> str: ...
    @property
    def value(self) -> float | str | Mapping[str, float]: ...
    @property
    def states(self) -> Sequence[str]: ...
    @property
    def label(self) -> str: ...


Source = Callable[[], Iterable[Metric]]
"""Returns the current metrics of one part of the node."""


class MetricsCollector:
    """The sources of a node's metrics. A collector in the sense of prometheus_client: a
    CollectorRegistry calls `collect`.
    """

    def __init__(self) -> None:
        self._sources: list[tuple[str, Source]] = []

    def add(self, group: str, source: Source) -> None:
        """Adds the metrics of `source`, whose names begin with `group`, as in kafka_server_raft_metrics."""
        self._sources.append((group, source))

    def collect(self) -> Iterator[MetricFamily]:
        """Yields the current metrics of every source. A source that fails is logged and left out."""
        for group, source in self._sources:
            try:
                metrics = list(source())
            except Exception:
                logger.exception("[MetricsCollector] The metrics of %s cannot be collected", group)
                continue
            for metric in metrics:
                name = f"{group}_{metric.name}".replace("-", "_").replace(".", "_")
                if metric.states:
                    yield core.StateSetMetricFamily(
                        name, metric.help, {state: state == metric.value for state in metric.states}
                    )
                elif isinstance(metric.value, Mapping):
                    family = core.GaugeMetricFamily(name, metric.help, labels=[metric.label])
                    for label, value in metric.value.items():
                        family.add_metric([label], value)
                    yield family
                elif isinstance(metric.value, str):
                    yield core.InfoMetricFamily(
                        name, metric.help, {metric.name.replace("-", "_"): metric.value}
                    )
                else:
                    yield core.GaugeMetricFamily(name, metric.help, float(metric.value))
