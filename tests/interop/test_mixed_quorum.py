"""One metadata quorum of Apache Kafka's controllers and ours: each votes for, follows and replaces the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import java
from tests.support.cluster import Node, free_ports, wait_for

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

DIRECTORIES = {1: "AAAAAAAAAAAAAAAAAAABAQ", 2: "AAAAAAAAAAAAAAAAAAABAg", 3: "AAAAAAAAAAAAAAAAAAABAw"}
SMALL_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": 3000}


def make(tmp_path: Path, implementations: str, static: bool, **extra: object) -> list[Node]:
    """Three controllers ("q" ours, "j" Java's) and a broker of ours, formatted."""
    java.require_java()
    voters = dict(zip((1, 2, 3), free_ports(3), strict=True))
    nodes = [
        Node(
            tmp_path / f"c{i}",
            node_id=i,
            roles="controller",
            impl={"q": "quorate", "j": "java"}[implementations[i - 1]],
            static=static,
            voters=voters,
            controller_port=voters[i],
            extra=extra,
        )
        for i in (1, 2, 3)
    ]
    initial = ",".join(f"{i}@127.0.0.1:{port}:{DIRECTORIES[i]}" for i, port in voters.items())
    for node in nodes:
        node.format(*(() if static else ("--initial-controllers", initial)))
    broker = Node(tmp_path / "broker", node_id=9, roles="broker", static=static, voters=voters)
    broker.format(*(() if static else ("--no-initial-controllers",)))
    return [*nodes, broker]


def create(broker: Node, name: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    last = [""]

    def made() -> bool:
        admin = broker.admin()  # must live until its answer is there
        future = admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=5, request_timeout=6)[name]
        try:
            future.result(8)
        except KafkaException as e:
            last[0] = str(e)
            return bool(e.args[0].name() == "TOPIC_ALREADY_EXISTS")
        return True

    try:
        wait_for(f"topic {name} to be created", made, 60, 0.1)
    except AssertionError as e:
        raise AssertionError(f"{e}: {last[0]}") from None


def describe(nodes: list[Node], what: str) -> str:
    living = next(n for n in nodes if n.proc is not None and n.proc.poll() is None)
    return java.run(
        "org.apache.kafka.tools.MetadataQuorumCommand",
        "--bootstrap-controller",
        f"127.0.0.1:{living.controller_port}",
        "describe",
        what,
    )


def leader(nodes: list[Node]) -> int:
    found = re.search(r"LeaderId:\s+(\d+)", describe(nodes, "--status"))
    assert found is not None
    return int(found[1])


def replication(nodes: list[Node]) -> dict[int, tuple[int, str]]:
    """node id -> (lag, status), as Kafka's tool prints it."""
    rows = (line.split() for line in describe(nodes, "--replication").splitlines())
    return {int(r[0]): (int(r[3]), r[6]) for r in rows if len(r) == 7 and r[0].isdigit()}


def all_caught_up(nodes: list[Node]) -> bool:
    rows = replication(nodes)
    return {1, 2, 3, 9} <= rows.keys() and all(lag <= 2 for lag, _ in rows.values())


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("implementations", ["qqj", "qjj"])
def test_elections_by_kill_and_by_shutdown_of_each_side(tmp_path: Path, implementations: str, static: bool) -> None:
    *controllers, broker = nodes = make(tmp_path, implementations, static)
    try:
        for node in nodes:
            node.start(wait=False)
        broker.wait_ready(60)
        create(broker, "first")
        wait_for("everyone to follow", lambda: all_caught_up(controllers), 30, 0.5)
        for round_, by in enumerate(("kill", "shutdown", "kill")):
            led = controllers[leader(controllers) - 1]
            if by == "kill":
                led.kill()
            else:
                led.stop()
            create(broker, f"after-{by}-{round_}")
            led.start(wait=False)
            wait_for("the old leader to follow again", lambda: all_caught_up(controllers), 60, 0.5)
    except BaseException:
        print(*(f"--- {n.node_id} {n.impl}\n{n.log_tail(60)}" for n in nodes), sep="\n")
        raise
    finally:
        for node in nodes:
            node.kill()
    logs = [read_values(c) for c in controllers]
    assert min(len(values) for values in logs) > 20
    assert _overlap(logs), "the replicas' logs differ"


def read_values(controller: Node) -> list[tuple[int, bytes]]:
    """(offset, value) of every data record on a controller's disk."""
    from quorate.records.batch import iter_batches, metadata_values

    out: list[tuple[int, bytes]] = []
    for path in sorted((controller.data / "__cluster_metadata-0").glob("*.log")):
        for header, batch in iter_batches(path.read_bytes()):
            if not header.is_control:
                out += [(header.base_offset + i, bytes(v)) for i, v in enumerate(metadata_values(batch))]
    return out


def _overlap(logs: list[list[tuple[int, bytes]]]) -> bool:
    """Where offsets are on several disks, the values are the same (tails may differ in length)."""
    known: dict[int, bytes] = {}
    return all(known.setdefault(offset, value) == value for values in logs for offset, value in values)


@pytest.mark.parametrize("implementations", ["qqj", "jjq"])
def test_a_replica_that_is_new_loads_the_others_snapshot(tmp_path: Path, implementations: str) -> None:
    """Controller 3 of the one kind starts late and must load a snapshot that the other kind wrote."""
    *controllers, broker = nodes = make(tmp_path, implementations, False, **SMALL_SNAPSHOTS)
    late = controllers[2]
    try:
        for node in (*controllers[:2], broker):
            node.start(wait=False)
        broker.wait_ready(60)
        for i in range(40):
            create(broker, f"topic-{i}")
        folders = [c.data / "__cluster_metadata-0" for c in controllers[:2]]
        wait_for("snapshots", lambda: all(len(list(f.glob("*.checkpoint"))) > 1 for f in folders), 30)
        late.start()
        wait_for("the late one to follow", lambda: all_caught_up(controllers), 60, 0.5)
        names = [p.name for p in (late.data / "__cluster_metadata-0").glob("*.checkpoint")]
        assert any(not name.startswith("0" * 20) for name in names)
        assert min((late.data / "__cluster_metadata-0").glob("*.log")).name != f"{0:020d}.log"
        create(broker, "afterwards")
    except BaseException:
        print(*(f"--- {n.node_id} {n.impl}\n{n.log_tail(60)}" for n in nodes), sep="\n")
        raise
    finally:
        for node in nodes:
            node.kill()


def test_voters_of_each_kind_are_removed_and_added_by_kafkas_tool(tmp_path: Path) -> None:
    *controllers, broker = nodes = make(tmp_path, "qjq", False)

    def tool(*args: object) -> str:
        living = f"127.0.0.1:{controllers[leader(controllers) - 1].controller_port}"
        return java.run("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-controller", living, *args)

    try:
        for node in nodes:
            node.start(wait=False)
        broker.wait_ready(60)
        wait_for("everyone to follow", lambda: all_caught_up(controllers), 60, 0.5)
        followers = [c for c in controllers if c.node_id != leader(controllers)]
        for node in followers:
            key = ("--controller-id", node.node_id, "--controller-directory-id", DIRECTORIES[node.node_id])
            tool("remove-controller", *key)
            assert replication(controllers)[node.node_id][1] == "Observer"
            wait_for("the observer to catch up", lambda: all_caught_up(controllers), 30, 0.5)
            java.run(
                "org.apache.kafka.tools.MetadataQuorumCommand",
                "--command-config",
                node.properties,
                "--bootstrap-controller",
                f"127.0.0.1:{controllers[leader(controllers) - 1].controller_port}",
                "add-controller",
            )
            assert replication(controllers)[node.node_id][1] == "Follower"
        create(broker, "afterwards")
    except BaseException:
        print(*(f"--- {n.node_id} {n.impl}\n{n.log_tail(60)}" for n in nodes), sep="\n")
        raise
    finally:
        for node in nodes:
            node.kill()
