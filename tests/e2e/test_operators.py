"""Nodes under operators and their scripts: starts, monitoring and stops."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.cluster import BIN, Node, free_ports, wait_for
from tests.support.differential import CLOSED, Peer

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "node")
    node.format()
    yield node
    node.kill()


def start(node: Node, before: str = "", *words: str, env: dict[str, str] | None = None) -> None:
    """Starts the node through a shell that first runs `before`, as init scripts do, and waits until the node
    accepts requests."""
    log = node.base / "out.log"
    command = f"{before} exec '{BIN}/kafka-server-start' '{node.properties}' {' '.join(words)}"
    with log.open("ab") as out:
        node.proc = subprocess.Popen(["sh", "-c", command], stdout=out, stderr=out, env=env)
    node.wait_ready(20)


def test_a_node_without_standard_streams_runs_and_stops(node: Node) -> None:
    start(node, "exec 0<&- 1>&- 2>&-;")
    node.admin().list_topics(timeout=10)
    assert node.stop() == 0


def test_a_node_without_a_home_in_a_folder_that_it_cannot_write(node: Node) -> None:
    start(node, "cd /proc;", env={"PATH": os.environ["PATH"]})
    assert node.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_the_parent_ignores_stays_ignored(node: Node, number: signal.Signals) -> None:
    """`nohup`, or `&` in a script: the end of the terminal must not stop the node."""
    start(node, f"trap '' {number.name[3:]};")
    assert node.proc is not None
    node.proc.send_signal(number)
    node.admin().list_topics(timeout=10)
    assert node.proc.poll() is None
    assert node.stop() == 0
    assert f"{number.name}: shutting down" not in node.log_tail()


def test_a_closed_output_pipe_does_not_stop_the_node(node: Node) -> None:
    proc = node.proc = subprocess.Popen(
        [str(BIN / "kafka-server-start"), str(node.properties), "--log-level", "DEBUG"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert proc.stdout is not None
    assert proc.stdout.readline()
    proc.stdout.close()
    node.wait_ready(20)
    assert node.stop() == 0


def test_a_repeated_key_is_logged(node: Node) -> None:
    with node.properties.open("a") as f:
        f.write("num.partitions=3\nnum.partitions=5\n")
    start(node)
    assert "num.partitions is set 2 times; the last value, 5, counts" in node.log_tail()


def test_a_byte_order_mark_is_not_part_of_a_key(node: Node) -> None:
    node.properties.write_bytes(b"\xef\xbb\xbf" + node.properties.read_bytes().replace(b"\n", b"\r\n"))
    start(node)
    assert node.stop() == 0


def test_a_first_start_logs_no_recovery(node: Node) -> None:
    start(node)
    assert "not closed cleanly" not in node.log_tail()
    node.kill()
    node.base.joinpath("out.log").unlink()
    start(node)
    assert "not closed cleanly" not in node.log_tail()  # there is no log yet that could need it


def test_port_0_is_advertised_as_the_bound_port(tmp_path: Path) -> None:
    controller = free_ports(1)[0]
    node = Node(
        tmp_path / "node", extra={"listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{controller}"}
    )
    node.voters = {1: controller}
    node.write_properties()
    node.format()
    try:
        node.start(wait=False)
        wait_for("the node", lambda: "Kafka Server started" in node.log_tail())
        line = next(x for x in node.log_tail().splitlines() if "[Listener PLAINTEXT] serving on" in x)
        node.broker_port = int(line.split("127.0.0.1:")[1].split()[0])
        assert [b.port for b in node.admin().list_topics(timeout=10).brokers.values()] == [node.broker_port]
    finally:
        node.kill()


def served(node: Node, connections: int) -> int:
    """The number of connections that are served when this many are opened at once."""
    peers = [Peer(str(number), {"broker": node.broker_port}) for number in range(connections)]
    try:
        return sum(peer.ask(ApiVersionsRequest(), 0).shown != CLOSED for peer in peers)
    finally:
        for peer in peers:
            peer.close()


@pytest.mark.parametrize(
    "limit", ["max.connections=6", "max.connections.per.ip=6", "max.connections.per.ip.overrides=127.0.0.1:6"]
)
def test_limits_on_connections_are_changed_while_the_node_runs(node: Node, limit: str) -> None:
    def alter(change: str, value: str) -> None:
        command = [
            str(BIN / "kafka-configs"),
            "--bootstrap-server",
            node.bootstrap,
            "--alter",
            "--entity-type",
            "brokers",
        ]
        done = subprocess.run(
            [*command, "--entity-default", change, value], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    start(node)
    assert served(node, 12) == 12
    alter("--add-config", limit)
    wait_for("the limit to be in force", lambda: 0 < served(node, 12) <= 6)
    assert node.stop() == 0
    start(node)
    wait_for("the limit to be in force after a restart", lambda: 0 < served(node, 12) <= 6)
    alter("--delete-config", limit.partition("=")[0])
    wait_for("the limit to be gone", lambda: served(node, 12) == 12)
