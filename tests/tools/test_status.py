"""`quorate status`: what it shows of each node."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from quorate.admin.types import ClusterDescription, Node, QuorumInfo, QuorumReplica
from quorate.tools.quorum.status import NodeStatus, node_statuses, table
from tests.support.cluster import BIN, running
from tests.support.cluster import Node as RealNode

A, B, C, NONE = b"a" * 16, b"b" * 16, b"c" * 16, bytes(16)
NOW = 1_000_000_000_000
IDS = {A: "YWFhYWFhYWFhYWFhYWFhYQ", B: "YmJiYmJiYmJiYmJiYmJiYg", C: "Y2NjY2NjY2NjY2NjY2NjYw"}


def quorum(voters: list[QuorumReplica], observers: list[QuorumReplica]) -> QuorumInfo:
    return QuorumInfo(1, 5, 90, tuple(voters), tuple(observers), {})


def described(*nodes: Node, endpoint_type: int = 1) -> ClusterDescription:
    return ClusterDescription("cluster", 1, nodes, endpoint_type)


def test_each_node_is_shown_with_its_role_state_directory_lag_and_uptime() -> None:
    cluster = described(
        Node(1, "h", 1, start_time_ms=NOW - 90_061_000), Node(10, "h", 2), Node(11, "h", 3, fenced=True)
    )
    replicas = quorum(
        [QuorumReplica(1, A, 100), QuorumReplica(2, B, 97)],
        [QuorumReplica(10, C, 60), QuorumReplica(7, C, -1)],
    )
    assert node_statuses(cluster, replicas, NOW) == [
        NodeStatus(1, "broker+controller", "leader, active", IDS[A], 0, NOW - 90_061_000, 90_061),
        NodeStatus(2, "controller", "follower", IDS[B], 3, None, None),
        NodeStatus(7, "unknown", "observer", IDS[C], None, None, None),
        NodeStatus(10, "broker", "observer, active", IDS[C], 40, None, None),
        NodeStatus(11, "broker", "not following, fenced", None, None, None, None),
    ]


def test_a_controller_that_is_asked_knows_controllers_only() -> None:
    cluster = described(Node(1, "h", 1), Node(2, "h", 2), endpoint_type=2)
    replicas = quorum([QuorumReplica(1, NONE, 100)], [QuorumReplica(2, B, 100)])
    assert [(s.id, s.role, s.state, s.directory_id) for s in node_statuses(cluster, replicas, NOW)] == [
        (1, "controller", "leader", None),
        (2, "controller", "observer", IDS[B]),
    ]


def test_two_replicas_with_the_same_id_are_both_shown() -> None:
    replicas = quorum([QuorumReplica(1, A, 100)], [QuorumReplica(1, B, 50)])
    found = node_statuses(described(endpoint_type=2), replicas, NOW)
    assert [(status.state, status.directory_id) for status in found] == [
        ("leader", IDS[A]),
        ("observer", IDS[B]),
    ]


@pytest.mark.parametrize(
    ("uptime_s", "shown"), [(0, "00:00:00"), (3_661, "01:01:01"), (90_061, "1 d 01:01:01"), (None, "-")]
)
def test_the_table_has_one_line_for_each_node(uptime_s: int | None, shown: str) -> None:
    start = None if uptime_s is None else 1_000
    header, line = table([NodeStatus(1, "broker", "observer, active", None, 4, start, uptime_s)]).split("\n")
    assert header.split()[:3] == ["NODE", "ROLE", "STATE"]
    assert line.startswith("1     broker  observer, active  -             4    ")
    assert line.endswith(shown)
    assert ("1970-01-01 00:00:01Z" in line) is (start is not None)


def tool(*words: str) -> str:
    return subprocess.run([str(BIN / "quorate"), *words], capture_output=True, text=True, check=True).stdout


def test_the_status_of_a_real_node(tmp_path: Path) -> None:
    with running(RealNode(tmp_path / "n")) as node:
        text = tool("status", "--bootstrap-server", node.bootstrap)
        assert "leader 1 of epoch 1" in text
        assert "broker+controller  leader, active" in text
        where = f"127.0.0.1:{node.controller_port}"
        [line] = tool("status", "--bootstrap-controller", where, "--json").splitlines()
        [only] = json.loads(line)["nodes"]
        assert (only["nodeId"], only["role"], only["state"], only["lag"]) == (1, "controller", "leader", 0)
        uptime = json.loads(tool("status", "-b", node.bootstrap, "--json"))["nodes"][0]["uptimeSeconds"]
        assert 0 <= uptime < 300
