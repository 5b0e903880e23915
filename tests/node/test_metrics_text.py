"""How the metrics of a node are named and written for Prometheus."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from quorate.metrics import (
    SAMPLE_SIZE,
    WINDOW_S,
    Family,
    Quantiles,
    Reservoir,
    gauge,
    histogram,
    labels,
    meter,
    percent,
    quantiles,
)
from quorate.node.monitoring.metric_sources import _listener_families
from quorate.node.monitoring.metrics import PIECE, MetricsCollector, written


@pytest.mark.parametrize(
    ("family", "name"),
    [  # the names that kafka-2_0_0.yml and kafka-kraft-3_0_0.yml of prometheus/jmx_exporter give
        (
            meter("server.BrokerTopicMetrics.MessagesInPerSec", "", 1),
            "kafka_server_brokertopicmetrics_messagesin_total",
        ),
        (
            gauge("server.ReplicaManager.UnderReplicatedPartitions", "", 1),
            "kafka_server_replicamanager_underreplicatedpartitions",
        ),
        (
            gauge("server.raft-metrics.current-epoch", "", 1),
            "kafka_server_raft_metrics_current_epoch",
        ),
        (
            histogram("network.RequestMetrics.TotalTimeMs", "", []),
            "kafka_network_requestmetrics_totaltimems",
        ),
        (
            percent("server.KafkaRequestHandlerPool.RequestHandlerAvgIdlePercent", "", 1),
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        ),
    ],
)
def test_a_metric_has_the_name_that_the_sample_rules_of_the_jmx_exporter_give(
    family: Family, name: str
) -> None:
    assert family.name == name


FAMILIES = [
    gauge("log.Log.Size", "Bytes.", [(labels(topic='a"\\\n', partition=0), 7), (labels(topic="b"), 2.5)]),
    meter("server.BrokerTopicMetrics.BytesInPerSec", "Bytes.", 10),
    histogram(
        "network.RequestMetrics.TotalTimeMs",
        "Time.",
        [(labels(request="Produce"), Quantiles(9, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])), ("", quantiles(0, []))],
    ),
    gauge("controller.KafkaController.Unknown", "Not known.", math.nan),
    gauge("controller.KafkaController.Endless", "Too much.", math.inf),
    gauge("controller.KafkaController.Flag", "A flag.", True),
]


@pytest.mark.parametrize("open_metrics", [False, True])
def test_families_are_read_back_by_the_parsers_of_prometheus(open_metrics: bool) -> None:
    text = "".join(piece for family in FAMILIES for piece in written(family, open_metrics=open_metrics))
    parsed = list(parse_open_metrics(text + "# EOF\n") if open_metrics else parse_text(text))
    samples = {(s.name, tuple(s.labels.items())): s.value for family in parsed for s in family.samples}
    assert samples[("kafka_log_log_size", (("topic", 'a"\\\n'), ("partition", "0")))] == 7
    assert samples[("kafka_log_log_size", (("topic", "b"),))] == 2.5
    assert samples[("kafka_server_brokertopicmetrics_bytesin_total", ())] == 10
    total = "kafka_network_requestmetrics_totaltimems"
    assert samples[(total, (("request", "Produce"), ("quantile", "0.99")))] == 5
    assert samples[(total + "_count", (("request", "Produce"),))] == 9
    assert samples[(total + "_count", ())] == 0
    assert math.isnan(samples[(total, (("quantile", "0.50"),))])
    assert math.isnan(samples[("kafka_controller_kafkacontroller_unknown", ())])
    assert samples[("kafka_controller_kafkacontroller_endless", ())] == math.inf
    assert samples[("kafka_controller_kafkacontroller_flag", ())] == 1
    assert {family.type for family in parsed} == {"gauge", "counter", "summary"}


def test_a_family_without_series_is_not_written() -> None:
    assert list(written(gauge("log.Log.Size", "Bytes.", []), open_metrics=False)) == []


def test_a_large_family_is_written_in_pieces() -> None:
    family = gauge("log.Log.Size", "Bytes.", [(labels(partition=i), i) for i in range(3 * PIECE)])
    assert [piece.count("\n") for piece in written(family, open_metrics=False)] == [2, PIECE, PIECE, PIECE]


def test_a_source_that_fails_costs_only_its_own_metrics(caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> Iterator[Family]:
        yield gauge("log.Log.Size", "Bytes.", 1)
        raise RuntimeError("broken")

    collector = MetricsCollector()
    collector.add_families(failing)
    collector.add_families(lambda: [None, gauge("log.Log.NumLogSegments", "Segments.", 2)])
    text = "".join(collector.text(lambda family: family.name, open_metrics=False))
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "kafka_log_log_size 1",
        "kafka_log_log_numlogsegments 2",
    ]
    assert "broken" in caplog.text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], [7, 7, 7, 7, 7, 7]),
        ([3.0, 1.0], [2, 3, 3, 3, 3, 3]),
        (range(1, 1000), [500, 750, 950, 980, 990, 999]),  # as n + 1 is 1000
        (range(1, 100), [50, 75, 95, 98, 99, 99]),
    ],
)
def test_quantiles_are_interpolated_like_kafkas(values: list[float], expected: list[float]) -> None:
    found = quantiles(len(values), values)
    assert list(found.values) == pytest.approx(expected)
    assert found.total == len(values)


def test_the_sample_has_every_row_until_it_is_full_and_then_a_uniform_part_of_them() -> None:
    sample = Reservoir(0.0)
    count, taken = 200_000, 0
    for row in range(count):
        if sample.take():
            taken += 1
            sample.record((row,), 1.0)
    rows = sorted(row[0] for row in sample.rows(1.0))
    assert len(rows) == SAMPLE_SIZE
    # On average 1028 * (1 + ln(200000 / 1028)) = 6450 rows are taken.
    assert 4_000 < taken < 10_000
    # The mean of a uniform sample of 1028 deviates by 0.9 % of the range with a probability of 2 in 3.
    assert sum(rows) / len(rows) == pytest.approx(count / 2, rel=0.15)
    assert len([row for row in rows if row < count / 10]) == pytest.approx(103, abs=60)


def test_the_sample_forgets_rows_that_are_older_than_two_windows() -> None:
    sample = Reservoir(0.0)
    for at in (1.0, WINDOW_S + 1):
        assert sample.take()
        sample.record((at,), at)
    assert sample.rows(WINDOW_S + 2) == [(1.0,), (WINDOW_S + 1,)]
    assert sample.rows(2 * WINDOW_S + 2) == [(WINDOW_S + 1,)]
    assert sample.rows(9 * WINDOW_S) == []


def test_connections_are_counted_for_each_listener_and_requests_for_all() -> None:
    """A connection that was refused has been created and closed."""

    def listener(accepted: int, open_: int, waiting: int) -> Any:
        return SimpleNamespace(accepted=accepted, connections=set(range(open_)), waiting=waiting)

    listeners = {"PLAINTEXT": listener(7, 3, 2), "CONTROLLER": listener(4, 4, 1)}
    found = {family.name: dict(family.series) for family in _listener_families(listeners)}
    group = "kafka_server_socket_server_metrics_connection"
    one, other = (f'listener="{name}",networkProcessor="0"' for name in ("PLAINTEXT", "CONTROLLER"))
    assert found == {
        f"{group}_count": {one: 3, other: 4},
        f"{group}_creation_total": {one: 7, other: 4},
        f"{group}_close_total": {one: 4, other: 0},
        "kafka_network_requestchannel_requestqueuesize": {"": 3},
    }
