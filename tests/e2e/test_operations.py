"""The operations of `quorate` on real clusters: complete, refused, and killed in between and
continued under load."""

from __future__ import annotations

import contextlib
import random
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.admin.client import AdminClient as AsyncClient
from quorate.admin.sync import AdminClient
from quorate.metadata.features import parse_version
from quorate.protocol.uuids import uuid_text
from quorate.tools.shell.follower import Follower
from tests.e2e.operations import TOPIC, Event, OperatedCluster, Tool, killed_and_continued, kinds, plain
from tests.support import java
from tests.support.cluster import Node, free_ports, wait_for

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def operated(tmp_path: Path) -> Iterator[Callable[..., OperatedCluster]]:
    with contextlib.ExitStack() as cleanup:

        def create(**options: Any) -> OperatedCluster:
            cluster = OperatedCluster(tmp_path, **options)
            cleanup.callback(cluster.close)
            return cluster

        yield create


def test_a_rolling_restart_that_is_killed_continues_and_loses_nothing(
    operated: Callable[..., OperatedCluster],
) -> None:
    cluster = operated(replicas=3, min_isr=2)
    rng, seen = random.Random(7), 0

    def kill_at(event: Event) -> bool:
        nonlocal seen
        seen += 1
        return seen in (1, 4, 6, 9, 12)

    command = ["rolling-restart", "--bootstrap-server", cluster.servers, "--yes", "--json", "--timeout", "90"]
    command += ["--restart-command", cluster.machines.command("restart")]
    before = {node: cluster.pid(node) for node in list(cluster.nodes)}
    events = killed_and_continued(command, kill_at, rng)
    assert events[-1]["event"] == "done"
    assert all(cluster.pid(node) not in (None, pid) for node, pid in before.items())
    restarted = [node for _, node in cluster.machines.calls]
    assert sorted(set(restarted)) == list(cluster.nodes)
    assert set(restarted[:3]) <= set(cluster.broker_ids)
    assert len(restarted) <= len(before) + 5, "a node was restarted again that had started since"
    cluster.check()


def test_a_decommission_that_is_killed_at_each_step_continues_and_loses_nothing(
    operated: Callable[..., OperatedCluster],
) -> None:
    cluster = operated(replicas=2, min_isr=2)
    leaving = cluster.broker_ids[-1]
    rng, seen = random.Random(11), set()

    def kill_at(event: Event) -> bool:
        new = event["kind"] not in seen
        seen.add(event["kind"])
        return new

    command = ["decommission", str(leaving), "--bootstrap-server", cluster.servers, "--yes", "--json"]
    command += ["--stop-command", cluster.machines.command("stop"), "--max-moves", "2", "--timeout", "90"]
    events = killed_and_continued([*command, "--throttle", "10000000"], kill_at, rng)
    assert events[-1]["event"] == "done"
    assert {"cordon", "move", "wait-moves", "clear-throttle", "stop"} <= set(kinds(events))
    assert len([event for event in events if event["event"] == "plan"]) >= 4, "it was hardly ever killed"
    assert not cluster.nodes[leaving].running
    assert leaving not in [node.id for node in cluster.admin.describe_cluster(fenced=True).nodes]
    described = cluster.admin.describe_topics([TOPIC])[TOPIC]
    assert all(leaving not in p.replicas and len(p.isr) == 2 for p in described.partitions)
    follower = Follower(lambda: AsyncClient(bootstrap_controllers=cluster.controllers))
    configs = follower.metadata[0].configs
    follower.close()
    assert dict(configs.broker(leaving)) == {}
    assert dict(configs.topic(TOPIC)) == {"min.insync.replicas": "2"}
    assert all("throttled" not in name for node in cluster.broker_ids for name in configs.broker(node))
    [again] = [e for e in Tool(*command).finish() if e["event"] == "done"]
    assert again["notes"] == [f"broker {leaving} is not registered"]
    cluster.check()


def interrupted_by_a_death(
    cluster: OperatedCluster, command: list[str], step: str, victim: int
) -> list[Event]:
    """Runs a command, and kills a node when the command has announced a step, before it performs it.

    If the command ends with an error, it must say how to continue, and this is done. Returns all
    events.
    """
    events: list[Event] = []
    alive = True
    while True:
        tool = Tool(*command)
        for event in tool:
            if alive and event["event"] == "step" and event["kind"] == step:
                cluster.nodes[victim].kill()
                alive = False
        if tool.process.wait(30) == 0:
            return events + tool.events
        assert tool.process.stderr is not None
        said = tool.process.stderr.read()
        assert not alive and "Traceback" not in said, said
        events += tool.events
        command = shlex.split(said.split("To continue: quorate ")[1].splitlines()[0])


