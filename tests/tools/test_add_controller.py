"""kafka-metadata-quorum add-controller: what cannot succeed is said at once, not after the leader's
half minute."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.cluster import BIN, CLUSTER_ID, Node, wait_for
from tests.tools.shell import Shell, node, sh

__all__ = ["node", "sh"]  # fixtures

OTHER_CLUSTER = "RxqVqxVJQ--6m8y8XoVkaw"


@pytest.fixture
def second(node: Node, tmp_path: Path) -> Node:
    """A controller that is not formatted and does not run."""
    return Node(tmp_path / "second", node_id=2, roles="controller", voters={1: node.controller_port})


def refused(sh: Shell, new: Node) -> str:
    """The one line that is said, within a few seconds."""
    began = time.monotonic()
    words = ("--bootstrap-server", sh.node.bootstrap, "--command-config", new.properties, "add-controller")
    done = sh.plain("metadata_quorum", *words)
    assert (done.status, done.err.count("\n")) == (1, 1), done
    assert time.monotonic() - began < 10
    return done.err


def test_a_directory_of_another_cluster_is_refused_at_once(sh: Shell, second: Node) -> None:
    second.format("--no-initial-controllers", cluster_id=OTHER_CLUSTER)
    said = refused(sh, second)
    assert (
        f"{second.data}/meta.properties belongs to cluster {OTHER_CLUSTER}, and this is cluster {CLUSTER_ID}"
        in said
    )
    assert f"--cluster-id {CLUSTER_ID} --no-initial-controllers" in said


def test_a_directory_of_another_node_is_refused_at_once(sh: Shell, second: Node) -> None:
    second.format("--no-initial-controllers")
    second.node_id = 3
    second.write_properties()
    said = refused(sh, second)
    assert f"{second.data}/meta.properties belongs to node.id 2, the configuration to node.id 3" in said


def test_a_controller_where_nobody_listens_is_warned_of_before_the_leader_tries(
    sh: Shell, second: Node, tmp_path: Path
) -> None:
    second.format("--no-initial-controllers")
    said = tmp_path / "stderr"
    command = [str(BIN / "kafka-metadata-quorum"), "--bootstrap-server", sh.node.bootstrap, "add-controller"]
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
