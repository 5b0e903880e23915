"""Mistakes of an operator and steps in the wrong order: the error message helps, and the quorum continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorate.raft.storage.membership_record import FILE_NAME
from tests.e2e.membership import (
    QUICK,
    add,
    controllers,
    described,
    directory_id,
    endpoints,
    knows_directories,
    quorum,
    stopping,
    voters,
)
from tests.support.cluster import Node, free_ports, wait_for

pytestmark = pytest.mark.timeout(150)


def formatted(base: Path, **extra: object) -> list[Node]:
    """Three controllers, none of them running."""
    nodes = controllers(base, 3, **extra)
    text = ",".join(f"{n.node_id}@127.0.0.1:{n.controller_port}" for n in nodes)
    for node in nodes:
        node.format("--initial-controllers", text)
    return nodes


def start(nodes: list[Node]) -> None:
    """Starts the nodes and waits until the first of them knows a leader."""
    for node in nodes:
        node.start()
    wait_for("a quorum", lambda: leads(nodes[0]) > 0, 30, 0.2)


def leads(node: Node) -> int:
    return described(node).leader_id


def silent_ms(leader: Node, voter: Node) -> int:
    """The time in ms since its last Fetch from the leader."""
    fetched = {v.replica_id: v.last_fetch_ms for v in described(leader).voters}
    return fetched[leader.node_id] - fetched[voter.node_id]


def test_a_removal_that_could_not_be_committed_is_refused_and_that_of_the_dead_voter_is_not(
    tmp_path: Path,
) -> None:
    nodes = formatted(tmp_path)
    with stopping(nodes):
        for node in nodes:
            node.start()
        wait_for(
            "three voters with their directories in the voter set",
            lambda: all(map(knows_directories, nodes)),
            30,
            0.2,
        )
        leader = nodes[leads(nodes[0]) - 1]
        gone, other = (n for n in nodes if n is not leader)
        gone.kill()
        wait_for(
            "the leader to miss it",
            lambda: silent_ms(leader, gone) > QUICK["controller.quorum.fetch.timeout.ms"],
            10,
            0.05,
        )
        said = quorum(leader, "remove-controller", "--controller-id", other.node_id, fails=True)
        assert f"2 must be up, but voter {gone.node_id} has not fetched for" in said, said
        assert f"start {gone.node_id} first, or remove {gone.node_id} first" in said
        assert "Removed" in quorum(leader, "remove-controller", "--controller-id", gone.node_id)
        assert set(voters(leader)) == {leader.node_id, other.node_id}
        assert "Removed" in quorum(leader, "remove-controller", "--controller-id", other.node_id)


def test_a_formatted_voter_that_was_removed_before_its_first_start_does_not_join_by_itself(
    tmp_path: Path,
) -> None:
    nodes = formatted(tmp_path, **{"controller.quorum.auto.join.enable": "true"})
    with stopping(nodes):
        start(nodes[:2])
        late = nodes[2]
        assert "Removed" in quorum(
            nodes[0], "remove-controller", "--controller-id", 3, "--controller-directory-id", "A" * 22
        )
        late.start()
        noted = late.data / "__cluster_metadata-0" / FILE_NAME
        wait_for("its removal to be noted", lambda: '"removed"' in noted.read_text(), 30, 0.1)
        late.stop()
        late.start()
        wait_for("it to observe", lambda: 3 in {o.replica_id for o in described(nodes[0]).observers}, 30, 0.1)
        assert "Added controller 3" in add(nodes[0], late)
        assert voters(nodes[0])[3] == directory_id(late)


def test_a_static_quorum_refuses_an_addition_for_that_reason_alone(tmp_path: Path) -> None:
    nodes = controllers(tmp_path, 1, static=True)
    new = Node(tmp_path / "new", node_id=4, roles="controller", voters=dict(nodes[0].voters))  # it never runs
    with stopping(nodes):
        nodes[0].format()
        nodes[0].start()
        new.format("--no-initial-controllers")
        wait_for("a leader", lambda: leads(nodes[0]) > 0, 30, 0.1)
        for said in (
            add(nodes[0], new, fails=True),
            quorum(nodes[0], "add-controller", "--controller-id", 4, fails=True),
        ):
            assert said.startswith("org.apache.kafka.common.errors.UnsupportedVersionException: ")
            assert said.strip().endswith(
                "kraft.version feature is 0. Upgrade it first: kafka-features upgrade --feature "
                "kraft.version=1"
            )


def test_voters_that_start_together_report_their_directory_ids_without_warnings(tmp_path: Path) -> None:
    nodes = formatted(tmp_path)
    with stopping(nodes):
        for node in nodes:
            node.start(wait=False)
        for node in nodes:
            node.wait_ready()
        wait_for("three directories in the voter set", lambda: all(map(knows_directories, nodes)), 30, 0.2)
        assert not [
            line for node in nodes for line in node.log_tail(9999).splitlines() if "UpdateRaftVoter" in line
        ]


def test_a_voter_whose_log_was_deleted_does_not_start(tmp_path: Path) -> None:
    nodes = formatted(tmp_path)
    with stopping(nodes):
        start(nodes)
        gone = nodes[2]
        gone.stop()
        for file in (gone.data / "__cluster_metadata-0").glob("*.log"):
            file.unlink()
        for _ in range(2):
            with pytest.raises(AssertionError):
                gone.start()
            said = gone.log_tail(5)
            assert "there is neither a log segment (*.log) nor a snapshot" in said, said
            assert "kafka-metadata-quorum remove-controller --controller-id 3, move" in said


def listening(node: Node, *names: str) -> Node:
    """Configures these listeners for the next start; each listener keeps its port."""
    ports: dict[str, int] = node.__dict__.setdefault("ports", {"CONTROLLER": node.controller_port})
    for name in names:
        ports.setdefault(name, free_ports(1)[0])
    node.controller_port = ports[names[0]]
    node.extra |= {
        "listeners": ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in names),
        "controller.listener.names": ",".join(names),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
    }
    node.write_properties()
    return node


def test_a_renamed_listener_is_reported_and_the_documented_procedure_works(tmp_path: Path) -> None:
    nodes = formatted(tmp_path)
    with stopping(nodes):
        start(nodes)
        one = nodes[2]
        one.stop()
        one.extra |= {
            "listeners": f"CTRL://127.0.0.1:{one.controller_port}",
            "controller.listener.names": "CTRL",
            "listener.security.protocol.map": "CTRL:PLAINTEXT",
        }
        one.write_properties()
        one.start()
        wait_for("the warning", lambda: "voter 1, 2 cannot be reached" in one.log_tail(200), 30, 0.2)
        assert "listener for the quorum is CTRL" in one.log_tail(200)
        one.stop()
        for names in (("CONTROLLER", "CTRL"), ("CTRL", "CONTROLLER"), ("CTRL",)):
            for node in nodes:
                if node.proc is not None:
                    node.stop()
                listening(node, *names).start()
                where = f"{names[0]}://127.0.0.1:{node.controller_port}"

                def told(node: Node = node, names: tuple[str, ...] = names) -> bool:
                    known = {v: sorted(name for name, *_ in e) for v, e in described(node).endpoints.items()}
                    return known[node.node_id] == sorted(names)

                wait_for(f"{where} to be known", told, 30, 0.2)
        assert endpoints(nodes[0]) == {n.node_id: f"CTRL://127.0.0.1:{n.controller_port}" for n in nodes}