@pytest.mark.parametrize("step", ["cordon", "move", "stop"])
def test_a_broker_that_dies_before_a_step_of_its_decommission_is_retired(
    operated: Callable[..., OperatedCluster], step: str
) -> None:
    cluster = operated(replicas=2)
    leaving = cluster.broker_ids[-1]
    command = ["decommission", str(leaving), "-b", cluster.servers, "--yes", "--json", "--timeout", "60"]
    command += ["--stop-command", cluster.machines.command("stop")]
    events = interrupted_by_a_death(cluster, command, step, leaving)
    assert events[-1]["event"] == "done"
    assert cluster.pid(leaving) is None
    assert leaving not in [node.id for node in cluster.admin.describe_cluster(fenced=True).nodes]
    described = cluster.admin.describe_topics([TOPIC])[TOPIC]
    assert all(leaving not in p.replicas for p in described.partitions)
    cluster.check()


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_a_node_that_dies_before_another_one_restarts_is_started_too(
    operated: Callable[..., OperatedCluster], role: str
) -> None:
    cluster = operated(replicas=3, min_isr=2)
    victim = cluster.broker_ids[-1] if role == "broker" else cluster.quorum().leader_id
    before = {node: cluster.pid(node) for node in cluster.nodes}
    command = ["rolling-restart", "-b", cluster.servers, "--yes", "--json", "--timeout", "60"]
    command += ["--restart-command", cluster.machines.command("restart")]
    events = interrupted_by_a_death(cluster, command, "restart", victim)
    assert events[-1]["event"] == "done"
    assert all(cluster.pid(node) not in (None, pid) for node, pid in before.items())
    cluster.check()


def test_the_disks_of_a_broker_and_of_the_active_controller_are_replaced(
    operated: Callable[..., OperatedCluster],
) -> None:
    cluster = operated(replicas=3, min_isr=2)
    quorum = cluster.quorum()
    broker = cluster.broker_ids[0]
    observed = {r.replica_id: r.directory_id for r in (*quorum.voters, *quorum.observers)}
    rng, seen = random.Random(13), set()

    def kill_at(event: Event) -> bool:
        new = (event["kind"], event["node"]) not in seen
        seen.add((event["kind"], event["node"]))
        return new

    for node in (broker, quorum.leader_id):
        old = uuid_text(observed[node])
        command = ["replace-disk", str(node), "--directory-id", old, "--bootstrap-server", cluster.servers]
        command += ["--stop-command", cluster.machines.command("stop"), "--yes", "--json", "--timeout", "90"]
        command += ["--replace-command", cluster.machines.command("replace")]
        events = killed_and_continued(command, kill_at, rng)
        assert events[-1]["event"] == "done"
    after = cluster.quorum()
    voters = {voter.replica_id: voter.directory_id for voter in after.voters}
    assert sorted(voters) == cluster.controller_ids
    assert voters[quorum.leader_id] != observed[quorum.leader_id]
    described = cluster.admin.describe_topics([TOPIC])[TOPIC]
    assert all(broker in p.isr for p in described.partitions)
    cluster.check()


def test_a_restart_that_would_make_partitions_unavailable_is_refused(
    operated: Callable[..., OperatedCluster],
) -> None:
    cluster = operated(replicas=3, min_isr=3)
    command = ["rolling-restart", "-b", cluster.servers, "--restart-command", "false"]
    done = plain(*command, "--yes", "--brokers")
    assert done.returncode == 1
    assert "Refused for 3 reasons:" in done.stdout
    assert (
        "would have fewer replicas in sync than min.insync.replicas while broker 4 is stopped" in done.stdout
    )
    assert "--allow-unavailable" in done.stdout
    done = plain(*command, "--controllers")
    assert done.returncode == 1
    assert done.stderr.startswith("Nothing was done: give --yes to perform the plan")
    done = plain(*command, "--controllers", "--yes")
    assert done.returncode == 1
    assert "--restart-command failed with status 1: false" in done.stderr
    assert "To continue: quorate rolling-restart -b" in done.stderr
    assert "--since" in done.stderr
    done = plain("decommission", "4", "-b", f"127.0.0.1:{free_ports(1)[0]}", "--timeout", "1")
    assert done.returncode == 1
    assert done.stderr.endswith("The metadata quorum has not answered for 1 s\n")
    done = plain(*command, "--controllers", "--dry-run")
    assert done.returncode == 0
    assert done.stdout.count("restart controller") == 3


