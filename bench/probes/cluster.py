"""Clusters of Apache Kafka or of Quorate, started from the same properties files.

QUORATE_BIN names the folder of Quorate's console scripts (default: beside this Python). QUORATE_KAFKA_JARS
names the folder of Apache Kafka's jars (default: where `make setup` puts them).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from quorate.protocol.uuids import random_uuid, uuid_text
from tests.support import java
from tests.support.cluster import free_ports

QUORATE_BIN = os.environ.get("QUORATE_BIN") or str(Path(sys.executable).parent)
# The options of Kafka's own kafka-run-class.sh and kafka-server-start.sh.
JAVA_OPTIONS = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]


def kafka_classpath() -> list[str]:
    """The options of `java` for Apache Kafka's jars. Raises FileNotFoundError."""
    folder = java.jars()
    if folder is None:
        raise FileNotFoundError("Apache Kafka's jars are missing: run make setup, or set QUORATE_KAFKA_JARS")
    return ["-cp", f"{folder}/*"]


def commands(impl: str, scripts: str = QUORATE_BIN) -> tuple[list[str], list[str]]:
    """The command that formats a directory, and the command that runs a node. `scripts` is the folder of
    Quorate's console scripts."""
    if impl == "java":
        classpath = kafka_classpath()
        return ["java", *classpath, "kafka.tools.StorageTool"], [
            "java",
            *JAVA_OPTIONS,
            *classpath,
            "kafka.Kafka",
        ]
    return [f"{scripts}/kafka-storage"], [f"{scripts}/kafka-server-start"]


