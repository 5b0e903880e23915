"""One node on this machine whose properties, formatting and start are left to the test."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from quorate.log import properties_text
from quorate.node.local.cluster import LocalNode
from quorate.node.local.processes import NodeProcess
from quorate.testing.cluster_node import ClusterNode
from quorate.testing.config import DEFAULT_CONFIG, texts
from quorate.testing.errors import ClusterError
from quorate.testing.ports import HOST, PortReservation
from quorate.testing.readiness import wait_until_ready
from quorate.tools import storage

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
"""The cluster id of nodes that are formatted without another one, so that they can form one cluster."""

_WAYS_TO_FORMAT = {
    "--standalone", "-s", "--initial-controllers", "-I", "--controller-quorum-voters",
    "--no-initial-controllers", "-N",
}  # fmt: skip
"""The options of `kafka-storage format` that name the voters of a dynamic quorum."""

_formatting = threading.Lock()
"""Held while standard output and standard error are those of the storage tool."""


class KafkaNode:
    """A node for tests that need properties of single nodes, formatting options or a quorum whose voters
    change, which `KafkaCluster` does not have.

        with KafkaNode(tmp_path / "node") as node:
            node.config["auto.create.topics.enable"] = False
            node.write_properties()
            node.format("--release-version", "4.0")
            node.start()

    `folder` receives `server.properties`, `data` (the log directory) and the log. The listeners PLAINTEXT
    and CONTROLLER are on 127.0.0.1, on ports that are reserved for the node unless `broker_port` or
    `controller_port` names others. `bootstrap_controllers` are the addresses of the quorum's controllers,
    by default that of this node. `config` is set on top of this and of Kafka's defaults. Internal topics
    have 3 partitions and 1 replica.

    The attributes may be changed before `write_properties`; the node reads the file when it starts. As a
    context manager it ends the node at the end. The process ends with this one, even if this one is
    killed.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        node_id: int = 1,
        roles: str = "broker,controller",
        *,
        config: Mapping[str, object] | None = None,
        bootstrap_controllers: str = "",
        broker_port: int = 0,
        controller_port: int = 0,
        log_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.node_id = node_id
        self.roles = roles
        self.config = dict(config or {})
        self._reserved = [PortReservation() for wanted in (broker_port, controller_port) if not wanted]
        free = iter(self._reserved)
        self.broker_port = broker_port or next(free).port
        self.controller_port = controller_port or next(free).port
        self.bootstrap_controllers = bootstrap_controllers or f"{HOST}:{self.controller_port}"
        self.log_file = Path(log_file).absolute() if log_file is not None else self.folder / "server.log"
        self._member = ClusterNode(self.local, self.log_file, self._reserved)
        self.write_properties()

    @property
    def local(self) -> LocalNode:
        """The roles, ports and files of the node, as the functions of `quorate.node` take them."""
        return LocalNode(
            self.node_id,
            self.folder,
            "controller" in self.roles,
            "broker" in self.roles,
            self.broker_port,
            self.controller_port,
        )

    # -- files and addresses

    @property
    def properties_file(self) -> Path:
        return self.folder / "server.properties"

    @property
    def data_directory(self) -> Path:
        """The log directory, unless `config` sets `log.dirs`."""
        return self.folder / "data"

    @property
    def bootstrap_servers(self) -> str:
        """The address of the PLAINTEXT listener, for `bootstrap.servers` of a client."""
        return f"{HOST}:{self.broker_port}"

    def write_properties(self) -> None:
        """Writes the properties file anew."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._member.local = local = self.local
        listeners = []
        if local.broker:
            listeners.append(f"PLAINTEXT://{HOST}:{self.broker_port}")
        if local.controller:
            listeners.append(f"CONTROLLER://{HOST}:{self.controller_port}")
        values: dict[str, object] = {
            "process.roles": self.roles,
            "node.id": self.node_id,
            "listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self.data_directory,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **DEFAULT_CONFIG,
        }
        if "controller.quorum.voters" not in self.config:
            values["controller.quorum.bootstrap.servers"] = self.bootstrap_controllers
        self.properties_file.write_text(properties_text.render(texts(values | self.config)))

    def format(self, *arguments: object, cluster_id: str = CLUSTER_ID) -> str:
        """Formats the log directories as `kafka-storage format` does with these arguments, and returns what
        it prints.

        A controller becomes the only voter of its quorum (`--standalone`) unless an argument names other
        voters. Raises ClusterError.
        """
        words = ["format", "-t", cluster_id, "-c", str(self.properties_file), *map(str, arguments)]
        static = "controller.quorum.voters" in self.config
        if "controller" in self.roles and not static and _WAYS_TO_FORMAT.isdisjoint(words):
            words.append("--standalone")
        out, err = io.StringIO(), io.StringIO()
        with _formatting, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = storage.main(words)
            except SystemExit as e:  # of the parser of options
                status = 1 if e.code is None else int(e.code)
        if status:
            raise ClusterError(f"format: status {status}\n{out.getvalue()}\n{err.getvalue()}")
        return out.getvalue()

    # -- the process

    @property
    def process(self) -> NodeProcess | None:
        """The process that was started last."""
        return self._member.process

    @property
    def pid(self) -> int | None:
        """The process id, or None if the node does not run."""
        process = self._member.process
        return process.pid if process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the process runs. A frozen process counts as running."""
        return self._member.running

    def start(
        self, *, wait: bool = True, timeout_s: float = 60.0, env: Mapping[str, str] | None = None
    ) -> None:
        """Starts the node, with `env` added to the environment. With `wait`, returns when it serves.

        Raises ClusterError.
        """
        if self.is_running:
            raise self._member.error("runs already")
        self._member.release()
        self._member.spawn(env)
        self._member.launch()
        if wait:
            self.wait_until_ready(timeout_s)

    def wait_until_ready(self, timeout_s: float = 60.0) -> None:
        """Waits until the broker's metadata has the broker, or until the port of a controller without a
        broker accepts connections.

        Raises ClusterError.
        """
        wait_until_ready([self._member], timeout_s)

    def stop(self, timeout_s: float = 60.0) -> int:
        """Stops the node with SIGTERM and returns its exit status. Raises ClusterError if it does not end."""
        process = self._member.process
        if process is None:
            raise self._member.error("was never started")
        self._member.thaw()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self._member.error(f"did not end within {timeout_s:g} s") from None
        self._member.release()
        return status

    def kill(self) -> None:
        """Ends the node with SIGKILL, if it runs."""
        self._member.kill()
        self._member.release()

    def close(self) -> None:
        """Ends the node with SIGKILL and gives its ports back. Does nothing the second time."""
        self.kill()
        self._member.close_ports()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def log_tail(self, lines: int = 40) -> str:
        """Returns the last lines of the log."""
        return self._member.log_tail(lines)

    # -- faults, as those of KafkaCluster

    def freeze(self) -> None:
        """Stops the process with SIGSTOP, until `thaw`. Its connections stay open, and it answers nothing."""
        self._member.freeze()

    def thaw(self) -> None:
        """Continues a frozen process."""
        self._member.thaw()
        self._member.confirm()

    def slow_disk(self, *, fsync_ms: float = 0, read_ms: float = 0) -> None:
        """Delays each fsync, and each read that misses the page cache. 0 removes the delay."""
        self._member.slow_disk(fsync_ms, read_ms)

    def full_disk(self, *, free_bytes: int = 0) -> None:
        """Makes writes fail with ENOSPC after `free_bytes` more, until `free_disk`."""
        self._member.limit_disk(free_bytes)

    def free_disk(self) -> None:
        """Removes the limit of `full_disk`."""
        self._member.limit_disk(None)