@pytest.fixture(scope="module")
def static_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Three static controllers and a broker, with the features of Kafka 4.0."""
    folder = tmp_path_factory.mktemp("static")
    ports = free_ports(4)
    voters = dict(enumerate(ports[:3], 1))
    nodes = [
        Node(
            folder / str(n), n, "controller", static=True, voters=voters, controller_port=port, release="4.0"
        )
        for n, port in voters.items()
    ]
    nodes.append(Node(folder / "4", 4, "broker", static=True, voters=voters, release="4.0"))
    try:
        for node in nodes:
            node.format()
            node.start(wait=False)
        for node in nodes:
            node.wait_ready()
        yield nodes
    finally:
        for node in nodes:
            node.kill()


def test_the_features_are_upgraded_when_all_nodes_support_them(static_nodes: list[Node]) -> None:
    broker = static_nodes[3]
    before = plain("upgrade", "-b", broker.bootstrap, "--dry-run")
    assert before.returncode == 0, before.stderr
    assert "metadata.version from 25 (4.0-IV3) to 33 (4.4-IV2)" in before.stdout
    assert kinds(Tool("upgrade", "-b", broker.bootstrap, "--yes", "--json").finish()) == ["update-features"]
    with AdminClient(broker.bootstrap) as admin:
        wait_for(
            "the level",
            lambda: admin.describe_features().finalized["metadata.version"] == parse_version("4.4").level,
        )
    assert plain("upgrade", "-b", broker.bootstrap, "--yes").stdout.endswith("Nothing is left to do.\n")


def test_a_static_quorum_becomes_dynamic_when_all_voters_follow(static_nodes: list[Node]) -> None:
    broker, stopped = static_nodes[3], static_nodes[1]
    stopped.stop()
    words = ("move-to-dynamic-quorum", "-b", broker.bootstrap)

    def refusal() -> str | None:
        text = plain(*words, "--yes").stdout
        return text if "Refused" in text else None

    assert "voter 2 does not follow the leader" in str(wait_for("the refusal", refusal))
    stopped.start()
    events = wait_for("the move", lambda: _moved(words))
    assert isinstance(events, list)
    assert kinds(events)[0] == "upgrade-kraft-version"
    [note] = events[-1]["notes"]
    assert note.startswith("nodes 1, 2, 3, 4 have controller.quorum.voters in their properties")
    with AdminClient(broker.bootstrap) as admin:
        assert len({voter.directory_id for voter in admin.describe_quorum().voters}) == 3


def _moved(words: tuple[str, ...]) -> list[Event] | None:
    """The events of a move, or None while it is refused because a voter has only just started."""
    tool = Tool(*words, "--yes", "--json")
    for _ in tool:
        pass
    return tool.finish() if tool.process.wait(30) == 0 else None


@pytest.mark.java
@pytest.mark.timeout(900)
def test_a_cluster_of_apache_kafka_is_restarted_and_a_node_of_it_decommissioned(
    operated: Callable[..., OperatedCluster],
) -> None:
    cluster = operated(kafka=java.LATEST_VERSION, release="4.4", replicas=2, separate_roles=False)
    seen: list[Event] = []

    def kill_at(event: Event) -> bool:
        seen.append(event)
        return len(seen) in (2, 4)

    command = ["rolling-restart", "--restart-command", cluster.machines.command("restart")]
    command += ["-b", cluster.servers, "--yes", "--json", "--timeout", "180"]
    before = {node_id: node.proc for node_id, node in cluster.nodes.items()}
    killed_and_continued(command, kill_at, random.Random(3))
    assert all(node.proc is not before[node_id] for node_id, node in cluster.nodes.items())
    assert len(cluster.machines.calls) <= len(cluster.nodes) + 2
    done = kinds(cluster.finish("decommission", "3", "--stop-command", cluster.machines.command("stop")))
    assert {"cordon", "move", "remove-voter", "stop", "unregister-controller", "unregister"} <= set(done)
    assert {node.id for node in cluster.admin.describe_cluster(fenced=True).nodes} == {1, 2}
    assert sorted(voter.replica_id for voter in cluster.admin.describe_quorum().voters) == [1, 2]
    described = cluster.admin.describe_topics([TOPIC])[TOPIC]
    assert all(sorted(p.replicas) == [1, 2] for p in described.partitions)
    cluster.check()


@pytest.mark.java
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kafka", java.VERSIONS)
def test_a_static_cluster_of_apache_kafka_gets_new_levels_dynamic_voters_and_a_new_disk(
    operated: Callable[..., OperatedCluster], kafka: str
) -> None:
    cluster = operated(kafka=kafka, release="4.0", static=True, replicas=3, separate_roles=False)
    assert kinds(cluster.finish("upgrade")) == ["update-features"]
    level = parse_version(kafka[:3]).level
    finalized = cluster.admin.describe_features
    wait_for("the level", lambda: finalized().finalized["metadata.version"] == level)
    events = cluster.finish("move-to-dynamic-quorum")
    assert kinds(events)[0] == "upgrade-kraft-version"
    [note] = events[-1]["notes"]
    assert note.startswith("nodes 1, 2, 3 have controller.quorum.voters in their properties")
    quorum = cluster.admin.describe_quorum()
    leader = cluster.nodes[quorum.leader_id]
    leader.static = False
    leader.write_properties()
    old = leader.directory_text
    command = ["replace-disk", str(quorum.leader_id), "--directory-id", old]
    command += ["--stop-command", cluster.machines.command("stop")]
    done = kinds(cluster.finish(*command, "--replace-command", cluster.machines.command("replace")))
    assert {"stop", "replace", "remove-voter", "add-voter"} <= set(done)
    voters = {
        voter.replica_id: uuid_text(voter.directory_id) for voter in cluster.admin.describe_quorum().voters
    }
    assert voters == {n: node.directory_text for n, node in cluster.nodes.items()}
    assert leader.directory_text != old
    described = cluster.admin.describe_topics([TOPIC])[TOPIC]
    assert all(sorted(p.isr) == [1, 2, 3] for p in described.partitions)
    cluster.check()
