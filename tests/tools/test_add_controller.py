"""kafka-metadata-quorum add-controller: what cannot succeed is said at once, not after the leader's
half minute."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from quorate.testing import KafkaCluster
from tests.support.cluster import BIN, Node, wait_for
from tests.tools.shell import Shell, sh

__all__ = ["sh"]  # a fixture

OTHER_CLUSTER = "RxqVqxVJQ--6m8y8XoVkaw"


@pytest.fixture
def second(kafka_cluster: KafkaCluster, tmp_path: Path) -> Node:
    """A controller that is not formatted and does not run."""
    port = int(kafka_cluster.bootstrap_controllers.rpartition(":")[2])
    return Node(tmp_path / "second", node_id=2, roles="controller", voters={1: port})


def refused(sh: Shell, new: Node) -> str:
    """The one line that is said, within a few seconds."""
    began = time.monotonic()
    words = ("--bootstrap-server", sh.servers, "--command-config", new.properties, "add-controller")
    done = sh.plain("metadata_quorum", *words)
    assert (done.status, done.err.count("\n")) == (1, 1), done
    assert time.monotonic() - began < 10
    return done.err


def test_a_directory_of_another_cluster_is_refused_at_once(sh: Shell, second: Node) -> None:
    second.format("--no-initial-controllers", cluster_id=OTHER_CLUSTER)
    said = refused(sh, second)
    assert (
        f"{second.data}/meta.properties belongs to cluster {OTHER_CLUSTER}, and this is cluster "
        f"{sh.cluster.cluster_id}" in said
    )
    assert f"--cluster-id {sh.cluster.cluster_id} --no-initial-controllers" in said


def test_a_directory_of_another_node_is_refused_at_once(sh: Shell, second: Node) -> None:
    second.format("--no-initial-controllers", cluster_id=sh.cluster.cluster_id)
    second.node_id = 3
    second.write_properties()
    said = refused(sh, second)
    assert f"{second.data}/meta.properties belongs to node.id 2, the configuration to node.id 3" in said


def test_a_controller_where_nobody_listens_is_warned_of_before_the_leader_tries(
    sh: Shell, second: Node, tmp_path: Path
) -> None:
    second.format("--no-initial-controllers", cluster_id=sh.cluster.cluster_id)
    said = tmp_path / "stderr"
    command = [str(BIN / "kafka-metadata-quorum"), "--bootstrap-server", sh.servers, "add-controller"]
    with said.open("wb") as err:
        proc = subprocess.Popen(
            [*command, "--config", str(second.properties)], stdout=subprocess.DEVNULL, stderr=err
        )
    try:
        port = second.controller_port
        warning = f"Warning: cannot connect to 127.0.0.1:{port}: "
        wait_for("the warning", lambda: said.read_text().startswith(warning), 10)
        assert (
            f"The leader asks controller 2 at CONTROLLER://127.0.0.1:{port}, for up to 30 s: start it"
            in said.read_text()
        )
        assert proc.poll() is None
    finally:
        proc.send_signal(signal.SIGINT)
        assert proc.wait(10) == 130
    assert said.read_text().count("\n") == 1
