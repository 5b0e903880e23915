"""Controllers whose metadata log is damaged or missing: which do not start, and that the procedure in their
error works."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from quorate.raft.storage.voter_marker import FILE_NAME
from tests.e2e.membership import (
    add,
    broker_of,
    controllers,
    described,
    directory_id,
    observers,
    quorum,
    stopping,
    tool,
    voters,
)
from tests.support import java
from tests.support.cluster import Node, wait_for

pytestmark = pytest.mark.timeout(150)


def log_of(node: Node) -> Path:
    return node.data / "__cluster_metadata-0"


def begin(base: Path, count: int, static: bool = False) -> list[Node]:
    nodes = controllers(base, count, static=static)
    text = ",".join(f"{n.node_id}@127.0.0.1:{n.controller_port}" for n in nodes)
    for node in nodes:
        node.format(*(() if static else ("--initial-controllers", text)))
        node.start()
    wait_for("a leader", lambda: described(nodes[0]).leader_id > 0, 30, 0.1)
    return nodes


def follower(nodes: list[Node]) -> Node:
    leader = described(nodes[0]).leader_id
    return next(n for n in nodes if n.node_id != leader)


def refusal(node: Node) -> str:
    """The error with which the node does not start. A second start must fail with the same error."""
    said = []
    for _ in range(2):
        node.start(wait=False)
        assert node.proc is not None
        assert node.proc.wait(30) == 1
        said.append(next(line for line in node.log_tail().splitlines()[::-1] if "FATAL" in line))
    assert "Traceback" not in node.log_tail(200)
    assert said[0].partition("FATAL")[2] == said[1].partition("FATAL")[2]
    return said[0]


def caught_up(asked: Node, node: Node, voter: bool) -> bool:
    found = described(asked)
    among = found.voters if voter else found.observers
    ends = {v.replica_id: v.log_end_offset for v in (*found.voters, *among)}
    return node.node_id in {v.replica_id for v in among} and ends[node.node_id] == ends[found.leader_id]


def damage(node: Node) -> None:
    """Damages a batch in the middle of the log."""
    (segment,) = log_of(node).glob("*.log")
    data = bytearray(segment.read_bytes())
    data[len(data) // 3] ^= 0xFF
    segment.write_bytes(data)


def lose(node: Node) -> None:
    log_of(node).rename(node.base / "moved away")


@pytest.mark.parametrize("harm", [damage, lose])
def test_a_voter_returns_only_by_the_procedure_that_its_error_names(tmp_path: Path, harm) -> None:  # type: ignore[no-untyped-def]
    nodes: list[Node] = []
    with stopping(nodes):
        nodes += begin(tmp_path, 3)
        wait_for(
            "directory ids", lambda: voters(nodes[0]) == {n.node_id: directory_id(n) for n in nodes}, 30, 0.1
        )
        hurt = follower(nodes)
        asked = next(n for n in nodes if n is not hurt)
        assert hurt.stop() == 0
        harm(hurt)
        said = refusal(hurt)
        assert "copied" not in said
        assert f"move {log_of(hurt)} away" not in said
        steps = (
            f"kafka-metadata-quorum remove-controller --controller-id {hurt.node_id}, move {hurt.data} away, "
            "kafka-storage "
            "format --no-initial-controllers, start this controller, kafka-metadata-quorum add-controller"
        )
        assert steps in said, said
        old = directory_id(hurt)
        assert f"with directory id {old}" in quorum(
            asked, "remove-controller", "--controller-id", hurt.node_id
        )
        hurt.data.rename(hurt.base / "data.damaged")
        hurt.format("--no-initial-controllers")
        hurt.start()
        assert f"Added controller {hurt.node_id}" in add(asked, hurt)
        wait_for("it to have caught up", lambda: caught_up(asked, hurt, True), 30, 0.1)
        assert voters(asked)[hurt.node_id] == directory_id(hurt) != old


@pytest.mark.parametrize("harm", [damage, lose])
def test_a_static_voter_is_formatted_again_as_its_error_says(tmp_path: Path, harm) -> None:  # type: ignore[no-untyped-def]
    nodes: list[Node] = []
    with stopping(nodes):
        nodes += begin(tmp_path, 3, static=True)
        hurt = follower(nodes)
        asked = next(n for n in nodes if n is not hurt)
        assert hurt.stop() == 0
        harm(hurt)
        said = refusal(hurt)
        assert (
            f"move {hurt.data} away, format it again, start this controller, but only while every other "
            "voter runs" in said
        )
        assert "remove-controller" not in said
        wait_for("the others to be caught up", lambda: caught_up(asked, asked, True), 30, 0.1)
        hurt.data.rename(hurt.base / "data.damaged")
        hurt.format()
        hurt.start()
        wait_for("it to have caught up", lambda: caught_up(asked, hurt, True), 30, 0.1)


def test_an_only_voter_does_not_start_without_its_log(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    with stopping([node]):
        node.format()
        node.start()
        tool("kafka-topics", node_by_broker(node), "--create", "--topic", "kept")
        assert node.stop() == 0
        lose(node)
        assert "an only voter is restored from a backup" in refusal(node)
        (node.base / "moved away").rename(log_of(node))
        node.start()
        assert "kept" in tool("kafka-topics", node_by_broker(node), "--list")


@pytest.mark.parametrize("epoch", [1, 9], ids=["cut", "of a later epoch"])
def test_the_log_is_not_deleted_for_a_foreign_snapshot_ahead_of_it(tmp_path: Path, epoch: int) -> None:
    node = Node(tmp_path / "node")
    with stopping([node]):
        node.format()
        node.start()
        tool("kafka-topics", node_by_broker(node), "--create", "--topic", "kept")
        assert node.stop() == 0
        first = (log_of(node) / f"{0:020d}-{0:010d}.checkpoint").read_bytes()
        strange = log_of(node) / f"{9999:020d}-{epoch:010d}.checkpoint"
        strange.write_bytes(first if epoch == 9 else first[:-5])
        said = refusal(node)
        assert str(strange) in said
        assert "is restored from a backup" in said
        strange.unlink()
        node.start()
        assert "kept" in tool("kafka-topics", node_by_broker(node), "--list")


def node_by_broker(node: Node) -> Node:
    """The same node, addressed by its broker listener."""
    return Node(node.base / "client", roles="broker", broker_port=node.broker_port)


def test_brokers_and_observing_controllers_fetch_everything_again(tmp_path: Path) -> None:
    nodes: list[Node] = []
    with stopping(nodes):
        first, second = controllers(tmp_path, 2)
        nodes += [first, second]
        first.format("--standalone")
        first.start()
        second.format("--no-initial-controllers")
        broker = broker_of(tmp_path, [first])
        nodes.append(broker)
        broker.format()
        broker.start()
        second.start()
        for node, number in ((second, 2), (broker, 10)):
            wait_for("it to observe", lambda: number in observers(first), 30, 0.1)  # noqa: B023
            assert node.stop() == 0
            assert not (node.data / FILE_NAME).exists()
            shutil.rmtree(log_of(node))
            node.start()
            wait_for("it to have caught up", lambda: caught_up(first, node, False), 30, 0.1)  # noqa: B023


@pytest.mark.java
def test_a_directory_of_apache_kafka_is_marked_by_our_first_start_and_kafka_ignores_the_marker(
    tmp_path: Path,
) -> None:
    java.require_java()
    node = Node(tmp_path / "node", impl="java")
    with stopping([node]):
        node.format()
        node.start()
        assert node.stop() in (0, 143)
        node.impl = "quorate"
        node.start()
        assert (node.data / FILE_NAME).exists()
        assert node.stop() == 0
        node.impl = "java"
        node.start()
        assert node.stop() in (0, 143)
        node.impl = "quorate"
        node.start()
        assert node.stop() == 0
        lose(node)
        assert "the metadata log is lost" in refusal(node)
