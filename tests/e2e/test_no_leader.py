"""A quorum that cannot elect a leader: the logs of its nodes and kafka-metadata-quorum name the missing
voters."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.membership import broker_of, controllers, described, quorum, stopping
from tests.support.cluster import BIN, Node, wait_for

pytestmark = pytest.mark.timeout(120)


def formatted(base: Path, **places: str) -> list[Node]:
    """Controllers 1 to 3, formatted as voters, none of them running. `places` replaces the host:port of a
    voter in the voter set."""
    nodes = controllers(base, 3)
    where = {f"c{n.node_id}": f"127.0.0.1:{n.controller_port}" for n in nodes} | places
    for node in nodes:
        node.format("--initial-controllers", ",".join(f"{n.node_id}@{where[f'c{n.node_id}']}" for n in nodes))
    return nodes


def told(node: Node) -> list[str]:
    """The lines of its log about a missing leader."""
    return [
        line
        for line in node.log_tail(9999).splitlines()
        if "no leader for" in line or "has not been heard for" in line
    ]


def missing(node: Node, said: str) -> bool:
    """Whether the output of the tool has this node's message. A voter whose pre-vote is not answered follows
    its former leader again."""
    words = r"(no leader for \d+ s|leader \d has not been heard for \d+ s) in epoch \d+: 2 of the 3 voters are needed"
    return re.search(rf"  127\.0\.0\.1:{node.controller_port}: {words}", said) is not None


def status(where: str, option: str = "--bootstrap-controller") -> tuple[int, str, float]:
    """Exit status, output and duration of describe --status."""
    began = time.monotonic()
    command = [str(BIN / "kafka-metadata-quorum"), option, where, "describe", "--status"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - began


def test_the_first_controller_to_start_names_the_unreachable_voters_and_the_reasons(tmp_path: Path) -> None:
    nodes = formatted(tmp_path, c3="no-such-host.invalid:9093")
    first, second, _ = nodes
    with stopping(nodes):
        first.start()
        wait_for("its word", lambda: told(first), 20, 0.1)
        line = told(first)[0]
        assert "INFO [Raft id=1] no leader for" in line
        assert "2 of the 3 voters are needed to elect one" in line
        assert f"voter 2 at 127.0.0.1:{second.controller_port} cannot be reached for" in line
        assert "Connection refused" in line
        assert "voter 3 at no-such-host.invalid:9093 cannot be reached for" in line
        assert "the host name cannot be resolved" in line
        code, said, took_s = status(f"127.0.0.1:{first.controller_port},127.0.0.1:{second.controller_port}")
        assert code == 1 and took_s < 30
        assert "No leader of the metadata quorum has answered" in said
        assert f"  127.0.0.1:{first.controller_port}: no leader for " in said
        assert f"voter 2 at 127.0.0.1:{second.controller_port} cannot be reached for" in said
        assert f"  127.0.0.1:{second.controller_port}: cannot connect" in said
        wait_for("a warning", lambda: any("WARN [Raft id=1] no leader" in x for x in told(first)), 30, 0.2)
        assert len(told(first)) <= 3
        second.start()
        wait_for("a leader", lambda: described(first).leader_id in (1, 2), 30, 0.1)
        count = len(told(first))
        assert "CurrentVoters" in quorum(first, "describe", "--status")
        assert len(told(first)) == count


def test_brokers_and_observing_controllers_name_the_nodes_that_they_query(tmp_path: Path) -> None:
    nodes = controllers(tmp_path, 2)
    _, observer = nodes
    broker = broker_of(tmp_path, nodes)
    with stopping([*nodes, broker]):
        observer.format("--no-initial-controllers")
        broker.format()
        observer.start()
        broker.start(wait=False)
        for node in (observer, broker):
            wait_for("its word", lambda: told(node), 20, 0.1)  # noqa: B023
            assert "this node is no voter and asks the others for it" in told(node)[0]
            assert f"127.0.0.1:{nodes[0].controller_port} cannot be reached for" in told(node)[0]


def test_a_quorum_that_lost_its_majority_is_described_quickly(tmp_path: Path) -> None:
    nodes = formatted(tmp_path)
    broker = broker_of(tmp_path, nodes)
    with stopping([*nodes, broker]):
        for node in nodes:
            node.start()
        broker.format()
        broker.start()
        wait_for("a leader", lambda: described(nodes[0]).leader_id > 0, 30, 0.1)
        for node in nodes[1:]:
            node.kill()
        wait_for("its word", lambda: told(nodes[0]), 30, 0.1)
        code, said, took_s = status(f"127.0.0.1:{nodes[0].controller_port}")
        assert code == 1 and took_s < 30
        assert missing(nodes[0], said)
        began = time.monotonic()
        asked = ("remove-controller", "--controller-id", 2)
        assert missing(nodes[0], quorum(nodes[0], *asked, fails=True))
        assert time.monotonic() - began < 30
        for node in nodes[1:]:
            assert f"voter {node.node_id} at 127.0.0.1:{node.controller_port} cannot be reached for" in said
        code, said, took_s = status(broker.bootstrap, "--bootstrap-server")
        assert code == 1 and took_s < 30
        assert f"  {broker.bootstrap}: " in said


def test_a_configured_timeout_takes_effect(tmp_path: Path) -> None:
    nodes = formatted(tmp_path)
    patient = tmp_path / "patient.properties"
    patient.write_text("default.api.timeout.ms=90000\n")
    with stopping(nodes):
        nodes[0].start()
        command = [
            str(BIN / "kafka-metadata-quorum"), "--bootstrap-controller", f"127.0.0.1:{nodes[0].controller_port}",
            "--command-config", str(patient), "describe", "--status",
        ]  # fmt: skip
        asking = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            wait_for("its word", lambda: any("WARN" in x for x in told(nodes[0])), 30, 0.2)
            assert asking.poll() is None
            nodes[1].start()
            out, _ = asking.communicate(timeout=60)
            assert asking.returncode == 0 and b"CurrentVoters" in out
        finally:
            asking.kill()