@dataclass
class Node:
    """One formatted node. `process` is None until it was started."""

    impl: str
    node_id: int
    roles: str
    directory: Path
    broker_port: int
    controller_port: int
    scripts: str = QUORATE_BIN
    process: subprocess.Popen[bytes] | None = None

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"

    def format(self, cluster_id: str, *options: str) -> None:
        command = [
            *commands(self.impl, self.scripts)[0],
            "format",
            "-t",
            cluster_id,
            "-c",
            str(self.properties),
            *options,
        ]
        subprocess.run(command, check=True, capture_output=True)

    def start(self, open_files: int | None = None) -> None:
        """open_files: the limit of open files; None keeps the limit of this process."""

        command = [*commands(self.impl, self.scripts)[1], str(self.properties)]
        if open_files is not None:
            command = ["prlimit", f"--nofile={open_files}", *command]
        with open(self.directory / "out.log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    @property
    def running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None, f"node {self.node_id} was not started"
        return self.process

    def kill(self, sig: int = signal.SIGKILL) -> None:
        """Sends the signal; waits for the end after SIGKILL."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(sig)
            if sig == signal.SIGKILL:
                self.process.wait()

    def rss_mb(self) -> float:
        return sum(p.memory_info().rss for p in self._processes()) / 1e6

    def cpu_s(self) -> float:
        return sum(sum(p.cpu_times()[:2]) for p in self._processes())

    def _processes(self) -> list[psutil.Process]:
        process = psutil.Process(self.running.pid)
        return [process, *process.children(recursive=True)]

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join((self.directory / "out.log").read_text(errors="replace").splitlines()[-lines:])


@dataclass
class Cluster:
    """Formatted nodes in a temporary directory, which `close` removes.

    `controllers` and `brokers` name the implementation of each node. With `combined` the controllers are
    brokers too. `scripts` is the folder of Quorate's console scripts.
    The log of each node goes to stderr if the block of a `with` statement fails.
    """

    controllers: list[str]
    brokers: list[str] = field(default_factory=list)
    combined: bool = False
    scripts: str = QUORATE_BIN
    base: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="quorate-probe-")))

    def __post_init__(self) -> None:
        first, others = len(self.controllers), len(self.brokers)
        ports = free_ports(2 * first + others)
        self.controller_ports = ports[:first]
        roles = "broker,controller" if self.combined else "controller"
        self.controller_nodes = [
            self._node(impl, i + 1, roles, ports[first + i] if self.combined else 0, ports[i])
            for i, impl in enumerate(self.controllers)
        ]
        brokers = [
            self._node(impl, 101 + i, "broker", ports[2 * first + i], 0)
            for i, impl in enumerate(self.brokers)
        ]
        self.nodes = self.controller_nodes + brokers
        self.broker_nodes = self.nodes if self.combined else brokers
        self.bootstrap = ",".join(f"127.0.0.1:{n.broker_port}" for n in self.broker_nodes)
        cluster_id = uuid_text(random_uuid())
        voters = ",".join(
            f"{n.node_id}@127.0.0.1:{n.controller_port}:{uuid_text(random_uuid())}"
            for n in self.controller_nodes
        )
        for node in self.nodes:
            options: list[str] = []
            if node.controller_port:
                options = ["--standalone"] if first == 1 else ["--initial-controllers", voters]
            node.format(cluster_id, *options)

    def _node(self, impl: str, node_id: int, roles: str, broker_port: int, controller_port: int) -> Node:
        directory = self.base / f"node-{node_id}"
        directory.mkdir(parents=True)
        listeners = [f"PLAINTEXT://127.0.0.1:{broker_port}"] if broker_port else []
        listeners += [f"CONTROLLER://127.0.0.1:{controller_port}"] if controller_port else []
        hosts = len(self.brokers) or (len(self.controllers) if self.combined else 1)
        factor = min(3, hosts)
        settings: dict[str, object] = {
            "process.roles": roles,
            "node.id": node_id,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{p}" for p in self.controller_ports),
            "log.dirs": directory / "data",
            "offsets.topic.replication.factor": factor,
            "offsets.topic.num.partitions": 10,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.num.partitions": 10,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
        }
        if broker_port:
            settings["inter.broker.listener.name"] = "PLAINTEXT"
        node = Node(impl, node_id, roles, directory, broker_port, controller_port, self.scripts)
        node.properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return node

    def start(self) -> None:
        """Starts every node and waits until each broker is in Metadata."""
        for node in self.nodes:
            node.start()
        wait_ready(self.bootstrap, len(self.broker_nodes))

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self.base, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if kind is not None:
            for node in self.nodes:
                with contextlib.suppress(OSError):
                    print(f"--- node {node.node_id} ({node.impl})\n{node.log_tail()}", file=sys.stderr)
        self.close()


def admin(bootstrap: str, **settings: Any) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "socket.timeout.ms": 60_000,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
            **settings,
        }
    )


def create_topics(client: AdminClient, *topics: NewTopic) -> None:
    """Sends one CreateTopics request and waits for the answer about each topic."""
    for future in client.create_topics(list(topics), operation_timeout=60, request_timeout=120).values():
        future.result()


def partition_count(client: AdminClient) -> int:
    """The partitions of all topics in Metadata."""
    return sum(len(topic.partitions) for topic in client.list_topics(timeout=30).topics.values())


def wait_ready(bootstrap: str, brokers: int, timeout_s: float = 60) -> None:
    """Returns when Metadata names that many brokers; TimeoutError after `timeout_s`."""
    deadline = time.perf_counter() + timeout_s
    host, port = bootstrap.split(",")[0].split(":")
    while time.perf_counter() < deadline:
        try:
            socket.create_connection((host, int(port)), 0.2).close()
            break
        except OSError:
            time.sleep(0.005)
    client = admin(bootstrap)
    while time.perf_counter() < deadline:
        with contextlib.suppress(KafkaException):
            if len(client.list_topics(timeout=1).brokers) >= brokers:
                return
        time.sleep(0.01)
    raise TimeoutError(f"{brokers} brokers are not up after {timeout_s} s")


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def latencies_ms(name: str, seconds: list[float]) -> dict[str, float]:
    """The median and the 99th percentile, as `NAME_p50_ms` and `NAME_p99_ms`."""
    return {f"{name}_p{q}_ms": 1e3 * percentile(seconds, q / 100) for q in (50, 99)}
