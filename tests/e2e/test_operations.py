"""The operations of `quorate` on real clusters: complete, refused, and killed in between and continued under load."""

from __future__ import annotations

import contextlib
import json
import random
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.admin.client import AdminClient as AsyncClient
from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic, QuorumInfo
from quorate.metadata.features import parse_version
from quorate.protocol.uuids import uuid_text
from quorate.testing import ClusterError, KafkaCluster
from quorate.tools.shell.follower import Follower
from tests.support import java
from tests.support.cluster import BIN, Node, free_ports, wait_for
from tests.support.mixed import DIRECTORIES, MixedNode
from tests.support.numbered_load import NumberedLoad, NumberedReader

pytestmark = pytest.mark.timeout(400)

TOPIC, PARTITIONS = "numbers", 6
Event = dict[str, Any]


class Machines:
    """Stops, starts and restarts nodes for the commands that the operations run, like a host that outlives the
    command which it was sent."""

    def __init__(self, folder: Path, actions: dict[str, Callable[[int], None]]) -> None:
        self.calls: list[tuple[str, int]] = []
        self.on_call: Callable[[str, int], None] = lambda action, node: None
        self._actions = actions
        self._locks: dict[int, threading.Lock] = {}
        self._client = folder / "machine.py"
        self._client.write_text(
            "import socket, sys\n"
            "with socket.create_connection(('127.0.0.1', int(sys.argv[1]))) as s:\n"
            "    s.sendall(' '.join(sys.argv[2:]).encode() + b'\\n')\n"
            "    sys.exit(s.recv(2) != b'ok')\n"
        )
        self._server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, name="machines", daemon=True).start()

    def command(self, action: str) -> str:
        """The command for an option of an operation."""
        words = [sys.executable, str(self._client), str(self._server.getsockname()[1]), action]
        return f"{shlex.join(words)} {{id}}"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._perform, args=(connection,), daemon=True).start()

    def _perform(self, connection: socket.socket) -> None:
        action, node = connection.makefile().readline().split()
        self.calls.append((action, int(node)))
        self.on_call(action, int(node))
        with self._locks.setdefault(int(node), threading.Lock()):
            self._actions[action](int(node))
        try:
            connection.sendall(b"ok")
        except OSError:
            pass  # the operation was killed
        connection.close()

    def close(self) -> None:
        self._server.close()


