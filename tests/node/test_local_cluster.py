"""quorate up: a cluster in a folder."""

from __future__ import annotations

import json
import random
import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.cluster import BIN, free_ports, wait_for

pytestmark = pytest.mark.timeout(120)


def port_range(count: int) -> int:
    """The first of `count` neighbouring free ports, below those that the kernel gives to outgoing
    connections."""
    for _ in range(50):
        first = random.randrange(10_240, 32_768 - count)
        try:
            for port in range(first, first + count):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports in a row")


class Up:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.procs: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> tuple[subprocess.Popen[bytes], str]:
        """Starts it, gives the process and its bootstrap servers."""
        with self.out.open("wb") as out:
            proc = subprocess.Popen(
                [str(BIN / "quorate"), "up", *words], stdout=out, stderr=out, cwd=self.folder
            )
        self.procs.append(proc)

        def ready() -> re.Match[str] | None:
            assert proc.poll() is None, self.out.read_text()
            return re.search(r"bootstrap servers +(\S+)", self.out.read_text())

        match = wait_for("quorate up", ready)
        assert isinstance(match, re.Match)
        return proc, match[1]

    def refused(self, *words: str) -> str:
        done = subprocess.run(
            [str(BIN / "quorate"), "up", *words],
            capture_output=True,
            text=True,
            cwd=self.folder,
            check=False,
            timeout=30,
        )
        assert done.returncode == 1, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr.count("\n") == 1
        return done.stderr


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    up = Up(tmp_path)
    yield up
    for proc in up.procs:
        if proc.poll() is None:
            proc.kill()
            proc.wait()


def admin(bootstrap: str):  # type: ignore[no-untyped-def]
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create(bootstrap: str, name: str, partitions: int = 1, replicas: int = 1) -> None:
    from confluent_kafka.admin import NewTopic

    client = admin(bootstrap)  # its futures fail when it goes
    for future in client.create_topics([NewTopic(name, partitions, replicas)]).values():
        future.result(10)


def test_keeps_its_data_in_the_folder(up: Up) -> None:
    port = str(port_range(2))
    proc, bootstrap = up.start("--port", port)
    create(bootstrap, "kept")
    proc.send_signal(signal.SIGINT)
    assert proc.wait(10) == 0
    cluster = json.loads((up.folder / "quorate-data" / "cluster.json").read_text())
    proc, bootstrap = up.start("--port", port)
    assert "kept" in admin(bootstrap).list_topics(timeout=5).topics
    assert admin(bootstrap).list_topics(timeout=5).cluster_id == cluster["cluster_id"]


def test_may_move_to_another_port(up: Up) -> None:
    proc, bootstrap = up.start("--port", str(port_range(2)))
    create(bootstrap, "kept")
    proc.send_signal(signal.SIGTERM)
    assert proc.wait(10) == 0
    _, bootstrap = up.start("--port", str(port_range(2)))
    assert "kept" in admin(bootstrap).list_topics(timeout=5).topics


