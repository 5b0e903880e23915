"""Collects the metrics of a node's parts and writes them for Prometheus.

A part gives either families (`quorate.metrics`), or single metrics that are named `group_name` with
underscores: current-epoch of kafka.server:type=raft-metrics is kafka_server_raft_metrics_current_epoch. Of
the latter, a metric with states is a StateSet of OpenMetrics: one series for each state, 1 for the current
one and 0 for the others. A metric whose value is text is an Info: a series with the value 1 and the text
as a label. A metric with a label has one series for each value of that label.

Single metrics are written by prometheus_client. It takes 6 to 16 us for a series, and a broker of 10,000
partitions has 100,000 series. Families are therefore written here, in less than 1 us for a series.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import isinf, isnan
from typing import TYPE_CHECKING, Protocol

from quorate.lazy import lazy_module
from quorate.metrics import QUANTILES, Family, Kind, Quantiles

if TYPE_CHECKING:
    from prometheus_client import Metric as MetricFamily
    from prometheus_client import core
else:  # takes 0.1 s to import, and a node may serve no metrics
    core = lazy_module("prometheus_client.core")

logger = logging.getLogger("quorate.node.metrics")

PIECE = 500
"""Series that are written without a pause. They take less than a millisecond."""


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

FamilySource = Callable[[], Iterable["Family | None"]]
"""Yields the current families of one part of the node. It yields None where its work may be interrupted."""

Encoder = Callable[["MetricFamily"], str]
"""Writes a family of prometheus_client."""


class MetricsCollector:
    """The sources of a node's metrics."""

    def __init__(self) -> None:
        self._sources: list[tuple[str, Source]] = []
        self._family_sources: list[FamilySource] = []

    def add(self, group: str, source: Source) -> None:
        """Adds the metrics of `source`, whose names begin with `group`, as in kafka_server_raft_metrics."""
        self._sources.append((group, source))

    def add_families(self, source: FamilySource) -> None:
        """Adds the families of `source`."""
        self._family_sources.append(source)

    def text(self, encode: Encoder, *, open_metrics: bool) -> Iterator[str]:
        """Yields the current metrics of every source in pieces that take about a millisecond. A source that
        fails is logged, and the rest of it is left out."""
        for group, source in self._sources:
            try:
                metrics = list(source())
            except Exception:
                logger.exception("[MetricsCollector] The metrics of %s cannot be collected", group)
                continue
            for metric in metrics:
                yield encode(_prometheus_family(group, metric))
        for family_source in self._family_sources:
            try:
                for family in family_source():
                    if family is None:
                        yield ""
                    else:
                        yield from written(family, open_metrics=open_metrics)
            except Exception:
                logger.exception("[MetricsCollector] The metrics of %r cannot be collected", family_source)


def _prometheus_family(group: str, metric: Metric) -> MetricFamily:
    name = f"{group}_{metric.name}".replace("-", "_").replace(".", "_")
    if metric.states:
        return core.StateSetMetricFamily(
            name, metric.help, {state: state == metric.value for state in metric.states}
        )
    if isinstance(metric.value, Mapping):
        family = core.GaugeMetricFamily(name, metric.help, labels=[metric.label])
        for label, value in metric.value.items():
            family.add_metric([label], value)
        return family
    if isinstance(metric.value, str):
        return core.InfoMetricFamily(name, metric.help, {metric.name.replace("-", "_"): metric.value})
    return core.GaugeMetricFamily(name, metric.help, float(metric.value))


def written(family: Family, *, open_metrics: bool) -> Iterator[str]:
    """Yields the lines of a family in pieces, in the text format 0.0.4 of Prometheus or in OpenMetrics. A
    family without series has no lines."""
    if not family.series:
        return
    name = family.name
    declared = name.removesuffix("_total") if open_metrics and family.kind is Kind.COUNTER else name
    yield f"# HELP {declared} {family.help}\n# TYPE {declared} {family.kind.value}\n"
    series = iter(family.series)
    while some := list(islice(series, PIECE)):
        if family.kind is Kind.SUMMARY:
            yield "".join([_summary(name, text, value) for text, value in some])
        else:
            yield "".join(
                [
                    f"{name}{{{text}}} {_number(value)}\n" if text else f"{name} {_number(value)}\n"
                    for text, value in some
                ]
            )


def _summary(name: str, text: str, value: float | Quantiles) -> str:
    assert isinstance(value, Quantiles)
    before = f"{text}," if text else ""
    lines = [
        f'{name}{{{before}quantile="{quantile}"}} {_number(number)}\n'
        for quantile, number in zip(QUANTILES, value.values, strict=True)
    ]
    return "".join(lines) + (f"{name}_count{{{text}}}" if text else f"{name}_count") + f" {value.total}\n"


def _number(value: float | Quantiles) -> str:
    if isinstance(value, float):
        if isnan(value):
            return "NaN"
        if isinf(value):
            return "+Inf" if value > 0 else "-Inf"
    return str(value if not isinstance(value, bool) else int(value))
