"""A Kafka cluster of real nodes on this machine, for tests: one process per node, with faults on demand."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from quorate.metadata.bootstrap import METADATA_DIRECTORY
from quorate.metadata.errors import MetadataError
from quorate.node.local_cluster import LocalCluster, LocalClusterError, LocalNode
from quorate.node.local_processes import NodeProcess, brokers_known_at, start_process, stop_processes
from quorate.node.stored_voters import latest_voters
from quorate.testing.errors import ClusterError
from quorate.testing.folders import copy_cluster, roles_of, size_of
from quorate.testing.from_snapshot import LocalSnapshot
from quorate.testing.messages import DiskFault, Launch, LinkFault, Message, encode
from quorate.testing.ports import HOST, PortReservation

DEFAULT_CONFIG: Mapping[str, object] = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 3,
}
"""Internal topics with few partitions (Kafka's default is 50): the first consumer group of a test is
served sooner."""

_POLL_S = 0.01
"""How often a node that starts is asked whether it serves. Another process has no way to call us."""

_CONFIRMED_S = 30.0
"""How long a node may take to confirm a fault. It does within a millisecond unless its event loop
stands still."""

_LOG_TAIL_BYTES = 64 << 10


@dataclass(slots=True)
class _Member:
    """One node: what it is, its process if it has one, and its faults."""

    local: LocalNode
    log_file: Path
    ports: tuple[PortReservation, PortReservation]
    process: NodeProcess | None = None
    control: socket.socket | None = None
    unconfirmed: int = 0
    frozen: subprocess.Popen[bytes] | None = None
    """The watcher of a frozen process; see `KafkaCluster.freeze`."""
    disk: DiskFault = field(default_factory=DiskFault)
    full_at_bytes: int = 0
    """The size of the data at which a disk that was given `free_bytes` is full."""

    @property
    def used_ports(self) -> list[int]:
        roles = (
            (self.local.broker, self.local.broker_port),
            (self.local.controller, self.local.controller_port),
        )
        return [port for has_role, port in roles if has_role]

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class KafkaCluster:
    """A running cluster; a context manager that ends its nodes.

        with KafkaCluster(controllers=3, brokers=3) as cluster:
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
            cluster.kill(1)

    Node ids run from 1. The first `controllers` nodes have the controller role and the first `brokers`
    nodes have the broker role, so that three of each make three nodes with both roles. Every node is a
    process that ends with this one, also when this one is killed. All listeners are on 127.0.0.1, on
    ports that stay the same when a node is started again.

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
        self._members: dict[int, _Member] = {}
        if directory is not None and snapshot is not None:
            raise ClusterError("a cluster starts from a directory or from a snapshot, not from both")
        source = Path(directory) if directory is not None else None
        if source is not None:
            controllers, brokers = roles_of(source, controllers, brokers)
        controllers = 1 if controllers is None else controllers
        brokers = 1 if brokers is None else brokers
        if controllers < 1 or brokers < 1:
            raise ClusterError("a cluster needs at least one controller and one broker")
        self._temporary = tempfile.TemporaryDirectory(prefix="quorate-") if folder is None else None
        self._base = Path(
            self._temporary.name if self._temporary is not None else os.fspath(folder or "")
        ).absolute()
        overrides = {name: _property(value) for name, value in {**DEFAULT_CONFIG, **(config or {})}.items()}
        self._local = LocalCluster(
            self._base / "cluster", controllers, brokers, HOST, overrides=overrides, moved_voters_found=True
        )
        try:
            self._create(source, Path(snapshot) if snapshot is not None else None)
        except BaseException as e:
            self.close()
            if isinstance(e, LocalClusterError):
                raise ClusterError(str(e)) from e
            raise

    def _create(self, source: Path | None, snapshot: Path | None) -> None:
        """Formats the nodes and starts them. Their processes start first and import their modules
        meanwhile."""
        count = max(self._local.controllers, self._local.brokers)
        reserved = {node_id: (PortReservation(), PortReservation()) for node_id in range(1, count + 1)}
        self._local.ports = {
            node_id: (first.port, second.port) for node_id, (first, second) in reserved.items()
        }
        logs = self._base / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        placeholders = self._local.planned_nodes()
        self._members = {
            node.node_id: _Member(node, logs / f"node-{node.node_id}.log", reserved[node.node_id])
            for node in placeholders
        }
        for member in self._members.values():
            self._spawn(member)
        if source is not None:
            copy_cluster(source, self._local.folder)
        self._local.prepare(lambda text: None)
        if source is not None:
            self._redirects = self._moved_voters()
        if snapshot is not None:
            self._start_from(snapshot)
        for member in self._members.values():
            self._launch(member)
        self._wait_ready(self._members)

    def _moved_voters(self) -> list[tuple[str, int, int]]:
        """(host, port, port now) of the voters that the copied metadata log names."""
        folders = [
            m.local.folder / "data" / METADATA_DIRECTORY for m in self._members.values() if m.local.controller
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
            adapted.write(self._members[node_id].local.folder / "data", now_ms=time.time_ns() // 1_000_000)

    # -- what clients and tests need to know

    @property
    def bootstrap_servers(self) -> str:
        """The brokers, for `bootstrap.servers` of a client."""
        return ",".join(f"{HOST}:{m.local.broker_port}" for m in self._members.values() if m.local.broker)

    @property
    def bootstrap_controllers(self) -> str:
        """The controllers, for `--bootstrap-controller` of a tool or `bootstrap.controllers` of Java's
        admin client."""
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
        """The folder with all nodes' data: another cluster can start from it once this one is stopped."""
        return self._local.folder

    def data_directory(self, node_id: int) -> Path:
        """The log directory (`log.dirs`) of a node."""
        return self._member(node_id).local.folder / "data"

    def log_file(self, node_id: int) -> Path:
        """What a node logs."""
        return self._member(node_id).log_file

    def log_tail(self, node_id: int, lines: int = 40) -> str:
        """The last lines of what a node logged."""
        try:
            with self.log_file(node_id).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def pid(self, node_id: int) -> int | None:
        """The process id of a node, None while it does not run."""
        member = self._member(node_id)
        return member.process.pid if member.process is not None and member.running else None

    def is_running(self, node_id: int) -> bool:
        """True from `start` to the end of the process; a frozen node counts as running."""
        return self._member(node_id).running

    # -- nodes that come and go

    def kill(self, node_id: int) -> None:
        """Ends a node with SIGKILL, as a crash does."""
        member = self._member(node_id)
        if member.process is not None:
            member.process.kill()
            member.process.wait()
        self._ended(member)

    def stop(self, node_id: int | None = None) -> None:
        """Stops a node, or all of them, with a controlled shutdown. Raises ClusterError if one ends
        with an error."""
        members = [m for m in self._chosen(node_id) if m.running]
        for member in members:
            self._thaw(member)
        stop_processes({m.process: m.local for m in members if m.process is not None})
        failed = [m for m in members if m.process is not None and m.process.returncode]
        for member in members:
            self._ended(member)
        if failed:
            raise ClusterError("\n".join(self._describe_end(m) for m in failed))

    def start(self, node_id: int | None = None, *, wait: bool = True) -> None:
        """Starts a node that was killed or stopped, or all that do not run. With `wait`, returns when
        they serve."""
        members = [m for m in self._chosen(node_id) if not m.running]
        for member in members:
            self._ended(member)
            self._spawn(member)
            self._launch(member)
        if wait:
            self._wait_ready([m.local.node_id for m in members])

    def close(self) -> None:
        """Ends all nodes at once and removes the temporary files. Does nothing the second time."""
        if os.getpid() != self._owner:
            return  # a process forked from the one that runs the cluster
        for member in self._members.values():
            if member.process is not None:
                member.process.kill()
        for member in self._members.values():
            if member.process is not None:
                member.process.wait()
            self._ended(member)
            for port in member.ports:
                port.close()
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
        """Stops the process of a node with SIGSTOP: its connections stay open and nothing answers,
        until `thaw`."""
        member = self._running(node_id)
        if member.frozen is not None or member.process is None:
            return
        pid = member.process.pid
        # A stopped process does not notice that its parent has ended; this one does, in its place.
        member.frozen = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -9 "$1"', "watch", str(pid)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.kill(pid, signal.SIGSTOP)

    def thaw(self, node_id: int | None = None) -> None:
        """Lets a frozen node, or all of them, go on."""
        for member in self._chosen(node_id):
            self._thaw(member)
            self._confirm(member)

    def cut(self, a: int, b: int | None = None) -> None:
        """Cuts the link between two nodes, or all links of one node to others, in both directions,
        until `heal`.

        Connections stay open and carry nothing; new ones are not established. Clients still reach both nodes.
        """
        self._member(a)
        others = [self._member(b).local.node_id] if b is not None else [n for n in self._members if n != a]
        if b == a:
            raise ClusterError(f"node {a} has no link to itself")
        self._links |= {frozenset((a, other)) for other in others}
        self._tell_links()

    def heal(self, a: int | None = None, b: int | None = None) -> None:
        """Restores the link between two nodes, all links of one node, or, without arguments, all links."""
        wanted = {node_id for node_id in (a, b) if node_id is not None}
        self._links = {link for link in self._links if not wanted <= link}
        self._tell_links()

    def slow_disk(self, node_id: int, *, fsync_ms: float = 0, read_ms: float = 0) -> None:
        """Makes each fsync of a node, and each read that misses the page cache, take that much longer;
        0 is as fast as the disk is. With `read_ms` the page cache counts as empty at this moment, and
        holds what is read and written from now."""
        member = self._member(node_id)
        self._tell_disk(member, DiskFault(fsync_ms, read_ms, member.disk.free_bytes))

    def full_disk(self, node_id: int, *, free_bytes: int = 0) -> None:
        """Lets a node write `free_bytes` more to its disk; then every write fails with ENOSPC, until
        `free_disk`.

        As in Apache Kafka, a node that cannot write its metadata log ends.
        """
        member = self._member(node_id)
        member.full_at_bytes = size_of(self.data_directory(node_id)) + free_bytes
        self._tell_disk(member, DiskFault(member.disk.fsync_ms, member.disk.read_ms, free_bytes))

    def free_disk(self, node_id: int) -> None:
        """Gives a full disk room again."""
        member = self._member(node_id)
        self._tell_disk(member, DiskFault(member.disk.fsync_ms, member.disk.read_ms, None))

    # -- processes

    def _spawn(self, member: _Member) -> None:
        """Starts the process of a node, which then waits for its Launch."""
        ours, theirs = socket.socketpair()
        ours.settimeout(_CONFIRMED_S)
        with theirs, member.log_file.open("ab") as log:
            fd = theirs.fileno()
            member.process = start_process("quorate.testing.node", [str(fd)], log, pass_fds=[fd])
        member.control = ours
        member.unconfirmed = 0

    def _launch(self, member: _Member) -> None:
        for port in member.ports:
            port.lend()
        links = LinkFault(self._cut_ports(member))
        if member.disk.free_bytes is not None:
            free_bytes = max(0, member.full_at_bytes - size_of(self.data_directory(member.local.node_id)))
            member.disk = DiskFault(member.disk.fsync_ms, member.disk.read_ms, free_bytes)
        self._send(member, Launch(str(member.local.properties_file), self._redirects, member.disk, links))

    def _ended(self, member: _Member) -> None:
        """Gives back what belonged to a process that has ended."""
        if member.frozen is not None:
            _end_watcher(member.frozen)
            member.frozen = None
        if member.process is not None and member.process.stdin is not None:
            member.process.stdin.close()
        if member.control is not None:
            member.control.close()
            member.control = None

    def _thaw(self, member: _Member) -> None:
        if member.frozen is None:
            return
        watcher, member.frozen = member.frozen, None
        _end_watcher(watcher)
        if member.process is not None and member.running:
            os.kill(member.process.pid, signal.SIGCONT)

    def _wait_ready(self, node_ids: Iterable[int]) -> None:
        """Until every given broker names all given brokers and every given controller accepts connections."""
        members = [self._members[node_id] for node_id in node_ids]
        brokers = {m.local.node_id for m in members if m.local.broker}
        deadline = time.monotonic() + self._timeout_s
        failed: list[BaseException] = []

        async def ready(member: _Member) -> bool:
            if member.local.broker:
                return brokers <= await brokers_known_at(HOST, member.local.broker_port)
            try:
                _, writer = await asyncio.open_connection(HOST, member.local.controller_port)
            except OSError:
                return False
            writer.close()
            return True

        async def wait() -> None:
            for member in members:
                while not await ready(member):
                    if not member.running:
                        raise ClusterError(self._describe_end(member))
                    if time.monotonic() > deadline:
                        raise ClusterError(
                            f"node {member.local.node_id} did not serve within {self._timeout_s:g} s\n"
                            + self.log_tail(member.local.node_id)
                        )
                    await asyncio.sleep(_POLL_S)

        def run() -> None:
            try:
                asyncio.run(wait())
            except BaseException as e:
                failed.append(e)

        # In a thread, as the caller may be in an event loop of its own.
        thread = threading.Thread(target=run, name="quorate-testing", daemon=True)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]

    def _describe_end(self, member: _Member) -> str:
        status = member.process.returncode if member.process is not None else None
        node_id = member.local.node_id
        return f"node {node_id} ended with status {status}\n{self.log_tail(node_id)}"

    # -- messages to nodes

    def _tell_links(self) -> None:
        for member in self._members.values():
            if member.running:
                self._send(member, LinkFault(self._cut_ports(member)))
        for member in self._members.values():
            if member.frozen is None:
                self._confirm(member)

    def _cut_ports(self, member: _Member) -> list[int]:
        cut = {n for link in self._links if member.local.node_id in link for n in link} - {
            member.local.node_id
        }
        return [port for node_id in sorted(cut) for port in self._members[node_id].used_ports]

    def _tell_disk(self, member: _Member, fault: DiskFault) -> None:
        member.disk = fault
        if member.running:
            self._send(member, fault)
            if member.frozen is None:
                self._confirm(member)

    def _send(self, member: _Member, message: Message) -> None:
        if member.control is None:
            return
        with contextlib.suppress(ConnectionError):  # it ends at this moment; its next start gets all faults
            member.control.sendall(encode(message))
            member.unconfirmed += not isinstance(message, Launch)

    def _confirm(self, member: _Member) -> None:
        """Waits until a node has applied what it was sent, or has ended."""
        try:
            while member.unconfirmed and member.control is not None:
                answer = member.control.recv(member.unconfirmed)
                if not answer:
                    break
                member.unconfirmed -= len(answer)
        except ConnectionError:
            pass
        except TimeoutError:
            node_id = member.local.node_id
            raise ClusterError(
                f"node {node_id} did not confirm a fault within {_CONFIRMED_S:g} s\n{self.log_tail(node_id)}"
            ) from None

    # -- choosing nodes

    def _member(self, node_id: int) -> _Member:
        try:
            return self._members[node_id]
        except KeyError:
            raise ClusterError(
                f"there is no node {node_id}; the nodes are {', '.join(map(str, self._members))}"
            ) from None

    def _running(self, node_id: int) -> _Member:
        member = self._member(node_id)
        if not member.running:
            raise ClusterError(f"node {node_id} does not run\n{self.log_tail(node_id)}")
        return member

    def _chosen(self, node_id: int | None) -> list[_Member]:
        return list(self._members.values()) if node_id is None else [self._member(node_id)]


def _property(value: object) -> str:
    """The text of a configuration value in a properties file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


def _end_watcher(watcher: subprocess.Popen[bytes]) -> None:
    watcher.kill()
    watcher.wait()
    if watcher.stdin is not None:
        watcher.stdin.close()
