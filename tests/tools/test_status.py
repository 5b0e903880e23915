"""`quorate status`: what it shows of each node."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from quorate.admin.types import ClusterDescription, Node, QuorumInfo, QuorumReplica
from quorate.tools.quorum.status import NodeStatus, node_statuses, table
from tests.support.cluster import BIN, free_ports, running
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
        [
            QuorumReplica(1, A, 100, snapshot_end_offset=80),
            QuorumReplica(2, B, 97, snapshot_end_offset=0, start_time_ms=NOW - 5_000),
        ],
        [QuorumReplica(10, C, 60), QuorumReplica(7, C, -1)],
    )
    assert node_statuses(cluster, replicas, NOW) == [
        NodeStatus(1, "broker+controller", "leader, active", IDS[A], 0, 80, NOW - 90_061_000, 90_061),
        NodeStatus(2, "controller", "follower", IDS[B], 3, 0, NOW - 5_000, 5),
        NodeStatus(7, "unknown", "observer", IDS[C], None, None, None, None),
        NodeStatus(10, "broker", "observer, active", IDS[C], 40, None, None, None),
        NodeStatus(11, "broker", "not following, fenced", None, None, None, None, None),
    ]


@pytest.mark.parametrize(
    ("last_fetch_ms", "follows"), [(NOW, True), (NOW - 3000, True), (NOW - 3001, False), (-1, False)]
)
def test_a_replica_that_does_not_fetch_is_not_following(last_fetch_ms: int, follows: bool) -> None:
    cluster = described(Node(10, "h", 2, fenced=not follows))
    replicas = quorum(
        [QuorumReplica(1, A, 100, last_fetch_ms=NOW), QuorumReplica(2, B, 97, last_fetch_ms=last_fetch_ms)],
        [QuorumReplica(10, C, 60, last_fetch_ms=last_fetch_ms)],
    )
    states = [(status.role, status.state) for status in node_statuses(cluster, replicas, NOW)]
    expected = [
        "leader",
        *(["follower", "observer, active"] if follows else ["not following", "not following, fenced"]),
    ]
    assert states == list(zip(["controller", "controller", "broker"], expected, strict=True))


def test_a_removed_node_and_the_directory_before_the_last_one_of_a_node_are_shown_as_former() -> None:
    now = {"last_fetch_ms": NOW}
    replicas = quorum(
        [QuorumReplica(1, A, 100, **now), QuorumReplica(2, B, 97, **now)],
        [QuorumReplica(2, C, 60, last_fetch_ms=NOW - 9000), QuorumReplica(10, C, 60, last_fetch_ms=NOW - 9000),
         QuorumReplica(10, B, 97, **now), QuorumReplica(3, B, 60, last_fetch_ms=NOW - 9000)],
    )  # fmt: skip
    found = [(s.id, s.role, s.state) for s in node_statuses(described(Node(10, "h", 2)), replicas, NOW)]
    assert found == [
        (1, "controller", "leader"),
        (2, "controller", "follower"),
        (2, "former", "not following"),
        (3, "former", "not following"),
        (10, "former", "not following"),
        (10, "broker", "observer, active"),
    ]
    by_controller = node_statuses(described(Node(1, "h", 1), endpoint_type=2), replicas, NOW)
    assert {s.role for s in by_controller if s.id == 3} == {"unknown"}, "it may be a broker"


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
    header, line = table([NodeStatus(1, "broker", "observer, active", None, 4, 17, start, uptime_s)]).split(
        "\n"
    )
    assert header.split()[:3] == ["NODE", "ROLE", "STATE"]
    assert line.startswith("1     broker  observer, active  -             4    17        ")
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
        assert (only["snapshotEndOffset"], only["uptimeSeconds"] is not None) == (0, True)
        assert (only["nodeId"], only["role"], only["state"], only["lag"]) == (1, "controller", "leader", 0)
        uptime = json.loads(tool("status", "-b", node.bootstrap, "--json"))["nodes"][0]["uptimeSeconds"]
        assert 0 <= uptime < 300


def test_without_a_leader_a_command_says_for_whom_the_controllers_wait(tmp_path: Path) -> None:
    node = RealNode(tmp_path / "n", roles="controller")
    missing = free_ports(1)[0]
    voters = f"1@127.0.0.1:{node.controller_port},2@127.0.0.1:{missing}"
    with running(node, "--initial-controllers", voters):
        for words in (["status"], ["upgrade", "--dry-run", "--timeout", "12"]):
            command = [
                str(BIN / "quorate"),
                *words,
                "--bootstrap-controller",
                f"127.0.0.1:{node.controller_port}",
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            assert (done.returncode, done.stdout) == (1, "")
            assert "No leader of the metadata quorum has answered within 4 s." in done.stderr
            assert f"voter 2 at 127.0.0.1:{missing} cannot be reached" in done.stderr


def test_a_watch_of_the_status_continues_without_a_leader(tmp_path: Path) -> None:
    node = RealNode(tmp_path / "n", roles="controller")
    voters = f"1@127.0.0.1:{node.controller_port},2@127.0.0.1:{free_ports(1)[0]}"
    with running(node, "--initial-controllers", voters):
        watch = subprocess.Popen(
            [str(BIN / "quorate"), "status", "-C", f"127.0.0.1:{node.controller_port}", "--watch", "0.1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert watch.stderr is not None
            for _ in range(2):
                while "No leader of the metadata quorum" not in (line := watch.stderr.readline()):
                    assert line, "the watch has ended"
            assert watch.poll() is None
        finally:
            watch.kill()
            watch.communicate()