def files(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


def stop(proc: subprocess.Popen[bytes]) -> None:
    proc.send_signal(signal.SIGTERM)
    assert proc.wait(20) == 0


def test_several_controllers_that_would_not_find_one_another_are_not_started(up: Up) -> None:
    """They look for one another where their log says. Two of three may stay, and lead the third to the
    quorum."""
    port = port_range(6)
    proc, bootstrap = up.start("--controllers", "3", "--port", str(port))
    create(bootstrap, "kept")
    stop(proc)
    before = files(up.folder / "quorate-data")
    for other in (port_range(6), port + 2):  # each node at the place of the next one is no better
        said = up.refused("--controllers", "3", "--port", str(other))
        assert (
            f"look for one another at 1@127.0.0.1:{port + 1}, 2@127.0.0.1:{port + 3}, 3@127.0.0.1:{port + 5},"
            in said
        )
        assert (
            f"would not meet at --port {other}: start it with --port {port}, or name another folder with "
            "--data" in said
        )
    assert files(up.folder / "quorate-data") == before
    quorum = [str(BIN / "kafka-metadata-quorum"), "--bootstrap-server", bootstrap, "describe", "--status"]
    for node, place in zip(
        (3, 2), free_ports(2), strict=True
    ):  # for the second, the first is where only the log says so
        local = up.folder / "quorate-data" / f"node-{node}" / "local.properties"
        local.write_text(f"listeners=CONTROLLER://127.0.0.1:{place}\n")
        proc, bootstrap = up.start("--controllers", "3", "--port", str(port), "--host", "localhost")
        assert "kept" in admin(bootstrap).list_topics(timeout=5).topics

        def told(place: int = place) -> bool:
            return (
                f":{place}"
                in subprocess.run(quorum, capture_output=True, text=True, check=True, timeout=30).stdout
            )

        wait_for("the voters to know where it is", told)
        stop(proc)


def test_a_second_one_on_the_same_folder_changes_nothing(up: Up) -> None:
    port = port_range(2)
    up.start("--port", str(port))
    properties = up.folder / "quorate-data" / "node-1" / "server.properties"
    before = properties.read_bytes()
    for words in (
        ["--port", str(port_range(2))],
        ["--port", str(port)],
        ["--port", str(port), "--brokers", "2"],
    ):
        said = up.refused(*words)
        assert (
            said.startswith("quorate-data is in use by another process (node 1 runs, ")
            and "stop that first" in said
        )
        assert properties.read_bytes() == before
    assert not (up.folder / "quorate-data" / "node-2").exists()


def test_a_property_that_does_not_fit_changes_nothing(up: Up) -> None:
    assert "num.partitions" in up.refused("--override", "num.partitions=none", "--port", str(port_range(2)))
    assert not (up.folder / "quorate-data").exists()


def test_ephemeral_leaves_nothing(up: Up) -> None:
    proc, bootstrap = up.start("--ephemeral", "--port", str(port_range(2)))
    create(bootstrap, "gone")
    match = re.search(r"data and logs +(\S+)", up.out.read_text())
    assert match is not None
    assert Path(match[1]).exists()
    proc.send_signal(signal.SIGINT)
    assert proc.wait(10) == 0
    assert not Path(match[1]).exists()
    assert not (up.folder / "quorate-data").exists()


def test_three_controllers_and_brokers(up: Up) -> None:
    proc, bootstrap = up.start("--controllers", "3", "--brokers", "3", "--port", str(port_range(6)))
    create(bootstrap, "spread", 3, 3)
    metadata = admin(bootstrap).list_topics(timeout=5)
    assert sorted(metadata.brokers) == [1, 2, 3]
    assert {len(p.replicas) for p in metadata.topics["spread"].partitions.values()} == {3}
    proc.send_signal(signal.SIGINT)
    assert proc.wait(20) == 0
    for node in (1, 2, 3):
        assert (up.folder / "quorate-data" / f"node-{node}" / "data" / ".kafka_cleanshutdown").exists()


def test_every_node_tells_its_metrics_where_asked_to(up: Up) -> None:
    first = port_range(6)
    up.start("--controllers", "2", "--brokers", "1", "--port", str(first), "--http", str(first + 4))
    shown = f"/metrics, /health   http://127.0.0.1:{first + 4}, http://127.0.0.1:{first + 5}"
    assert shown in up.out.read_text()
    for i, roles in enumerate((["broker", "controller"], ["controller"])):
        with urllib.request.urlopen(f"http://127.0.0.1:{first + 4 + i}/health", timeout=5) as answer:
            assert json.loads(answer.read())["roles"] == roles


def node_process(proc: subprocess.Popen[bytes], node_id: int) -> psutil.Process:
    return next(
        c
        for c in psutil.Process(proc.pid).children()
        if any(f"node-{node_id}/" in word for word in c.cmdline())
    )


def test_a_node_that_dies_ends_it_with_the_reason(up: Up) -> None:
    port = port_range(4)
    proc, bootstrap = up.start("--brokers", "2", "--port", str(port))
    assert bootstrap == f"127.0.0.1:{port},127.0.0.1:{port + 2}"
    node_process(proc, 2).kill()
    assert proc.wait(20) == 1
    assert re.search(r"node 2 ended with status -9: .*node-2/server\.log", up.out.read_text())


def test_a_node_that_is_stopped_is_no_failure(up: Up) -> None:
    proc, _ = up.start("--brokers", "3", "--port", str(port_range(6)))
    node_process(proc, 3).terminate()
    properties = re.escape("quorate-data/node-3/server.properties")
    told = rf"Node 3 was stopped; the others run on. To start it again: kafka-server-start {properties}\n"
    wait_for("the message", lambda: re.search(told, up.out.read_text()))
    assert proc.poll() is None
    proc.send_signal(signal.SIGTERM)
    assert proc.wait(20) == 0
    assert up.out.read_text().count("\n") == 8, up.out.read_text()


def test_it_ends_when_every_node_was_stopped(up: Up) -> None:
    proc, _ = up.start("--brokers", "2", "--port", str(port_range(4)))
    for node_id, told in ((2, "Node 2 was stopped; the other runs on."), (1, "Every node was stopped\n")):
        node_process(proc, node_id).terminate()
        wait_for(told, lambda told=told: told in up.out.read_text())
    assert proc.wait(10) == 0


@pytest.mark.parametrize(
    ("host", "what"),
    [
        ("203.0.113.7", "is no address of this machine"),
        ("no-such-host.invalid", "is no name or address that can be resolved here"),
        ("two..dots", "is no name or address that can be resolved here"),
        ("0.0.0.0", "is no address by which clients can reach the nodes"),
    ],
)
def test_a_host_that_cannot_be_bound_is_named_and_nothing_is_written(up: Up, host: str, what: str) -> None:
    said = up.refused("--host", host, "--port", str(port_range(2)))
    assert said.startswith(f"--host {host} {what}") and "as in --host 127.0.0.1" in said
    assert "--port" not in said
    assert not (up.folder / "quorate-data").exists()


def test_a_port_that_is_taken_leaves_no_folder(up: Up) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "is in use by another process" in up.refused("--port", str(taken.getsockname()[1]))
    assert not (up.folder / "quorate-data").exists()


def test_nodes_end_with_it_even_if_it_is_killed(up: Up) -> None:
    proc, _ = up.start("--controllers", "1", "--brokers", "2", "--port", str(port_range(6)))
    children = psutil.Process(proc.pid).children()
    assert len(children) == 2
    proc.kill()
    _, left = psutil.wait_procs(children, timeout=20)
    assert left == []


def test_refusals_say_what_to_do(up: Up) -> None:
    assert "choose one" in up.refused("--ephemeral", "--data", "x")
    assert "at least one controller" in up.refused("--controllers", "0")
    assert "lower --port" in up.refused("--port", "65535")
    assert "lower --http" in up.refused("--http", "65536")
    assert "as in --http 9094" in up.refused("--http", "9093")
    (up.folder / "mine").mkdir()
    (up.folder / "mine" / "thesis.txt").write_text("precious")
    assert "name another folder with --data" in up.refused("--data", "mine")
    proc, _ = up.start("--port", str(port_range(2)))
    text = up.refused("--data", "other", "--port", re.findall(r":(\d+)", up.out.read_text())[0])
    assert "is in use by another process" in text and "--port" in text
    assert "in use by another process" in up.refused("--port", str(port_range(2)))
    proc.send_signal(signal.SIGINT)
    assert proc.wait(10) == 0
    assert "with --controllers 1: start it so" in up.refused(
        "--controllers", "3", "--port", str(port_range(6))
    )


def test_topics_and_groups_work_without_settings(up: Up) -> None:
    """Replication of internal topics fits the cluster, and a group's first assignment waits for nobody."""
    import time

    from confluent_kafka import Consumer, Producer

    _, bootstrap = up.start("--ephemeral", "--port", str(port_range(2)))
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("hello", b"world")
    assert producer.flush(10) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["hello"])
    began = time.monotonic()
    message = consumer.poll(10)
    assert message is not None and message.value() == b"world"
    assert time.monotonic() - began < 2.5  # Kafka's default delay alone is 3 s
    consumer.close()
