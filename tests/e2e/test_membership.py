"""The documented ways of changing a quorum, by the documented commands, on real controllers (KIP-853)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.membership import (
    add,
    controllers,
    directory_id,
    knows_directories,
    observers,
    quorum,
    stopping,
    voters,
)
from tests.support.cluster import BIN, CLUSTER_ID, wait_for

pytestmark = pytest.mark.timeout(120)


def test_controllers_join_by_themselves_and_a_removed_one_does_not_until_it_is_added(tmp_path: Path) -> None:
    nodes = controllers(tmp_path, 3, **{"controller.quorum.auto.join.enable": "true"})
    with stopping(nodes):
        nodes[0].format("--standalone")
        for node in nodes[1:]:
            node.format("--no-initial-controllers")
        for node in nodes:
            node.start()
        wait_for("three voters", lambda: set(voters(nodes[0])) == {1, 2, 3}, 30, 0.2)
        removed = quorum(nodes[0], "remove-controller", "--controller-id", 3)
        assert f"Removed KRaft controller 3 with directory id {directory_id(nodes[2])}" in removed
        assert re.search(r"Warning: controller 3 fetched [01]\.\d s before it was removed", removed)
        wait_for("an observer", lambda: 3 in observers(nodes[0]), 10, 0.2)
        nodes[2].stop()
        nodes[2].start()
        wait_for("it to fetch again", lambda: 3 in observers(nodes[0]), 10, 0.2)
        wait_for("more than two of its periods", _elapsed(2.5 * 3 * 0.6), 10, 0.1)
        assert set(voters(nodes[0])) == {1, 2}
        added = quorum(nodes[0], "add-controller", "--controller-id", 3)
        assert f"Added controller 3 with directory id {directory_id(nodes[2])}" in added
        assert set(voters(nodes[0])) == {1, 2, 3}


def _elapsed(seconds: float):  # type: ignore[no-untyped-def]
    """Waits for this time, to check that nothing happens."""
    import time

    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def test_a_disk_is_replaced_under_the_same_id(tmp_path: Path) -> None:
    nodes = controllers(tmp_path, 3)
    with stopping(nodes):
        initial = ",".join(
            f"{n.node_id}@127.0.0.1:{n.controller_port}" for n in nodes
        )  # directory ids are filled in
        for node in nodes:
            node.format("--initial-controllers", initial)
            node.start()
        wait_for(
            "directory ids", lambda: voters(nodes[0]) == {n.node_id: directory_id(n) for n in nodes}, 30, 0.2
        )
        old = directory_id(nodes[2])
        nodes[2].stop()
        shutil.rmtree(nodes[2].data)
        nodes[2].format("--no-initial-controllers")
        nodes[2].start()
        told = add(nodes[0], nodes[2], fails=True)
        assert "DuplicateVoter" in told
        assert f"remove-controller --controller-id 3 --controller-directory-id {old}" in told
        quorum(nodes[0], "remove-controller", "--controller-id", 3, "--controller-uuid", old)
        add(nodes[0], nodes[2])
        assert voters(nodes[0])[3] == directory_id(nodes[2]) != old


def test_a_replaced_disk_joins_by_itself_where_the_first_voters_had_no_directory_ids(tmp_path: Path) -> None:
    nodes = controllers(tmp_path, 3, **{"controller.quorum.auto.join.enable": "true"})
    with stopping(nodes):
        initial = ",".join(f"{n.node_id}@127.0.0.1:{n.controller_port}" for n in nodes)
        for node in nodes:
            node.format("--initial-controllers", initial)
            node.start()
        wait_for("directory ids", lambda: all(map(knows_directories, nodes)), 30, 0.2)
        old = directory_id(nodes[2])
        assert nodes[2].stop() == 0
        shutil.rmtree(nodes[2].data)
        (nodes[2].base / "out.log").unlink()
        nodes[2].format("--no-initial-controllers")
        nodes[2].start()
        wait_for(
            "it to have joined", lambda: voters(nodes[0]).get(3) == directory_id(nodes[2]) != old, 30, 0.2
        )
        assert "removed" not in nodes[2].log_tail(9999)


def test_an_addition_that_times_out_names_the_controller_that_does_not_fetch(tmp_path: Path) -> None:
    nodes = controllers(tmp_path, 2)
    with stopping(nodes):
        nodes[0].format("--standalone")
        nodes[0].start()
        again = subprocess.run(
            [
                str(BIN / "kafka-storage"),
                "format",
                "-t",
                CLUSTER_ID,
                "-c",
                str(nodes[1].properties),
                "--standalone",
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert again.returncode != 0
        assert "already answers as a controller of cluster" in again.stderr
        nodes[1].format("--no-initial-controllers")
        assert "Start it" in quorum(nodes[0], "add-controller", "--controller-id", 2, fails=True)
        adding = subprocess.Popen(
            [str(BIN / "kafka-metadata-quorum"), "--bootstrap-controller", f"127.0.0.1:{nodes[0].controller_port}",
             "--command-config", str(nodes[1].properties), "add-controller"],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        wait_for("the request to wait", lambda: adding.poll() is None, 5)
        nodes[1].start()
        out, _ = adding.communicate(timeout=40)
        assert (adding.returncode, out.startswith(b"Added controller 2")) == (0, True)
