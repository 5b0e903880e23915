"""kafka-configs --bootstrap-controller of both implementations, on controllers of both: the configuration of
a controller is requested from that controller, independent of the leader."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from quorate.protocol.errors import KafkaError
from tests.e2e.membership import described, stopping
from tests.support import java
from tests.support.cluster import BIN, Node, free_ports, wait_for

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]


@pytest.fixture(scope="module", params=["quorate", "java"])
def nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    java.require_java()
    base = tmp_path_factory.mktemp(f"by-controller-{request.param}")
    ports = dict(zip((1, 2), free_ports(2), strict=True))
    found = [
        Node(base / f"n{i}", i, impl=request.param, voters=ports, controller_port=port)
        for i, port in ports.items()
    ]
    both = ["MvDxzVmcRsaTz33bUuRU6A", "JsaTz33bUuRU6AMvDxzVmw"]
    text = ",".join(
        f"{n.node_id}@127.0.0.1:{n.controller_port}:{i}" for n, i in zip(found, both, strict=True)
    )
    with stopping(found):
        for node in found:
            node.format("--initial-controllers", text)
            node.start(wait=False)
        for node in found:
            node.wait_ready()
        wait_for("a leader", lambda: leads(found[0]), 60, 0.2)
        yield found


def leads(asked: Node) -> bool:
    try:
        return described(asked).leader_id > 0
    except KafkaError:  # Apache Kafka's controllers refuse clients before the first records are committed
        return False


def run(tool: str, asked: Node, *args: str) -> tuple[int, str]:
    where = ["--bootstrap-controller", f"127.0.0.1:{asked.controller_port}"]
    command = {
        "ours": [str(BIN / "kafka-configs"), *where, *args],
        "theirs": java.command("kafka.admin.ConfigCommand", *where, *args),
    }[tool]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    return done.returncode, done.stdout


def both(asked: Node, *args: str) -> str:
    """The text of both tools, which must be the same."""
    mine, theirs = (run(tool, asked, *args) for tool in ("ours", "theirs"))
    assert mine == theirs, (asked.node_id, args)
    assert mine[0] == 0
    return mine[1]


KEY = "log.retention.ms"


def test_every_controller_is_described_and_changed_through_any(nodes: list[Node]) -> None:
    for asked in nodes:
        for target in nodes:
            change_and_take_back("ours", asked, target)


def test_the_text_is_that_of_apache_kafkas_tool(nodes: list[Node]) -> None:
    leader = nodes[described(nodes[0]).leader_id - 1]
    follower = next(n for n in nodes if n is not leader)
    for asked, target in ((leader, follower), (follower, leader)):
        change_and_take_back("theirs", asked, target)
        entity = ("--entity-type", "brokers", "--entity-name", str(target.node_id))
        assert run("ours", asked, "--alter", *entity, "--add-config", f"{KEY}=123456789")[0] == 0

        def known(asked: Node = asked, entity: tuple[str, ...] = entity) -> bool:
            return "=123456789" in run("ours", asked, "--describe", *entity)[1]

        wait_for("the value", known, 20, 0.1)
        assert f"DYNAMIC_BROKER_CONFIG:{KEY}=123456789" in both(asked, "--describe", *entity)


def change_and_take_back(tool: str, asked: Node, target: Node) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", str(target.node_id))
    value = f"{KEY}=9876{asked.node_id}{target.node_id}"
    assert run(tool, asked, "--alter", *entity, "--add-config", value)[0] == 0
    wait_for("it to be known", lambda: value in run("ours", asked, "--describe", *entity)[1], 20, 0.1)
    assert run(tool, asked, "--alter", *entity, "--delete-config", KEY)[0] == 0
    wait_for("it to be gone", lambda: value not in run("ours", asked, "--describe", *entity)[1], 20, 0.1)


def test_all_controllers_at_once_and_an_unknown_controller(nodes: list[Node]) -> None:
    assert (
        "Default configs for brokers in the cluster are:"
        in run("ours", nodes[0], "--describe", "--entity-type", "brokers")[1]
    )
    said = both(nodes[1], "--describe", "--entity-type", "brokers", "--entity-name", "77")
    assert said == "The broker '77' doesn't exist and doesn't have dynamic config.\n"


def test_each_controller_changes_the_levels_of_its_own_loggers(nodes: list[Node]) -> None:
    """One of the two is the active controller, and the other a standby (KIP-412, KIP-919)."""
    for (asked, target), tool in zip((nodes, nodes[::-1]), ("theirs", "ours"), strict=True):
        entity = ("--entity-type", "broker-loggers", "--entity-name", str(target.node_id))
        assert run(tool, asked, "--alter", *entity, "--add-config", "root=WARN")[0] == 0
        assert "root=WARN " in both(asked, "--describe", *entity)
        assert run("ours", asked, "--alter", *entity, "--add-config", "root=INFO")[0] == 0
