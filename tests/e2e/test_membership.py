"""The documented ways of changing a quorum, by the documented commands, on real controllers (KIP-853)."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cluster import BIN, CLUSTER_ID, Node, free_ports, wait_for

pytestmark = pytest.mark.timeout(120)
QUICK = {"controller.quorum.fetch.timeout.ms": 600, "controller.quorum.election.timeout.ms": 300}


def controllers(base: Path, count: int, static: bool = False, **extra: object) -> list[Node]:
    ports = dict(zip(range(1, count + 1), free_ports(count), strict=True))
    return [
        Node(
            base / f"c{i}",
            node_id=i,
            roles="controller",
            static=static,
            voters=ports,
            controller_port=port,
            extra={**QUICK, **extra},
        )
        for i, port in ports.items()
    ]


@contextmanager
def stopping(nodes: list[Node]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        print(*(f"--- {n.node_id}\n{n.log_tail(40)}" for n in nodes), sep="\n")
        raise
    finally:
        for node in nodes:
            node.kill()


def tool(name: str, node: Node, *args: object, fails: bool = False) -> str:
    command = [str(BIN / name), "--bootstrap-controller", f"127.0.0.1:{node.controller_port}", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode != 0) is fails, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def quorum(node: Node, *args: object, fails: bool = False) -> str:
    return tool("kafka-metadata-quorum", node, *args, fails=fails)


def described(node: Node) -> dict[str, object]:
    found: dict[str, object] = json.loads(quorum(node, "describe", "--status", "--json"))
    return found


def voters(node: Node) -> dict[int, str]:
    """id -> directory id."""
    return {v["id"]: v.get("directoryId", "") for v in described(node)["currentVoters"]}  # type: ignore[attr-defined]


def observers(node: Node) -> set[int]:
    return {o["id"] for o in described(node)["currentObservers"]}  # type: ignore[attr-defined]


def directory_id(node: Node) -> str:
    lines = (node.data / "meta.properties").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))


def test_controllers_join_by_themselves_and_who_was_removed_stays_out_until_added(tmp_path: Path) -> None:
    nodes = controllers(tmp_path, 3, **{"controller.quorum.auto.join.enable": "true"})
    with stopping(nodes):
        nodes[0].format("--standalone")
        for node in nodes[1:]:
            node.format("--no-initial-controllers")
        for node in nodes:
            node.start()
        wait_for("three voters", lambda: set(voters(nodes[0])) == {1, 2, 3}, 30, 0.2)
        removed = quorum(nodes[0], "remove-controller", "--controller-id", 3)
        assert f"Removed  KRaft controller 3 with directory id {directory_id(nodes[2])}" in removed
        assert "Warning: controller 3 is running" in removed
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
    """Nothing is to happen for so long: the one thing that only time can show."""
    import time

    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def test_a_disk_is_replaced_under_the_same_id(tmp_path: Path) -> None:
    nodes = controllers(tmp_path, 3)
    with stopping(nodes):
        initial = ",".join(f"{n.node_id}@127.0.0.1:{n.controller_port}" for n in nodes)  # directory ids are filled in
        for node in nodes:
            node.format("--initial-controllers", initial)
            node.start()
        wait_for("directory ids", lambda: voters(nodes[0]) == {n.node_id: directory_id(n) for n in nodes}, 30, 0.2)
        old = directory_id(nodes[2])
        nodes[2].stop()
        shutil.rmtree(nodes[2].data)
        nodes[2].format("--no-initial-controllers")
        nodes[2].start()
        told = quorum(nodes[0], "--command-config", nodes[2].properties, "add-controller", fails=True)
        assert "DuplicateVoter" in told
        assert f"remove-controller --controller-id 3 --controller-directory-id {old}" in told
        quorum(nodes[0], "remove-controller", "--controller-id", 3, "--controller-uuid", old)
        quorum(nodes[0], "--command-config", nodes[2].properties, "add-controller")
        assert voters(nodes[0])[3] == directory_id(nodes[2]) != old


def test_a_controller_that_does_not_come_is_named_when_the_time_is_over(tmp_path: Path) -> None:
    nodes = controllers(tmp_path, 2)
    with stopping(nodes):
        nodes[0].format("--standalone")
        nodes[0].start()
        again = subprocess.run(
            [str(BIN / "kafka-storage"), "format", "-t", CLUSTER_ID, "-c", str(nodes[1].properties), "--standalone"],
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


def test_a_static_quorum_becomes_a_dynamic_one(tmp_path: Path) -> None:
    nodes = controllers(tmp_path, 3, static=True)
    with stopping(nodes):
        for node in nodes:
            node.format()
            node.start()
        wait_for("a leader", lambda: described(nodes[0])["leaderId"] in (1, 2, 3), 30, 0.2)
        assert set(voters(nodes[0]).values()) <= {"", *(directory_id(n) for n in nodes)}

        def upgraded() -> bool:
            try:
                return "upgraded" in tool("kafka-features", nodes[0], "upgrade", "--feature", "kraft.version=1")
            except AssertionError as e:  # a voter has not told its directory id yet
                if "has not told" in str(e) or "registered" in str(e) or "Could not upgrade" in str(e):
                    return False
                raise

        wait_for("the upgrade", upgraded, 30, 0.3)
        wait_for("directory ids", lambda: voters(nodes[0]) == {n.node_id: directory_id(n) for n in nodes}, 20, 0.2)
        for node in nodes:  # one after the other, without the static voters
            assert node.stop() == 0
            node.static = False
            node.write_properties()
            node.start()
            wait_for("it to vote", lambda: set(voters(nodes[0])) == {1, 2, 3}, 30, 0.2)
        quorum(nodes[0], "remove-controller", "-i", 3)
        assert set(voters(nodes[0])) == {1, 2}
