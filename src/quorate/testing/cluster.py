"""A Kafka cluster of real nodes on this machine, for tests: one process per node, and faults on demand."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from quorate.metadata.errors import MetadataError
from quorate.metadata.stored_voters import latest_voters
from quorate.node.local.cluster import LocalCluster, LocalClusterError
from quorate.node.local.processes import STOP_TIMEOUT_S, stop_processes
from quorate.protocol.metadata_partition import METADATA_DIRECTORY
from quorate.testing.cluster_node import ClusterNode
from quorate.testing.config import DEFAULT_CONFIG, texts
from quorate.testing.errors import ClusterError
from quorate.testing.folders import copy_cluster, has_separate_roles, roles_of
from quorate.testing.from_snapshot import LocalSnapshot
from quorate.testing.ports import HOST, PortReservation
from quorate.testing.readiness import wait_until_ready


class KafkaCluster:
    """A running cluster. As a context manager it ends its nodes at the end.

        with KafkaCluster(controllers=3, brokers=3) as cluster:
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
            cluster.kill(1)

    Node ids run from 1. The first `controllers` nodes have the controller role and the first `brokers`
    nodes have the broker role, so that three of each make three nodes with both roles. With
    `separate_roles` they make six nodes: the controllers, then the brokers. Every node is a process that
    ends with this one, even if this one is killed. All listeners are on 127.0.0.1, on ports that stay the
    same when a node is started again.

    `config` is set on every node, on top of Kafka's defaults and `DEFAULT_CONFIG`. `directory` is the
    folder of another cluster (of `quorate up --data`, or `KafkaCluster.directory`), which is copied and
    started with its data; its nodes must not run. `snapshot` is a metadata snapshot (`*.checkpoint`) of
    any Kafka cluster: this cluster starts with its topics, configurations, ACLs, quotas and
    credentials, with replicas on its own brokers, and without records. `folder` is where the cluster
    keeps its files; without it they are in a temporary directory that `close` removes.

    Raises ClusterError if the cluster does not start within `timeout_s`.
    """

    def __init__(
        self,
        controllers: int | None = None,
        brokers: int | None = None,
        *,
        separate_roles: bool = False,
        config: Mapping[str, object] | None = None,
        directory: str | os.PathLike[str] | None = None,
        snapshot: str | os.PathLike[str] | None = None,
        folder: str | os.PathLike[str] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self._timeout_s = timeout_s
        self._owner = os.getpid()
        self._links: set[frozenset[int]] = set()
        self._redirects: list[tuple[str, int, int]] = []
        self._members: dict[int, ClusterNode] = {}
        if directory is not None and snapshot is not None:
            raise ClusterError("a cluster starts from a directory or from a snapshot, not from both")
        source = Path(directory) if directory is not None else None
        if source is not None:
            controllers, brokers = roles_of(source, controllers, brokers)
            separate_roles = has_separate_roles(source)
        controllers = 1 if controllers is None else controllers
        brokers = 1 if brokers is None else brokers
        if controllers < 1 or brokers < 1:
            raise ClusterError("a cluster needs at least one controller and one broker")
        self._temporary = tempfile.TemporaryDirectory(prefix="quorate-") if folder is None else None
        self._base = Path(
            self._temporary.name if self._temporary is not None else os.fspath(folder or "")
        ).absolute()
        overrides = texts({**DEFAULT_CONFIG, **(config or {})})
        self._local = LocalCluster(
            self._base / "cluster",
            controllers,
            brokers,
            HOST,
            overrides=overrides,
            separate_roles=separate_roles,
            moved_voters_found=True,
        )
        try:
            self._create(source, Path(snapshot) if snapshot is not None else None)
        except BaseException as e:
            self.close()
            if isinstance(e, LocalClusterError):
                raise ClusterError(str(e)) from e
            raise

    def _create(self, source: Path | None, snapshot: Path | None) -> None:
        """Formats and starts the nodes.

        Their processes import their modules while the nodes are formatted.
        """
        count = len(self._local.planned_nodes())
        reserved = {node_id: (PortReservation(), PortReservation()) for node_id in range(1, count + 1)}
        self._local.ports = {
            node_id: (first.port, second.port) for node_id, (first, second) in reserved.items()
        }
        logs = self._base / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        placeholders = self._local.planned_nodes()
        self._members = {
            node.node_id: ClusterNode(node, logs / f"node-{node.node_id}.log", reserved[node.node_id])
            for node in placeholders
        }
        for member in self._members.values():
            member.spawn()
        if source is not None:
            copy_cluster(source, self._local.folder)
        self._local.prepare(lambda text: None)
        if source is not None:
            self._redirects = self._moved_voters()
        if snapshot is not None:
            self._start_from(snapshot)
        for member in self._members.values():
            member.launch(self._redirects, self._cut_ports(member))
        self._wait_ready(self._members)

    def _moved_voters(self) -> list[tuple[str, int, int]]:
        """Returns (host, old port, new port) of each voter in the copied metadata log."""
        folders = [
            m.data_directory / METADATA_DIRECTORY for m in self._members.values() if m.local.controller
        ]
        voters = latest_voters(folders)
        return [
            (endpoint.host, endpoint.port, self._members[voter.voter_id].local.controller_port)
            for voter in (voters.voters if voters is not None else ())
            if voter.voter_id in self._members
            for endpoint in voter.endpoints
        ]

    def _start_from(self, snapshot: Path) -> None:
        try:
            adapted = LocalSnapshot(snapshot, self.broker_ids)
        except (OSError, MetadataError) as e:
            raise ClusterError(f"cannot start from the metadata snapshot {snapshot}: {e}") from e
        for node_id in self.controller_ids:
            adapted.write(self._members[node_id].data_directory, now_ms=time.time_ns() // 1_000_000)

    # -- properties of the cluster and its nodes

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the brokers, for `bootstrap.servers` of a client."""
        return ",".join(f"{HOST}:{m.local.broker_port}" for m in self._members.values() if m.local.broker)

    @property
    def bootstrap_controllers(self) -> str:
        """The addresses of the controllers, for `--bootstrap-controller` of a tool or
        `bootstrap.controllers` of Java's admin client.
        """
        return ",".join(
            f"{HOST}:{m.local.controller_port}" for m in self._members.values() if m.local.controller
        )

    @property
    def cluster_id(self) -> str:
        return self._local.cluster_id

    @property
    def node_ids(self) -> list[int]:
        return list(self._members)

    @property
    def broker_ids(self) -> list[int]:
        return [node_id for node_id, member in self._members.items() if member.local.broker]

    @property
    def controller_ids(self) -> list[int]:
        return [node_id for node_id, member in self._members.items() if member.local.controller]

    @property
    def directory(self) -> Path:
        """The folder with the data of all nodes.

        Another cluster can start from it after this one is stopped.
        """
        return self._local.folder

    def data_directory(self, node_id: int) -> Path:
        """The log directory (`log.dirs`) of a node."""
        return self._member(node_id).data_directory

    def properties_file(self, node_id: int) -> Path:
        """The properties file of a node."""
        return self._member(node_id).local.properties_file

    def log_file(self, node_id: int) -> Path:
        """The file with the log of a node."""
        return self._member(node_id).log_file

    def log_tail(self, node_id: int, lines: int = 40) -> str:
        """Returns the last lines of the log of a node."""
        return self._member(node_id).log_tail(lines)

    def pid(self, node_id: int) -> int | None:
        """The process id of a node, or None if it does not run."""
        member = self._member(node_id)
        return member.process.pid if member.process is not None and member.running else None

    def is_running(self, node_id: int) -> bool:
        """Whether the process of a node runs. A frozen process counts as running."""
        return self._member(node_id).running

    # -- starting and stopping nodes

    def kill(self, node_id: int) -> None:
        """Ends a node with SIGKILL, like a crash."""
        member = self._member(node_id)
        member.kill()
        member.release()

    def stop(self, node_id: int | None = None, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stops a node, or all nodes, with a controlled shutdown.

        A node that takes longer than `timeout_s`, for example because the controllers have no leader, then
        stops without moving its leaderships. Raises ClusterError if a node ends with an error.
        """
        members = [m for m in self._selected(node_id) if m.running]
        for member in members:
            member.thaw()
        stop_processes({m.process: m.local for m in members if m.process is not None}, timeout_s)
        failed = [m for m in members if m.process is not None and m.process.returncode]
        for member in members:
            member.release()
        if failed:
            raise ClusterError("\n".join(str(m.exit_error()) for m in failed))

    def start(self, node_id: int | None = None, *, wait: bool = True) -> None:
        """Starts a node that was killed or stopped, or all such nodes. With `wait`, returns when they serve.

        Raises ClusterError.
        """
        members = [m for m in self._selected(node_id) if not m.running]
        for member in members:
            member.release()
            member.spawn()
            member.launch(self._redirects, self._cut_ports(member))
        if wait:
            self._wait_ready([m.node_id for m in members])

    def close(self) -> None:
        """Ends all nodes with SIGKILL and removes the temporary files. Does nothing the second time."""
        if os.getpid() != self._owner:
            return  # a fork of the process that runs the cluster
        for member in self._members.values():
            member.kill()
        for member in self._members.values():
            member.release()
            member.close_ports()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- faults

    def freeze(self, node_id: int) -> None:
        """Stops the process of a node with SIGSTOP, until `thaw`. Its connections stay open, and it answers
        nothing.
        """
        self._running(node_id).freeze()

    def thaw(self, node_id: int | None = None) -> None:
        """Continues a frozen node, or all of them."""
        for member in self._selected(node_id):
            member.thaw()
            member.confirm()

    def cut(self, a: int, b: int | None = None) -> None:
        """Cuts the link between two nodes, or all links of one node to others, in both directions,
        until `heal`.

        Connections stay open and carry nothing; new ones are not established. Clients still reach both nodes.
        """
        self._member(a)
        others = [self._member(b).node_id] if b is not None else [n for n in self._members if n != a]
        if b == a:
            raise ClusterError(f"node {a} has no link to itself")
        self._links |= {frozenset((a, other)) for other in others}
        self._apply_cuts()

    def heal(self, a: int | None = None, b: int | None = None) -> None:
        """Restores the link between two nodes, all links of one node, or, without arguments, all links."""
        wanted = {node_id for node_id in (a, b) if node_id is not None}
        self._links = {link for link in self._links if not wanted <= link}
        self._apply_cuts()

    def slow_disk(self, node_id: int, *, fsync_ms: float = 0, read_ms: float = 0) -> None:
        """Delays each fsync of a node, and each read that misses the page cache. 0 removes the delay.

        With `read_ms`, the page cache counts as empty now. From now on it holds the bytes that are read
        and written.
        """
        self._member(node_id).slow_disk(fsync_ms, read_ms)

    def full_disk(self, node_id: int, *, free_bytes: int = 0) -> None:
        """Makes the writes of a node fail with ENOSPC after `free_bytes` more, until `free_disk`.

        As in Apache Kafka, a node that cannot write its metadata log ends.
        """
        self._member(node_id).limit_disk(free_bytes)

    def free_disk(self, node_id: int) -> None:
        """Removes the limit of `full_disk`."""
        self._member(node_id).limit_disk(None)

    def fail_disk(self, node_id: int, directory: str | os.PathLike[str] | None = None) -> None:
        """Makes every read, write and fsync of a node fail with EIO, until `repair_disk`; with `directory`,
        only those below it.

        As in Apache Kafka, a node that cannot write its metadata log ends.
        """
        under = f"{Path(directory).absolute()}/" if directory is not None else ""
        self._member(node_id).fail_disk(True, under)

    def repair_disk(self, node_id: int) -> None:
        """Ends the failures of `fail_disk`. No written byte is lost."""
        self._member(node_id).fail_disk(False)

    # -- processes

    def _wait_ready(self, node_ids: Iterable[int]) -> None:
        """Waits until each given broker knows all of them and each given controller accepts connections.

        Raises ClusterError.
        """
        wait_until_ready([self._members[node_id] for node_id in node_ids], self._timeout_s)

    def _apply_cuts(self) -> None:
        for member in self._members.values():
            member.cut_links(self._cut_ports(member))
        for member in self._members.values():
            member.confirm()

    def _cut_ports(self, member: ClusterNode) -> list[int]:
        cut = {n for link in self._links if member.node_id in link for n in link} - {member.node_id}
        return [port for node_id in sorted(cut) for port in self._members[node_id].listening_ports]

    # -- selecting nodes

    def _member(self, node_id: int) -> ClusterNode:
        try:
            return self._members[node_id]
        except KeyError:
            raise ClusterError(
                f"there is no node {node_id}; the nodes are {', '.join(map(str, self._members))}"
            ) from None

    def _running(self, node_id: int) -> ClusterNode:
        member = self._member(node_id)
        if not member.running:
            raise member.error("does not run")
        return member

    def _selected(self, node_id: int | None) -> list[ClusterNode]:
        return list(self._members.values()) if node_id is None else [self._member(node_id)]
