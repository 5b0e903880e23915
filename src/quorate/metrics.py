"""The metrics of a node's parts, under the names that Prometheus' JMX exporter gives to Apache Kafka's.

The sample rules of the exporter (kafka-2_0_0.yml, kafka-kraft-3_0_0.yml) write the names in lower case:

    kafka.server:type=ReplicaManager,name=LeaderCount           kafka_server_replicamanager_leadercount
    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec     kafka_server_brokertopicmetrics_bytesin_total
    kafka.network:type=RequestMetrics,name=TotalTimeMs          kafka_network_requestmetrics_totaltimems, with
                                                                a label quantile, and ..._totaltimems_count
    kafka.server:type=KafkaRequestHandlerPool,                  kafka_server_kafkarequesthandlerpool_
        name=RequestHandlerAvgIdlePercent                           requesthandleravgidle_percent

A part gives its metrics as families. `gauge`, `meter`, `histogram` and `percent` make them from Kafka's own
name in the form "server.ReplicaManager.LeaderCount".
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

UNKNOWN = math.nan

QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""The percentiles of Kafka's histograms, as the exporter's rules write them."""


class Kind(Enum):
    """The types of Prometheus."""

    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"


class Quantiles(NamedTuple):
    """The number of all values, and the quantiles of a sample of them in the order of `QUANTILES`."""

    total: int
    values: Sequence[float]


class Family(NamedTuple):
    """One metric with all its series.

    A series is a pair of labels and value. The labels are text as `labels` returns it; "" for none. The
    value of a summary is a `Quantiles`.
    """

    name: str
    kind: Kind
    help: str
    series: Sequence[tuple[str, float | Quantiles]]


Value = float | Sequence[tuple[str, float]]
"""A number, or the series of a metric with labels."""


def gauge(kafka_name: str, text: str, value: Value) -> Family:
    """A value that may rise and fall."""
    return Family(exported_name(kafka_name), Kind.GAUGE, text, _series(value))


def meter(kafka_name: str, text: str, value: Value) -> Family:
    """A rate of Kafka. The exporter gives the number of events since the start, without `PerSec`."""
    name = exported_name(kafka_name.removesuffix("PerSec")) + "_total"
    return Family(name, Kind.COUNTER, text, _series(value))


def percent(kafka_name: str, text: str, value: Value) -> Family:
    """A share between 0 and 1, which Kafka calls a percentage."""
    name = exported_name(kafka_name.removesuffix("Percent")) + "_percent"
    return Family(name, Kind.GAUGE, text, _series(value))


def histogram(kafka_name: str, text: str, series: Sequence[tuple[str, Quantiles]]) -> Family:
    """A distribution of values."""
    return Family(exported_name(kafka_name), Kind.SUMMARY, text, series)


@lru_cache(maxsize=1000)
def exported_name(kafka_name: str) -> str:
    """The name for Prometheus: kafka_server_replicamanager_leadercount of
    server.ReplicaManager.LeaderCount."""
    return "kafka_" + kafka_name.replace(".", "_").replace("-", "_").lower()


def labels(**values: object) -> str:
    """The labels of a series: `topic="orders",partition="0"`."""
    return ",".join([f'{name}="{_escaped(str(value))}"' for name, value in values.items()])


def _escaped(text: str) -> str:
    if '"' in text or "\\" in text or "\n" in text:
        return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return text


def _series(value: Value) -> Sequence[tuple[str, float]]:
    return [("", value)] if isinstance(value, int | float) else value


WINDOW_S = 60.0
SAMPLE_SIZE = 1028
"""As many values as the histograms of Kafka's metrics library keep."""


class Reservoir:
    """A uniform sample of the rows that were recorded in the last one to two windows.

    A caller that has a row calls `record` if `take()` is true. Once the sample is full, `take` is true for
    ever fewer rows, so that most of them cost one subtraction (Li, "Reservoir-Sampling Algorithms of Time
    Complexity O(n(1+log(N/n)))", algorithm L).
    """

    __slots__ = ("_begins", "_old", "_random", "_rows", "_skip", "_weight")

    def __init__(self, now: float) -> None:
        self._random = random.random
        self._old: list[Sequence[float]] = []
        self._begin(now)

    def take(self) -> bool:
        """Whether the next row belongs to the sample."""
        self._skip -= 1
        return self._skip < 0

    def record(self, row: Sequence[float], now: float) -> None:
        """Adds a row to the sample."""
        self._turn(now)
        rows = self._rows
        if len(rows) < SAMPLE_SIZE:
            rows.append(row)
            self._skip = 0
            if len(rows) < SAMPLE_SIZE:
                return
        else:
            rows[int(self._random() * SAMPLE_SIZE)] = row
        self._weight *= math.exp(math.log(1.0 - self._random()) / SAMPLE_SIZE)
        self._skip = int(math.log(1.0 - self._random()) / math.log(1.0 - self._weight))

    def rows(self, now: float) -> list[Sequence[float]]:
        """The rows of this window and the one before."""
        self._turn(now)
        return self._old + self._rows

    def _turn(self, now: float) -> None:
        passed = now - self._begins
        if passed >= WINDOW_S:
            self._old = self._rows if passed < 2 * WINDOW_S else []
            self._begin(now)

    def _begin(self, now: float) -> None:
        self._begins = now
        self._rows: list[Sequence[float]] = []
        self._skip = 0
        self._weight = 1.0


def quantiles(count: int, values: Iterable[float]) -> Quantiles:
    """The quantiles of `values`, interpolated like those of Kafka's histograms. They are NaN without
    values."""
    ordered = sorted(values)
    size = len(ordered)
    if not size:
        return Quantiles(count, [UNKNOWN] * len(QUANTILES))
    found = []
    for quantile in QUANTILES:
        position = float(quantile) * (size + 1)
        if position < 1:
            found.append(ordered[0])
        elif position >= size:
            found.append(ordered[-1])
        else:
            lower = ordered[int(position) - 1]
            found.append(lower + (position - int(position)) * (ordered[int(position)] - lower))
    return Quantiles(count, found)
