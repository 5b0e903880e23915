"""The dashboards and alert rules in `docs/monitoring` use only metrics that docs/metrics.md lists.

A test of real nodes compares that list with what they export.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARDS = ("brokers.json", "quorum.json")
OF_PROMETHEUS = {"up"}
"""Metrics that Prometheus makes itself."""

DRAWN_BY_OTHERS = {
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_replicamanager_underminisrpartitioncount",
    "kafka_server_replicamanager_atminisrpartitioncount",
    "kafka_server_replicamanager_offlinereplicacount",
    "kafka_server_replicamanager_isrshrinks_total",
    "kafka_server_replicamanager_isrexpands_total",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_underminisr",
    "kafka_cluster_partition_underreplicated",
    "kafka_network_requestmetrics_requests_total",
    "kafka_network_requestmetrics_totaltimems",
    "kafka_network_requestmetrics_localtimems",
    "kafka_network_requestmetrics_remotetimems",
    "kafka_network_requestmetrics_requestqueuetimems",
    "kafka_network_requestmetrics_errors_total",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_network_socketserver_networkprocessoravgidlepercent",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_server_socket_server_metrics_connection_count",
    "kafka_log_log_size",
    "kafka_log_log_logstartoffset",
    "kafka_log_log_logendoffset",
    "kafka_log_log_numlogsegments",
    "kafka_log_logmanager_offlinelogdirectorycount",
    "kafka_log_logflushstats_logflushrateandtimems",
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "kafka_server_replicafetchermanager_maxlag",
    "kafka_coordinator_group_groupmetadatamanager_numgroups",
    "kafka_coordinator_group_groupmetadatamanager_numgroupsstable",
    "kafka_server_delayedoperationpurgatory_numdelayedoperations",
    "kafka_server_replicafetchermanager_failedpartitionscount",
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
    "kafka_server_group_coordinator_metrics_offset_commit_count",
    "kafka_server_group_coordinator_metrics_group_completed_rebalance_count",
    "kafka_controller_kafkacontroller_eventqueueoperationstimedoutcount",
    "kafka_controller_controllerstats_electionfromeligibleleaderreplicas_total",
    "kafka_server_snapshotemitter_latestsnapshotgeneratedagems",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
    "kafka_server_raft_metrics_current_epoch",
    "kafka_server_raft_metrics_high_watermark",
    "kafka_server_raft_metrics_current_state_info",
}
"""Metrics on the usual dashboards of Apache Kafka with the JMX exporter."""

_WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")


def documented() -> set[str]:
    rows = re.findall(r"^\| `(\w+)` \| (\w+)", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    return {name for name, _ in rows} | {f"{name}_count" for name, kind in rows if kind == "summary"}


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression of PromQL names: its words that are no function, operator, label or
    duration."""
    text = _GROUPING.sub(" ", _STRING.sub(" ", expression))
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", text)
    found = set()
    for match in _WORD.finditer(text):
        is_function = text[match.end() :].lstrip().startswith("(")
        if not is_function and match[0] not in {"and", "or", "unless", "bool", "offset"}:
            found.add(match[0])
    return found


def expressions(name: str) -> list[str]:
    path = DOCS / "monitoring" / name
    if path.suffix == ".yml":
        return re.findall(r"^ +expr: (.+)$", path.read_text(), re.MULTILINE)
    dashboard: dict[str, Any] = json.loads(path.read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("up == 0", {"up"}),
        ('sum by (a) (rate(x_total{l=~"y_total",m!="(z)"}[5m])) > 1', {"x_total"}),
        ("sum(a) without (b) / on (c) group_left (d) max(e) and f", {"a", "e", "f"}),
        ("topk(10, x)", {"x"}),
    ],
)
def test_the_names_of_metrics_are_found_in_expressions(expression: str, names: set[str]) -> None:
    assert metrics_in(expression) == names


@pytest.mark.parametrize("name", [*DASHBOARDS, "alerts.yml"])
def test_dashboards_and_alerts_use_metrics_that_nodes_export(name: str) -> None:
    found = expressions(name)
    assert len(found) > 10
    for expression in found:
        used = metrics_in(expression)
        assert used, expression
        assert used <= documented() | OF_PROMETHEUS, expression


def test_the_metrics_of_usual_dashboards_are_exported() -> None:
    assert not DRAWN_BY_OTHERS - documented()


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_panels_of_a_dashboard_have_unique_ids_and_do_not_overlap(name: str) -> None:
    panels = json.loads((DOCS / "monitoring" / name).read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_alert_has_a_severity_and_says_what_to_do() -> None:
    text = (DOCS / "monitoring" / "alerts.yml").read_text()
    alerts = text.count("- alert: ")
    assert alerts == len(set(re.findall(r"- alert: (\w+)", text)))
    for field in ("expr", "for", "severity", "summary", "description"):
        assert len(re.findall(rf"^ +{field}: .+$", text, re.MULTILINE)) == alerts, field
