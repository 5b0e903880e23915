"""Changes of endpoints, replacement of all controllers, and the upgrade of a static quorum to a dynamic one,
each with a running broker."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.membership import (
    add,
    broker_of,
    controllers,
    described,
    directory_id,
    endpoints,
    metrics,
    moved,
    quorum,
    state,
    stopping,
    tool,
    voters,
)
from tests.support.cluster import BIN, Node, free_ports, wait_for
from tests.support.slow_disk import SlowDisk

pytestmark = pytest.mark.timeout(150)


def create(broker: Node, name: str) -> None:
    assert tool("kafka-topics", broker, "--create", "--topic", name) == f"Created topic {name}.\n"


def topics(broker: Node) -> list[str]:
    return tool("kafka-topics", broker, "--list").split()


def at(node: Node) -> str:
    return f"CONTROLLER://127.0.0.1:{node.controller_port}"


def known(asked: Node, *nodes: Node) -> Callable[[], bool]:
    """Whether the quorum, as described by this node, has the current endpoints of these nodes."""
    return lambda: {n.node_id: at(n) for n in nodes}.items() <= endpoints(asked).items()


def begin(nodes: list[Node], broker: Node) -> None:
    """Formats and starts a dynamic quorum and a broker."""
    text = ",".join(f"{n.node_id}@127.0.0.1:{n.controller_port}" for n in nodes)
    for node in nodes:
        node.format("--initial-controllers", text)
        node.start()
    broker.format()
    broker.start()


def test_three_controllers_form_a_quorum_from_the_same_list_in_any_notation(tmp_path: Path) -> None:
    nodes = controllers(tmp_path, 3)
    where = [f"127.0.0.1:{n.controller_port}" for n in nodes]
    first, second = "MvDxzVmcRsaTz33bUuRU6A", "JsaTz33bUuRU6AMvDxzVmw"
    # The notations of Kafka and of KIP-853, and a voter without a directory id.
    text = f"1@{where[0]}:{first},2-{second}@{where[1]},3@{where[2]}"
    with stopping(nodes):
        for node, option in zip(
            nodes,
            ("--initial-controllers", "--controller-quorum-voters", "--initial-controllers"),
            strict=True,
        ):
            node.format(option, text)
            node.start()
        third = directory_id(nodes[2])
        wait_for(
            "the third to be filled in", lambda: voters(nodes[0]) == {1: first, 2: second, 3: third}, 30, 0.2
        )
        assert [directory_id(n) for n in nodes[:2]] == [first, second]
        assert endpoints(nodes[2]) == {n.node_id: at(n) for n in nodes}


def test_a_voter_that_moves_to_another_port_is_found_by_all_nodes(tmp_path: Path) -> None:
    nodes = controllers(tmp_path, 3)
    broker = broker_of(tmp_path, nodes)
    with stopping([*nodes, broker]):
        begin(nodes, broker)
        for (
            node
        ) in nodes:  # the leader among them, in its turn; in the end no configured address answers any more
            node.stop()
            moved(node).start()
            wait_for("its new port", known(node, node), 30, 0.2)
        create(broker, "by-the-new-ports")
        broker.stop()
        broker.start()  # whose bootstrap servers are gone: the voters in its own log tell where to go
        assert topics(broker) == ["by-the-new-ports"]
        leader = nodes[described(nodes[0]).leader_id - 1]
        leader.kill()
        create(broker, "while-it-is-away")
        moved(leader).start()
        wait_for("the old leader's new port", known(leader, leader), 30, 0.2)
        wait_for(
            "it to follow", lambda: metrics(leader)["current_leader"] not in (-1, leader.node_id), 10, 0.1
        )


def test_controllers_that_all_moved_at_once_recover_when_one_returns_to_its_old_address(
    tmp_path: Path,
) -> None:
    nodes = controllers(tmp_path, 3)
    broker = broker_of(tmp_path, nodes)
    with stopping([*nodes, broker]):
        begin(nodes, broker)
        create(broker, "before")
        old_port = nodes[0].controller_port
        for node in nodes:
            node.stop()
        for node in nodes:
            moved(node).start(wait=False)
        wait_for(
            "pre-votes in vain",
            lambda: all(n.log_tail(9999).count("-> prospective") > 6 for n in nodes),
            30,
            0.2,
        )
        nodes[0].stop()
        new_port, nodes[0].controller_port = nodes[0].controller_port, old_port
        nodes[0].write_properties()
        nodes[0].start()
        for node in nodes[1:]:
            wait_for("its new port", known(node, node), 30, 0.2)
        create(
            broker, "meanwhile"
        )  # it too knows the old places only, and has found the one of them that answers
        nodes[0].stop()
        nodes[0].controller_port = new_port
        nodes[0].write_properties()
        nodes[0].start()
        wait_for("the last new port", known(nodes[0], nodes[0]), 30, 0.2)
        create(broker, "after")
        assert topics(broker) == ["after", "before", "meanwhile"]


def test_an_only_voter_on_another_port_writes_its_endpoint_when_it_is_elected(tmp_path: Path) -> None:
    (node,) = controllers(tmp_path, 1)
    with stopping([node]):
        node.format("--standalone")
        node.start()
        wait_for("it to lead", lambda: described(node).leader_id == 1, 20, 0.1)
        for end in (node.stop, node.kill):
            end()
            moved(node).start()
            wait_for("its new port", known(node, node), 20, 0.1)


def test_every_controller_is_replaced_while_the_broker_serves(tmp_path: Path) -> None:
    old = controllers(tmp_path, 2)
    broker = broker_of(tmp_path, old)
    ports = dict(zip((3, 4), free_ports(2), strict=True))
    new = [
        Node(
            tmp_path / f"c{i}",
            node_id=i,
            roles="controller",
            voters=old[0].voters,
            controller_port=port,
            extra=old[0].extra,
        )
        for i, port in ports.items()
    ]
    for node in new:
        node.extra = {k: v for k, v in node.extra.items() if k != "quorate.http.listen"}
        node.write_properties()
    with stopping([*old, *new, broker]):
        text = ",".join(f"{n.node_id}@127.0.0.1:{n.controller_port}" for n in old)
        for node in old:
            node.format("--initial-controllers", text)
            node.start()
        broker.format()
        broker.start()
        for come, gone in zip(new, old, strict=True):  # a node is replaced under a new id: add, then remove
            come.format("--no-initial-controllers")
            come.start()
            through = broker if gone is old[0] else old[1]  # brokers forward the request
            assert add(through, come).startswith(f"Added controller {come.node_id}")
            if gone is old[0]:
                gone.kill()  # it is lost; the other one is merely retired
            quorum(old[1], "remove-controller", "--controller-id", gone.node_id)
            create(broker, f"without-{gone.node_id}")
        old[1].stop()
        assert set(voters(new[0])) == {3, 4}
        create(broker, "by-the-new-ones")
        broker.stop()
        broker.start()
        assert topics(broker) == ["by-the-new-ones", "without-1", "without-2"]


def test_a_static_quorum_becomes_a_dynamic_one(tmp_path: Path) -> None:
    nodes = controllers(tmp_path, 3, static=True)
    broker = broker_of(tmp_path, nodes)
    everyone = [*nodes, broker]

    def ignored() -> list[float]:
        return [metrics(node)["ignored_static_voters"] for node in everyone]

    def feature(*args: object, fails: bool = False) -> str:
        return tool("kafka-features", broker, *args, fails=fails)

    with stopping(everyone):
        for node in everyone:
            node.format()
        for node in (*nodes[:2], broker):
            node.start()
        refused = "Invalid update version 1 for feature kraft.version. controller 3 has not registered"
        for more in ((), ("--dry-run",)):
            assert refused in feature("upgrade", "--feature", "kraft.version=1", *more, fails=True)
        assert "kafka-features upgrade --feature kraft.version=1" in quorum(
            nodes[0], "remove-controller", "-i", 3, fails=True
        )
        nodes[2].start()
        dry = ("upgrade", "--feature", "kraft.version=1", "--dry-run")

        def possible() -> bool:
            try:
                return feature(*dry) == "kraft.version can be upgraded to 1.\n"
            except AssertionError as not_yet:
                assert "has not told its directory id" in str(not_yet) or "has not registered" in str(not_yet)
                return False

        wait_for("node 3 to be known", possible, 30, 0.3)
        assert ignored() == [0, 0, 0, 0]
        assert feature("upgrade", "--feature", "kraft.version=1") == "kraft.version was upgraded to 1.\n"
        wait_for("every node to know", lambda: ignored() == [1, 1, 1, 1], 10, 0.1)
        told = metrics(broker)["kafka_server_broker_metadata_metrics_ignored_static_voters"]
        assert (told, metrics(nodes[0])["kafka_controller_kafkacontroller_ignoredstaticvoters"]) == (1, 1)
        assert re.search(
            r"kraft\.version +SupportedMinVersion: 0 +SupportedMaxVersion: 1 +FinalizedVersionLevel: 1 ",
            feature("describe"),
        )
        assert voters(nodes[0]) == {n.node_id: directory_id(n) for n in nodes}
        for words in (
            ("downgrade", "--feature", "kraft.version=0"),
            ("disable", "--feature", "kraft.version"),
        ):
            for more in ((), ("--dry-run",), ("--unsafe",)):
                assert "Invalid update version 0 for feature kraft.version" in feature(
                    *words, *more, fails=True
                )
        for i, node in enumerate(everyone):  # one after the other, without the static voters
            assert node.stop() == 0
            node.static = False
            node.write_properties()
            node.start()
            wait_for("it to know the voters", lambda n=node: metrics(n)["number_of_voters"] == 3, 20, 0.1)
            assert ignored() == [0] * (i + 1) + [1] * (3 - i)
        create(broker, "still-here")
        quorum(nodes[0], "remove-controller", "-i", 3)
        assert set(voters(nodes[0])) == {1, 2}


def test_a_controller_whose_static_voters_were_removed_too_early_warns(tmp_path: Path) -> None:
    (node,) = controllers(tmp_path, 1, static=True)
    with stopping([node]):
        node.format()
        node.start()
        wait_for("it to lead", lambda: described(node).leader_id == 1, 20, 0.1)
        node.stop()
        node.static = False
        node.write_properties()
        node.start()
        assert "kraft.version is 0 and controller.quorum.voters is not set" in node.log_tail(60)
        assert metrics(node)["number_of_voters"] == 0
        node.stop()
        node.static = True
        node.write_properties()
        node.start()
        wait_for("it to lead again", lambda: described(node).leader_id == 1, 20, 0.1)


def test_an_uncommitted_removal_of_the_leader_is_described(tmp_path: Path) -> None:
    nodes = controllers(tmp_path, 3, **{"controller.quorum.fetch.timeout.ms": 8000})
    with stopping(nodes):
        text = ",".join(f"{n.node_id}@127.0.0.1:{n.controller_port}" for n in nodes)
        disks = {}
        for node in nodes:
            node.format("--initial-controllers", text)
            disks[node.node_id] = SlowDisk(node.base)
            node.start(env=disks[node.node_id].env)
        wait_for(
            "every directory id",
            lambda: voters(nodes[0]) == {n.node_id: directory_id(n) for n in nodes},
            30,
            0.2,
        )
        leader = nodes[described(nodes[0]).leader_id - 1]
        others = [n for n in nodes if n is not leader]
        assert metrics(leader)["uncommitted_voter_change"] == 0
        for node in others:  # they fetch, and take long to write what they get
            disks[node.node_id].set(fsync_ms=5_000)
        removing = subprocess.Popen(
            [str(BIN / "kafka-metadata-quorum"), "--bootstrap-controller", f"127.0.0.1:{leader.controller_port}",
             "remove-controller", "--controller-id", str(leader.node_id)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        wait_for(
            "the record in the leader's log",
            lambda: metrics(leader)["uncommitted_voter_change"] == 1,
            8,
            0.05,
        )
        now = metrics(leader)
        assert (now["pending_remove_voter"], now["pending_add_voter"], now["is_observer"]) == (1, 0, 1)
        assert (now["number_of_voters"], state(leader)) == (2, "leader")
        shown = quorum(leader, "describe", "--status")
        gone = json.dumps({"id": leader.node_id, "directoryId": directory_id(leader)})
        assert shown.splitlines()[-1] == f"UncommittedRemovedVoter:  {gone}"
        assert [line.split()[-1] for line in quorum(leader, "describe", "--replication").splitlines()[1:]] == [
            "Leader", "Follower", "Follower",
        ]  # fmt: skip
        for node in others:
            disks[node.node_id].set()
        out, _ = removing.communicate(timeout=40)
        assert (removing.returncode, out.startswith(f"Removed KRaft controller {leader.node_id}")) == (
            0,
            True,
        ), out
        wait_for("one of the others to lead", lambda: "leader" in [state(n) for n in others], 20, 0.1)
        assert set(voters(others[0])) == {n.node_id for n in others}
