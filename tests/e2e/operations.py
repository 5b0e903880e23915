"""Clusters for the tests of the operations of `quorate`: nodes under a load, machines whose
commands restart them, and runs of the operations that are killed."""

from __future__ import annotations

import contextlib
import json
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from quorate.admin.sync import AdminClient
from quorate.admin.types import NewTopic, QuorumInfo
from quorate.testing.config import DEFAULT_CONFIG
from tests.support import java
from tests.support.cluster import BIN, free_ports
from tests.support.mixed import DIRECTORIES, MixedNode
from tests.support.numbered_load import NumberedLoad, NumberedReader

TOPIC, PARTITIONS = "numbers", 6
Event = dict[str, Any]


class Machines:
    """Stops, starts and restarts nodes for the commands that the operations run, like a host that
    outlives the command which it was sent."""

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


class OperatedCluster:
    """Controllers 1 to 3 and brokers 4 to 6, or three nodes with both roles, and a topic under a
    load with acks=all.

    The nodes are ours, or of the release `kafka` of Apache Kafka. Those report no start time; the
    metadata log has those of registrations.
    """

    def __init__(
        self,
        folder: Path,
        *,
        replicas: int,
        min_isr: int = 1,
        kafka: str | None = None,
        release: str | None = None,
        static: bool = False,
        separate_roles: bool = True,
    ) -> None:
        self.kafka = kafka
        self.voters = dict(enumerate(free_ports(3), 1))
        self.controller_ids = list(self.voters)
        self.broker_ids = [4, 5, 6] if separate_roles else self.controller_ids
        roles = dict.fromkeys(self.voters, "controller" if separate_roles else "broker,controller")
        roles |= {n: "broker" for n in self.broker_ids if n not in roles}
        extra: dict[str, object] = {**DEFAULT_CONFIG, "offsets.topic.replication.factor": 2}
        if kafka is not None:
            java.require_java(kafka)
            extra["initial.broker.registration.timeout.ms"] = 300_000
        self.nodes = {
            n: MixedNode(
                folder / str(n), n, role, impl="quorate" if kafka is None else "java", static=static,
                voters=self.voters, controller_port=self.voters.get(n, 0), kafka=kafka or java.KAFKA_VERSION,
                release=release, extra=extra,
            )
            for n, role in sorted(roles.items())
        }  # fmt: skip
        self.machines = Machines(
            folder, {"restart": self._restart, "stop": self._stop, "replace": self._replace}
        )
        self.load: NumberedLoad
        self._cleanup = contextlib.ExitStack()
        self._cleanup.callback(self.machines.close)
        try:
            self._start(replicas, min_isr)
        except BaseException:
            self.close()
            raise

    @property
    def servers(self) -> str:
        return ",".join(self.nodes[n].bootstrap for n in self.broker_ids)

    @property
    def controllers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.voters.values())

    def _start(self, replicas: int, min_isr: int) -> None:
        initial = ",".join(f"{n}@127.0.0.1:{port}:{DIRECTORIES[n]}" for n, port in self.voters.items())
        for n, node in self.nodes.items():
            is_initial = n in self.voters and not node.static
            node.format(*(("--initial-controllers", initial) if is_initial else ()))
            node.start(wait=False)
            self._cleanup.callback(node.kill)
        for node in self.nodes.values():
            node.wait_ready(300)
        self.admin = self._cleanup.enter_context(AdminClient(self.servers))
        topic = NewTopic(TOPIC, PARTITIONS, replicas, configs={"min.insync.replicas": str(min_isr)})
        assert self.admin.create_topics([topic]) == {TOPIC: None}
        self.load = NumberedLoad(self.servers, TOPIC, PARTITIONS, 200 if self.kafka is None else 100)
        self._cleanup.callback(self.load.stop)
        self.load.flows(120)

    # -- what the users' commands do

    def _stop(self, node: int) -> None:
        """Stops a node in order. It may be stopped before it handles SIGTERM, and it may be dead already."""
        assert self.nodes[node].stop() in (0, 143, -signal.SIGTERM, -signal.SIGKILL)

    def _restart(self, node: int) -> None:
        self._stop(node)
        self.nodes[node].start(wait=False)

    def _replace(self, node_id: int) -> None:
        """Loses the disk of a node, formats the new one, and starts the node."""
        node = self.nodes[node_id]
        if node.running:
            return
        shutil.rmtree(node.data)
        node.format(*(["--no-initial-controllers"] if node_id in self.voters and not node.static else []))
        node.start(wait=False)

    def use_bootstrap_servers(self) -> None:
        """Takes the static voters out of the properties, for the next start of each node."""
        for node in self.nodes.values():
            node.static = False
            node.write_properties()

    # -- what tests ask

    def pid(self, node: int) -> int | None:
        proc = self.nodes[node].proc
        return proc.pid if proc is not None and proc.poll() is None else None

    def quorum(self) -> QuorumInfo:
        return self.admin.describe_quorum()

    def finish(self, *words: str) -> list[Event]:
        """Runs an operation to its end."""
        return Tool(*words, "-b", self.servers, "--yes", "--json", "--timeout", "180").finish()

    def check(self) -> None:
        """Every acknowledged record is there once and in order."""
        self.load.flows()
        self.load.pause()
        reader = NumberedReader(self.servers, TOPIC, PARTITIONS)
        try:
            reader.reaches([len(p.offsets) for p in self.load.partitions])
        finally:
            reader.stop()

    def close(self) -> None:
        self._cleanup.close()


def killed_and_continued(
    command: list[str], kill_at: Callable[[Event], bool], rng: random.Random
) -> list[Event]:
    """Runs a command with SIGKILL shortly after each event that `kill_at` selects, and then again,
    to its end. Returns the events of all runs."""
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
