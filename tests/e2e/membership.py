"""Controllers, tools and /metrics for the tests of membership: real processes, used as by an operator."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quorate.admin.sync import AdminClient
from quorate.admin.types import QuorumInfo
from quorate.protocol.uuids import uuid_text
from tests.support.cluster import BIN, Node, free_ports

QUICK = {"controller.quorum.fetch.timeout.ms": 600, "controller.quorum.election.timeout.ms": 300}
HTTP = "quorate.http.listen"


def controllers(base: Path, count: int, static: bool = False, **extra: object) -> list[Node]:
    """Controllers 1, 2, ... each with /metrics; not formatted yet."""
    ports = dict(zip(range(1, count + 1), free_ports(count), strict=True))
    return [
        Node(
            base / f"c{i}",
            node_id=i,
            roles="controller",
            static=static,
            voters=ports,
            controller_port=port,
            extra={**QUICK, HTTP: f"127.0.0.1:{free_ports(1)[0]}", **extra},
        )
        for i, port in ports.items()
    ]


def broker_of(base: Path, nodes: list[Node], **extra: object) -> Node:
    http = f"127.0.0.1:{free_ports(1)[0]}"
    return Node(
        base / "b10",
        node_id=10,
        roles="broker",
        static=nodes[0].static,
        voters=dict(nodes[0].voters),
        extra={HTTP: http, **extra},
    )


def moved(node: Node) -> Node:
    """The same node with another port for its next start. The files of the other nodes keep the old port."""
    (node.controller_port,) = free_ports(1)
    node.write_properties()
    return node


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
    """Runs a tool against the node's controller listener, or its broker listener if it has no other. Returns
    its output, stdout first."""
    where = ["--bootstrap-controller", f"127.0.0.1:{node.controller_port}"]
    if "controller" not in node.roles:
        where = ["--bootstrap-server", node.bootstrap]
    command = [str(BIN / name), *where, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode != 0) is fails, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def quorum(node: Node, *args: object, fails: bool = False) -> str:
    return tool("kafka-metadata-quorum", node, *args, fails=fails)


def add(node: Node, new: Node, fails: bool = False) -> str:
    """Adds a controller as documented: with the properties of the new controller."""
    return quorum(node, "--command-config", new.properties, "add-controller", fails=fails)


def described(node: Node) -> QuorumInfo:
    """The same request as that of the tool's `describe`, without a process for each poll."""
    with AdminClient(bootstrap_controllers=f"127.0.0.1:{node.controller_port}", api_timeout_s=30) as admin:
        found: QuorumInfo = admin.describe_quorum()
        return found


def voters(node: Node) -> dict[int, str]:
    """id -> directory id, empty where it is not known."""
    return {
        v.replica_id: uuid_text(v.directory_id) if any(v.directory_id) else "" for v in described(node).voters
    }


def endpoints(node: Node) -> dict[int, str]:
    """id -> where the voter listens, as the quorum knows it."""
    return {i: "{}://{}:{}".format(*known[0]) for i, known in described(node).endpoints.items()}


def observers(node: Node) -> set[int]:
    return {o.replica_id for o in described(node).observers}


def directory_id(node: Node) -> str:
    lines = (node.data / "meta.properties").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))


def knows_directories(node: Node) -> bool:
    """Reads the voter set from the log: DescribeQuorum shows the directory id with which a voter fetches
    even before the voter set has it."""
    sets = re.findall(r"voters at offset \d+: \[(.*)\]", node.log_tail(9999))
    return bool(sets) and all("-" in voter for voter in sets[-1].split(", "))


RAFT = "kafka_server_raft_metrics_"


def metrics(node: Node) -> dict[str, float]:
    """Every series of /metrics; those of raft-metrics without their group's name, current_state as the
    state that holds."""
    with urllib.request.urlopen(f"http://{node.extra[HTTP]}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name.removeprefix(RAFT): float(value) for name, value in pairs}


def state(node: Node) -> str:
    found = [
        name for name, value in metrics(node).items() if name.startswith("current_state{") and value == 1
    ]
    assert len(found) == 1, found
    return found[0].split('"')[1]


def health(node: Node, page: str = "health") -> tuple[int, dict[str, object]]:
    """Returns (HTTP status, fields) of /health or another page. Raises OSError if the port is closed."""
    try:
        with urllib.request.urlopen(f"http://{node.extra[HTTP]}/{page}", timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())