class Tool:
    """A run of `quorate` with --json, whose events are read as they come."""

    def __init__(self, *words: object) -> None:
        self.process = subprocess.Popen(
            [str(BIN / "quorate"), *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.events: list[Event] = []

    def __iter__(self) -> Iterator[Event]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            yield self.events[-1]

    def finish(self) -> list[Event]:
        """Returns all events. Raises AssertionError unless the status is 0."""
        for _ in self:
            pass
        assert self.process.stderr is not None
        errors = self.process.stderr.read()
        assert self.process.wait(30) == 0, errors + json.dumps(self.events[-3:])
        return self.events

    def kill(self) -> None:
        """Ends the command by SIGKILL. Reads the events that it printed before."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.events += [json.loads(line) for line in self.process.stdout if line.endswith("\n")]


def plain(*words: object) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "quorate"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def kinds(events: list[Event]) -> list[str]:
    return [event["kind"] for event in events if event["event"] == "step"]


class Loaded:
    """A cluster of three controllers and three brokers under a load with acks=all."""

    def __init__(self, folder: Path, replicas: int, min_isr: int) -> None:
        self.kafka = KafkaCluster(3, 3, separate_roles=True, folder=folder / "kafka")
        self.servers = self.kafka.bootstrap_servers
        self.machines = Machines(
            folder,
            {"restart": self._restart, "stop": lambda node: self.kafka.stop(node), "replace": self._replace},
        )
        self.admin = AdminClient(self.servers)
        topic = NewTopic(TOPIC, PARTITIONS, replicas, configs={"min.insync.replicas": str(min_isr)})
        assert self.admin.create_topics([topic]) == {TOPIC: None}
        self.load = NumberedLoad(self.servers, TOPIC, PARTITIONS, 200)
        self.load.flows()

    def _restart(self, node: int) -> None:
        with contextlib.suppress(ClusterError):  # it may be restarted before it handles SIGTERM
            self.kafka.stop(node)
        self.kafka.start(node, wait=False)

    def _replace(self, node: int) -> None:
        """Loses the disk of a node, formats the new one, and starts the node."""
        if self.kafka.is_running(node):
            return
        data, properties = self.kafka.data_directory(node), self.kafka.properties_file(node)
        shutil.rmtree(data)
        data.mkdir()
        words = [BIN / "kafka-storage", "format", "-t", self.kafka.cluster_id, "-c", properties]
        words += ["--no-initial-controllers"] if node in self.kafka.controller_ids else []
        subprocess.run(list(map(str, words)), check=True, capture_output=True)
        self.kafka.start(node, wait=False)

    def quorum(self) -> QuorumInfo:
        return self.admin.describe_quorum()

    def check(self) -> None:
        """Every acknowledged record is there once and in order."""
        read_everything(self.servers, self.load)

    def close(self) -> None:
        self.load.stop()
        self.machines.close()
        self.admin.close()
        self.kafka.close()


def read_everything(servers: str, load: NumberedLoad) -> None:
    """Reads all partitions: they must have every acknowledged record once and in order."""
    load.flows()
    load.pause()
    reader = NumberedReader(servers, TOPIC, PARTITIONS)
    try:
        reader.reaches([len(p.offsets) for p in load.partitions])
    finally:
        reader.stop()


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Callable[[int, int], Loaded]]:
    found: list[Loaded] = []

    def create(replicas: int, min_isr: int) -> Loaded:
        found.append(Loaded(tmp_path, replicas, min_isr))
        return found[0]

    yield create
    for each in found:
        each.close()


def killed_and_continued(
    command: list[str], kill_at: Callable[[Event], bool], rng: random.Random
) -> list[Event]:
    """Runs a command with SIGKILL shortly after each event that `kill_at` selects, and then again, to its end.
    Returns the events of all runs."""
    events: list[Event] = []
    while True:
        tool = Tool(*command)
        killed = False
        for event in tool:
            if event["event"] == "resume":
                command = shlex.split(event["command"])[1:]
            if event["event"] == "step" and kill_at(event):
                time.sleep(rng.uniform(0, 0.05))  # so that the step is interrupted at different points
                tool.kill()
                killed = True
                break
        if not killed:
            return events + tool.finish()
        events += tool.events


def test_a_rolling_restart_that_is_killed_continues_and_loses_nothing(
    loaded: Callable[[int, int], Loaded],
) -> None:
    cluster = loaded(3, 2)
    rng, seen = random.Random(7), 0

    def kill_at(event: Event) -> bool:
        nonlocal seen
        seen += 1
        return seen in (1, 4, 6, 9, 12)

    command = ["rolling-restart", "--bootstrap-server", cluster.servers, "--yes", "--json", "--timeout", "90"]
    command += ["--restart-command", cluster.machines.command("restart")]
    before = {node: cluster.kafka.pid(node) for node in cluster.kafka.node_ids}
    events = killed_and_continued(command, kill_at, rng)
    assert events[-1]["event"] == "done"
    assert all(cluster.kafka.pid(node) not in (None, pid) for node, pid in before.items())
    restarted = [node for _, node in cluster.machines.calls]
    assert sorted(set(restarted)) == cluster.kafka.node_ids
    assert set(restarted[:3]) <= set(cluster.kafka.broker_ids)
    assert len(restarted) <= len(before) + 5, "a node was restarted again that had started since"
    cluster.check()


def test_a_decommission_that_is_killed_at_each_step_continues_and_loses_nothing(
    loaded: Callable[[int, int], Loaded],
) -> None:
    cluster = loaded(2, 2)
    leaving = cluster.kafka.broker_ids[-1]
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
    assert not cluster.kafka.is_running(leaving)
    assert leaving not in [node.id for node in cluster.admin.describe_cluster(fenced=True).nodes]
    described = cluster.admin.describe_topics([TOPIC])[TOPIC]
    assert all(leaving not in p.replicas and len(p.isr) == 2 for p in described.partitions)
    follower = Follower(lambda: AsyncClient(bootstrap_controllers=cluster.kafka.bootstrap_controllers))
    configs = follower.metadata[0].configs
    follower.close()
    assert dict(configs.broker(leaving)) == {}
    assert dict(configs.topic(TOPIC)) == {"min.insync.replicas": "2"}
    assert all("throttled" not in name for node in cluster.kafka.broker_ids for name in configs.broker(node))
    [again] = [e for e in Tool(*command).finish() if e["event"] == "done"]
    assert again["notes"] == [f"broker {leaving} is not registered"]
    cluster.check()


def test_the_disks_of_a_broker_and_of_the_active_controller_are_replaced(
    loaded: Callable[[int, int], Loaded],
) -> None:
    cluster = loaded(3, 2)
    quorum = cluster.quorum()
    broker = cluster.kafka.broker_ids[0]
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
    assert sorted(voters) == cluster.kafka.controller_ids
    assert voters[quorum.leader_id] != observed[quorum.leader_id]
    described = cluster.admin.describe_topics([TOPIC])[TOPIC]
    assert all(broker in p.isr for p in described.partitions)
    cluster.check()


def test_a_restart_that_would_make_partitions_unavailable_is_refused(
    loaded: Callable[[int, int], Loaded],
) -> None:
    cluster = loaded(3, 3)
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
    assert note.startswith("node 1, 2, 3, 4 has controller.quorum.voters in its properties")
    with AdminClient(broker.bootstrap) as admin:
        assert len({voter.directory_id for voter in admin.describe_quorum().voters}) == 3


def _moved(words: tuple[str, ...]) -> list[Event] | None:
    """The events of a move, or None while it is refused because a voter has only just started."""
    tool = Tool(*words, "--yes", "--json")
    for _ in tool:
        pass
    return tool.finish() if tool.process.wait(30) == 0 else None


class JavaCluster:
    """Three nodes of Apache Kafka with both roles, and a topic under load. They report no start time; the metadata
    log has those of registrations."""

    def __init__(self, folder: Path, kafka: str, release: str, *, static: bool, replicas: int) -> None:
        java.require_java(kafka)
        self.voters = dict(enumerate(free_ports(3), 1))
        self.nodes = {
            n: MixedNode(
                folder / str(n), n, impl="java", static=static, voters=self.voters, controller_port=port, kafka=kafka,
                release=release, extra={"initial.broker.registration.timeout.ms": 300_000, "offsets.topic.replication.factor": 2},
            )
            for n, port in self.voters.items()
        }  # fmt: skip
        self.servers = ",".join(node.bootstrap for node in self.nodes.values())
        self.machines = Machines(
            folder, {"restart": self._restart, "stop": self._stop, "replace": self._replace}
        )
        self._cleanup = contextlib.ExitStack()
        self._cleanup.callback(self.machines.close)
        try:
            self._start(replicas)
        except BaseException:
            self.close()
            raise

    def _start(self, replicas: int) -> None:
        initial = ",".join(f"{n}@127.0.0.1:{port}:{DIRECTORIES[n]}" for n, port in self.voters.items())
        for node in self.nodes.values():
            node.format(*(() if node.static else ("--initial-controllers", initial)))
            node.start(wait=False)
            self._cleanup.callback(node.kill)
        for node in self.nodes.values():
            node.wait_ready(300)
        self.admin = self._cleanup.enter_context(AdminClient(self.servers))
        topic = NewTopic(TOPIC, PARTITIONS, replicas, configs={"min.insync.replicas": "1"})
        assert self.admin.create_topics([topic]) == {TOPIC: None}
        self.load = NumberedLoad(self.servers, TOPIC, PARTITIONS, 100)
        self._cleanup.callback(self.load.stop)
        self.load.flows(120)

    def _stop(self, node: int) -> None:
        assert self.nodes[node].stop() in (0, 143)

    def _restart(self, node: int) -> None:
        self._stop(node)
        self.nodes[node].start(wait=False)

    def _replace(self, node: int) -> None:
        shutil.rmtree(self.nodes[node].data)
        self.nodes[node].format("--no-initial-controllers")
        self.nodes[node].start(wait=False)

    def finish(self, *words: str) -> list[Event]:
        """Runs an operation to its end."""
        return Tool(*words, "-b", self.servers, "--yes", "--json", "--timeout", "180").finish()

    def close(self) -> None:
        self._cleanup.close()


@pytest.fixture
def java_cluster(tmp_path: Path) -> Iterator[Callable[..., JavaCluster]]:
    with contextlib.ExitStack() as cleanup:

        def create(kafka: str, release: str, *, static: bool, replicas: int) -> JavaCluster:
            cluster = JavaCluster(tmp_path, kafka, release, static=static, replicas=replicas)
            cleanup.callback(cluster.close)
            return cluster

        yield create


@pytest.mark.java
@pytest.mark.timeout(900)
def test_a_cluster_of_apache_kafka_is_restarted_and_a_node_of_it_decommissioned(
    java_cluster: Callable[..., JavaCluster],
) -> None:
    cluster = java_cluster(java.LATEST_VERSION, "4.4", static=False, replicas=2)
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
    read_everything(cluster.servers, cluster.load)


@pytest.mark.java
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kafka", java.VERSIONS)
def test_a_static_cluster_of_apache_kafka_gets_new_levels_dynamic_voters_and_a_new_disk(
    java_cluster: Callable[..., JavaCluster], kafka: str
) -> None:
    cluster = java_cluster(kafka, "4.0", static=True, replicas=3)
    assert kinds(cluster.finish("upgrade")) == ["update-features"]
    level = parse_version(kafka[:3]).level
    finalized = cluster.admin.describe_features
    wait_for("the level", lambda: finalized().finalized["metadata.version"] == level)
    events = cluster.finish("move-to-dynamic-quorum")
    assert kinds(events)[0] == "upgrade-kraft-version"
    [note] = events[-1]["notes"]
    assert note.startswith("node 1, 2, 3 has controller.quorum.voters in its properties")
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
    read_everything(cluster.servers, cluster.load)
